from dataclasses import replace

from tuneport.hookspec import hookimpl
from tuneport.types import Finding


class Policy:
    @hookimpl
    def validate(self, context):
        if not context.request.image:
            yield Finding("first-image", "note", "no image was named")

    @hookimpl(wrapper=True)
    def launch(self, context):
        plan = yield
        commands = tuple(replace(command, env={**command.env, "SITE": "first"}) for command in plan.commands)
        return replace(plan, commands=commands, labels={**plan.labels, "a": "b"}, mounts=(*plan.mounts, "/d"))
