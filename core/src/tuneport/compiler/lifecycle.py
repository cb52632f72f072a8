"""What can be done with a trained model besides training: evaluation. (Export is the framework's hook.)"""

from __future__ import annotations

from dataclasses import replace

from tuneport.compiler.adapter import location_value, plan
from tuneport.errors import Invalid
from tuneport.types import Command, Context, LaunchPlan, Ref, Value


def eval_plan(context: Context, run_id: str = "", launch: LaunchPlan | None = None) -> LaunchPlan:
    """Run the method's evaluation script in the release's runtime.

    The script finds the model under TUNEPORT_MODEL and the data under TUNEPORT_VALIDATION_DATA, and
    writes its scores to `scores.json` in the output folder.

    Args:
        run_id: evaluate what this job wrote instead of the request's model.
        launch: the method's launch. What Tuneport reads itself, such as a judge, the script finds as training
            does.

    Raises:
        Invalid: the method has no evaluation, or the experiment lacks the script.
    """
    spec = context.method.spec.get("lifecycle", {}).get("eval")
    if spec is None or "file" not in spec:
        raise Invalid(f"{context.method.id} has no evaluation", code="eval-unsupported")
    script = spec["file"]
    if script not in context.files:
        raise Invalid(
            f"the experiment has no {script}",
            code="file-missing",
            hint=f"write {script}: it reads TUNEPORT_MODEL and writes scores.json to TUNEPORT_OUTPUT_DIR",
        )
    env: dict[str, Value] = dict(context.request.env)
    if run_id:
        env["TUNEPORT_MODEL"] = Ref("run_output", name=run_id)
    elif context.request.model is not None:
        env["TUNEPORT_MODEL"] = location_value(context.request.model)
    for name, location in (
        ("TUNEPORT_VALIDATION_DATA", context.request.validation_data),
        ("TUNEPORT_TRAIN_DATA", context.request.train_data),
    ):
        if location is not None:
            env[name] = location_value(location)
    shared = launch if launch is not None and context.method.spec.get("sections") else None
    files = shared.commands[0].files if shared else {}
    command = Command("eval", (Ref("python"), script), env, files, context.topology.primary.name)
    return replace(plan(context, (command,), "eval"), labels=shared.labels if shared else {})
