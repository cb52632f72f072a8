"""All five hooks by hand, with positional construction of every type that a plugin makes."""

from tuneport.hookspec import hookimpl
from tuneport.types import Bindings, Command, FileSpec, Finding, LaunchPlan, Origin, Ref, RuntimeNeed


class Adapter:
    @hookimpl
    def validate(self, context):
        if context.topology.pools and context.topology.primary.gpus_per_node > 4:
            yield Finding("first-many", "warning", "more than four", "ask for fewer", "--profile", "", 0, "")

    @hookimpl
    def bind_args(self, context):
        values = {}
        for name, value in context.request.params.items():
            for key in context.method.params[name].keys:
                values[key] = value
        if context.request.model is not None:
            values["model"] = context.request.model.value
        return Bindings(values, Origin("request", "", 0))

    @hookimpl
    def topology(self, context):
        return Bindings({"processes": context.topology.primary.gpus_per_node}, Origin("topology"))

    @hookimpl
    def launch(self, context):
        files = {"first.json": FileSpec("json", {"keys": dict(context.own), "out": Ref("output_dir", "/x")})}
        argv = (Ref("python"), "train.py", *(f"--{k}={v}" for k, v in sorted(context.own.items())))
        command = Command("main", argv, {"FIRST": "1", "JOB": Ref("job_id")}, files, "main")
        return LaunchPlan(
            context.method.id,
            context.release.version,
            RuntimeNeed(context.release.spec["runtime"]["id"], "", context.request.image, True),
            context.topology.pools,
            (command,),
            dict(context.config),
            {},
            dict(context.files),
            {},
            (),
            "train",
        )

    @hookimpl
    def export(self, context, checkpoint, format):  # noqa: A002
        return self.launch(context)
