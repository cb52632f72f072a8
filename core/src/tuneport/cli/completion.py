"""`tp completion`."""

from __future__ import annotations

import click

from tuneport.cli.output import data


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def command(shell: str, as_json: bool) -> None:
    """Print the completion script for SHELL, for example: eval "$(tp completion bash)"."""
    from click.shell_completion import get_completion_class

    from tuneport.cli.group import tp
    from tuneport.cli.output import print_json

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(tp, {}, "tp", "_TP_COMPLETE").source()
    if as_json:
        print_json({"ok": True, "shell": shell, "script": script})
    else:
        data(script.rstrip())
