"""`tp port`."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from tuneport.cli.options import experiment_argument, method_ids, request_flags
from tuneport.cli.output import data, json_option, print_json, printable, table, talk


@click.command("port")
@experiment_argument
@click.option("--method", metavar="ID", required=True, shell_complete=method_ids, help="What it becomes.")
@click.option("--as", "name", metavar="NAME", required=True, help="The experiment to create.")
@request_flags
@json_option
def command(experiment: str, method: str, name: str, flags: Any, as_json: bool) -> int:
    """Carry an experiment to another method or framework by what its parameters mean.

    Prints what became of each parameter, and how much one training step takes on both sides.
    --framework-version is the release of the new method; the experiment's own stands in its lock. The
    experiment itself stays as it is, and nothing is overwritten. Exit code 3 where the new one was written
    and does not validate.
    """
    from tuneport import workflow
    from tuneport.experiment.findings import finding_to_json, findings_text

    version, flags = flags.framework_version, flags._replace(framework_version="")
    made = workflow.port(experiment, flags, method, name, version)
    if as_json:
        document: dict[str, Any] = {"ok": made.ok, "experiment": name, "path": str(made.path)}
        document |= {"from": made.source, "method": made.method, "release": made.release}
        document["parameters"] = [
            {
                "name": row.name,
                "from": row.value if row.word is None else row.word,
                "to": made.after.get(row.name),
                "how": row.how,
                "why": row.why,
            }
            for row in made.rows
        ]
        document |= {
            "only": dict(made.only),
            "step": {"from": dict(made.steps[0]), "to": dict(made.steps[1])},
        }
        document["left"] = [{"name": name, "why": why} for name, why in made.left]
        document["findings"] = [finding_to_json(finding) for finding in made.findings]
        print_json(document)
        return 0 if made.ok else 3
    rows = [
        [
            row.name,
            _show(row.value if row.word is None else row.word),
            _show(made.after.get(row.name)),
            row.why if row.how != "kept" else "",
        ]
        for row in made.rows
    ]
    for word, value in made.only.items():
        why = "leaves it open" if word in made.unsaid else "has no such parameter"
        rows.append([word, "", _show(value), f"{made.source} {why}"])
    data(table([list(map(printable, row)) for row in rows], ("parameter", made.source, made.method, "")))
    steps = [
        [word, _show(made.steps[0].get(word)), _show(made.steps[1].get(word))] for word in _words(made.steps)
    ]
    data("\n" + table(steps, ("one step takes", made.source, made.method)))
    for left, why in made.left:
        talk(printable(f"not carried: {left} ({why})"))
    text = findings_text(made.findings)
    if text:
        talk(text.rstrip())
    talk(f"created {os.path.relpath(made.path)} for {made.method} on {made.release}")
    return 0 if made.ok else 3


def _words(steps: tuple[Any, Any]) -> list[str]:
    return list(dict.fromkeys((*steps[0], *steps[1])))


def _show(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
