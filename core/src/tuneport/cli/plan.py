"""`tp plan`."""

from __future__ import annotations

from pathlib import Path

import click

from tuneport.cli.options import experiment_argument, request_flags
from tuneport.cli.output import data, json_option, print_json, printable, talk
from tuneport.experiment.request import Flags
from tuneport.types import FileSpec, Json, LaunchPlan, Ref, Value


@click.command("plan")
@experiment_argument
@request_flags
@click.option("--out", metavar="FILE", default="", help="Also write the plan's JSON to FILE.")
@json_option
def command(experiment: str, flags: Flags, out: str, as_json: bool) -> int:
    """Print the exact launch of EXPERIMENT: argv, files, environment, runtime, pools, digest."""
    import json

    from tuneport import workflow
    from tuneport.compiler.plan import plan_to_json

    launch, report = workflow.plan(experiment, flags)
    document = plan_to_json(launch)
    if out:
        Path(out).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8")
    if as_json:
        print_json(document)
    else:
        data(text(launch, document["digest"]))
        _show_request(launch, workflow.fleet_of(report), experiment)
        for finding in report.findings:
            talk(f"{finding.severity}[{finding.code}]: {printable(finding.message)}")
    return 0


def _show_request(launch: LaunchPlan, fleet: str, experiment: str) -> None:
    """What the fleet's engine would be handed, where the fleet has a form of it for people."""
    if fleet == "local":
        return
    from tuneport.api import Experiment
    from tuneport.errors import TuneportError
    from tuneport.jobs import manager

    try:
        _, shown = manager.render(launch, fleet, Experiment(experiment).path)
    except TuneportError as error:
        talk(f"note[{error.code}]: {printable(error.message)}")
        return
    if shown:
        data(f"\n{shown}")


def text(plan: LaunchPlan, digest: str) -> str:
    """The plan for a person; `<name>` stands for what the fleet fills in."""
    pools = ", ".join(f"{p.name}: {p.nodes} x {p.gpus_per_node} {p.series}" for p in plan.pools)
    where = "this environment" if plan.runtime.host else plan.runtime.image or plan.runtime.id
    variant = f" ({plan.runtime.variant})" if plan.runtime.variant else ""
    lines = [f"{plan.method} on {plan.release}", f"  runtime  {where}{variant}", f"  pools    {pools}"]
    for command in plan.commands:
        lines.append(f"  {command.role} on {command.pool}")
        lines += [f"    {_show(word)}" for word in command.argv]
        lines += [f"    env {name}={_show(value)}" for name, value in sorted(command.env.items())]
        for name, spec in sorted(command.files.items()):
            lines += [f"    file {name} ({spec.format})", *_content(spec)]
    return "\n".join([*lines, f"  digest   {digest}"])


def _show(value: Value) -> str:
    if isinstance(value, str):
        return printable(value) if value else "''"
    name = f" {value.name}" if value.name else ""
    return f"{printable(value.prefix)}<{value.ref}{name}>{printable(value.suffix)}"


def _content(spec: FileSpec) -> list[str]:
    """What stands in a file; of a script only its length, because `--json` has the text."""
    import json

    if spec.format == "text":
        return [f"      {str(spec.content).count(chr(10))} lines"]

    def shown(value: Json) -> Json:
        return _show(value) if isinstance(value, Ref) else str(value)

    items = spec.content.items() if isinstance(spec.content, dict) else [("", spec.content)]
    texts = [(key, json.dumps(value, ensure_ascii=False, default=shown)) for key, value in items]
    return [f"      {printable(f'{key}: {text}' if key else text)}" for key, text in texts]
