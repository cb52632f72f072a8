"""`tp check`."""

from __future__ import annotations

import click

from tuneport.cli.output import data, json_option, print_json
from tuneport.errors import UsageError


@click.command("check", context_settings={"ignore_unknown_options": False})
@click.option("--framework", metavar="NAME", default="", help="Look for the program in this framework only.")
@click.option("--framework-version", metavar="V", default="", help="The release (default: the default one).")
@click.option("--method", metavar="ID", default="", help="Judge it as this method.")
@click.option("--nodes", type=click.IntRange(1), default=None, help="Machines that the command runs on.")
@click.option("--gpus-per-node", type=click.IntRange(1), default=None, help="Accelerators of each.")
@click.option("--facts", metavar="FILE", default="", help="What is known of data, model and hardware.")
@click.option("--env", "variables", metavar="NAME=VALUE", multiple=True, help="A variable the command sees.")
@json_option
@click.argument("words", nargs=-1, required=True, metavar="-- CMD...", type=click.UNPROCESSED)
def command(
    framework: str,
    framework_version: str,
    method: str,
    nodes: int | None,
    gpus_per_node: int | None,
    facts: str,
    variables: tuple[str, ...],
    words: tuple[str, ...],
    as_json: bool,
) -> int:
    """Say what is wrong with an existing command line of a framework, without running it.

    Give the command as you would type it: tp check -- python -m package.module key=value. Exit code 3 when
    any finding is an error.
    """
    from tuneport import workflow
    from tuneport.experiment.findings import findings_text

    env = {}
    for variable in variables:
        name, equal, value = variable.partition("=")
        if not equal or not name:
            raise UsageError(f"--env {variable!r} is not NAME=VALUE", code="usage")
        env[name] = value
    report = workflow.check(
        words,
        framework=framework,
        version=framework_version,
        method=method,
        nodes=nodes or 0,
        gpus_per_node=gpus_per_node or 0,
        facts=facts,
        env=env,
    )
    if as_json:
        print_json(report.to_json())
        return 0 if report.ok else 3
    text = findings_text(report.findings)
    if text:
        data(text.rstrip())
    what = report.facts["method"] or report.facts["entry"]
    counts = [
        (sum(f.severity == kind for f in report.findings), kind) for kind in ("error", "warning", "note")
    ]
    said = ", ".join(f"{number} {kind}{'s' * (number != 1)}" for number, kind in counts if number)
    data(f"{what} on {report.facts['release']}: {said or 'nothing to say against it'}")
    return 0 if report.ok else 3
