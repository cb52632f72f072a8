"""The lazy click group: one module per verb, imported when that verb is called.

A verb NAME lives in `tuneport.cli.NAME` (`completion_` aside) and exports `command`, a click command.
"""

from __future__ import annotations

import importlib
import keyword

import click

from tuneport.cli.main import COMMANDS, INTRO
from tuneport.text import closest


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        module = importlib.import_module(f"tuneport.cli.{name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = closest(args[0], COMMANDS)
            raise click.UsageError(
                f"no command named {args[0]!r}" + (f"; did you mean {close!r}?" if close else ""), ctx
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, help=INTRO, context_settings={"help_option_names": ["-h", "--help"]})
def tp() -> None:
    pass
