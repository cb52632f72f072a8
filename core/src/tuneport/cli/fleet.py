"""`tp fleet`: the places that run plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from tuneport.cli.output import data, json_option, print_json, printable, table, talk


@click.group("fleet")
def command() -> None:
    """List and check the places that run plans.

    Fleets are declared under `fleets:` in the site file and in fleets.yaml beside tuneport.yaml; every
    installed fleet plugin is a place under its own name, too.
    """


@command.command("ls")
@json_option
def list_(as_json: bool) -> None:
    """List fleets. Nothing is loaded or contacted."""
    rows = _rows()
    if as_json:
        shown = [{key: row[key] for key in ("name", "kind", "from", "problem")} for row in rows]
        print_json({"ok": True, "fleets": shown})
        return
    cells = [(row["name"], row["kind"], row["from"], row["problem"]) for row in rows]
    data(table(cells, ("fleet", "kind", "from", "")))


@command.command()
@click.argument("name", required=False)
@json_option
def check(name: str | None, as_json: bool) -> int:
    """Ask the fleet NAME, or every declared one and `local`, whether it is there and what it can do.

    Exit code 6 if one cannot run jobs.
    """
    names = [name] if name else [row["name"] for row in _rows() if row["declared"] or row["name"] == "local"]
    reports = [_ask(one) for one in names]
    good = all(report["ok"] for report in reports)
    if as_json:
        print_json({"ok": good, "fleets": reports})
        return 0 if good else 6
    data(table([_cells(report) for report in reports], ("fleet", "kind", "state", "cards", "nodes", "runs")))
    for report in reports:
        _tell(report)
    return 0 if good else 6


def _rows() -> list[dict[str, Any]]:
    """Every place: `declared` by a file, or known as the kind of an installed plugin."""
    from tuneport.errors import Invalid
    from tuneport.experiment import fleets
    from tuneport.experiment.project import find_project
    from tuneport.registry.plugins import points

    declared, findings = fleets.places(find_project())
    if findings:
        raise Invalid(f"{fleets.FILE} is broken", code="fleets-broken", findings=findings)
    installed = points("tuneport.fleets")
    rows = []
    for name, claims in installed.items():
        who = " and ".join(f"{point.dist} {point.version}" for point in claims)
        problem = "claimed by two distributions" if len(claims) > 1 else ""
        rows.append({"name": name, "kind": name, "from": who, "problem": problem, "declared": False})
    for name, place in declared.items():
        rows = [row for row in rows if row["name"] != name]
        problem = "" if place.kind in installed else f"not installed: pip install tuneport-fleet-{place.kind}"
        file, line = place.where()
        where = f"{file}:{line}"
        row = {"name": name, "kind": place.kind, "from": where, "problem": problem, "declared": True}
        rows.append(row)
    return sorted(rows, key=lambda row: row["name"])


def _ask(name: str) -> dict[str, Any]:
    from tuneport.errors import Invalid, TuneportError
    from tuneport.experiment import fleets
    from tuneport.experiment.findings import finding_to_json
    from tuneport.experiment.project import find_project

    place = fleets.find(name, find_project())
    try:
        fleet = fleets.connect(place)
        probes = list(fleet.probes()) if hasattr(fleet, "probes") else []
        can = fleet.capabilities() if all(probe.ok for probe in probes) else None
    except TuneportError as error:
        problem: dict[str, Any] = {"code": error.code, "message": error.message, "hint": error.hint}
        if isinstance(error, Invalid) and error.findings:
            problem["findings"] = [finding_to_json(finding) for finding in error.findings]
        return {"name": name, "kind": place.kind, "ok": False, "error": problem, "probes": []}
    report: dict[str, Any] = {"name": name, "kind": place.kind, "ok": can is not None}
    if can is not None:
        report |= {"accelerators": can.accelerators, "multi_node": can.multi_node}
        report["runtimes"] = list(can.runtimes)
    else:
        bad = next(probe for probe in probes if not probe.ok)
        report["error"] = {
            "code": "fleet-unusable",
            "message": f"{bad.what}: {bad.found}",
            "hint": bad.hint,
        }
    report["probes"] = [asdict(probe) for probe in probes]
    return report


def _tell(report: Mapping[str, Any]) -> None:
    for probe in report["probes"]:
        talk(printable(f"{report['name']}: {probe['what']}: {probe['found']}"))
        if not probe["ok"] and probe["hint"]:
            talk(printable(f"  hint: {probe['hint']}"))
    error = report.get("error")
    if error is None or report["probes"]:
        return
    talk(printable(f"{report['name']}: {error['message']}"))
    for finding in error.get("findings", ()):
        talk(printable(f"  {finding['file']}:{finding['line']}: {finding['message']}"))
    if error["hint"]:
        talk(printable(f"  hint: {error['hint']}"))


def _cells(report: Mapping[str, Any]) -> tuple[str, ...]:
    if not report["ok"]:
        return report["name"], report["kind"], "unavailable", "-", "-", "-"
    cards = report["accelerators"]
    nodes = "several" if report["multi_node"] else "one"
    shown = "unknown" if cards is None else str(cards)
    return report["name"], report["kind"], "answers", shown, nodes, " ".join(report["runtimes"])
