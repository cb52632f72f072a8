"""`tp fleet`: the places that run plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from tuneport.cli.output import data, json_option, print_json, table, talk


@click.group("fleet")
def command() -> None:
    """List and check the places that run plans.

    Every installed fleet plugin is a place under its own name; the site file may declare further ones.
    """


@command.command("ls")
@json_option
def list_(as_json: bool) -> None:
    """List fleets. Nothing is loaded or contacted."""
    rows = _declared()
    if as_json:
        print_json({"ok": True, "fleets": rows})
        return
    cells = [(row["name"], row["kind"], row["from"], row["problem"]) for row in rows]
    data(table(cells, ("fleet", "kind", "from", "")))


@command.command()
@click.argument("name", required=False)
@json_option
def check(name: str | None, as_json: bool) -> int:
    """Ask the fleet NAME, or every fleet, what it can do. Exit code 6 if one does not answer."""
    names = [name] if name else [row["name"] for row in _declared()]
    reports = [_ask(one) for one in names]
    good = all(report["ok"] for report in reports)
    if as_json:
        print_json({"ok": good, "fleets": reports})
        return 0 if good else 6
    data(table([_cells(report) for report in reports], ("fleet", "kind", "state", "cards", "nodes", "runs")))
    for report in reports:
        if not report["ok"]:
            talk(f"{report['name']}: {report['error']['message']}")
            if report["error"]["hint"]:
                talk(f"  hint: {report['error']['hint']}")
    return 0 if good else 6


def _declared() -> list[dict[str, Any]]:
    from tuneport.experiment.site import load_site
    from tuneport.registry.plugins import points

    installed = points("tuneport.fleets")
    rows = []
    for name, claims in installed.items():
        who = " and ".join(f"{point.dist} {point.version}" for point in claims)
        problem = "claimed by two distributions" if len(claims) > 1 else ""
        rows.append({"name": name, "kind": name, "from": who, "problem": problem})
    for name, settings in load_site().get("fleets", {}).items():
        rows = [row for row in rows if row["name"] != name]
        problem = "" if settings["kind"] in installed else "no installed plugin offers this kind"
        rows.append({"name": name, "kind": settings["kind"], "from": "site file", "problem": problem})
    return sorted(rows, key=lambda row: row["name"])


def _ask(name: str) -> dict[str, Any]:
    from tuneport.errors import TuneportError
    from tuneport.experiment.site import fleet_settings
    from tuneport.registry.plugins import load_fleet

    settings = fleet_settings(name)
    kind = settings.pop("kind")
    try:
        can = load_fleet(kind, settings).capabilities()
    except TuneportError as error:
        problem = {"code": error.code, "message": error.message, "hint": error.hint}
        return {"name": name, "kind": kind, "ok": False, "error": problem}
    return {
        "name": name,
        "kind": can.kind,
        "ok": True,
        "accelerators": can.accelerators,
        "multi_node": can.multi_node,
        "runtimes": list(can.runtimes),
    }


def _cells(report: Mapping[str, Any]) -> tuple[str, ...]:
    if not report["ok"]:
        return report["name"], report["kind"], "unavailable", "-", "-", "-"
    cards = report["accelerators"]
    nodes = "several" if report["multi_node"] else "one"
    shown = "unknown" if cards is None else str(cards)
    return report["name"], report["kind"], "answers", shown, nodes, " ".join(report["runtimes"])
