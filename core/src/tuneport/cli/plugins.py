"""`tp plugins`."""

from __future__ import annotations

import click

from tuneport.cli.output import data, json_option, print_json, table, talk


@click.command("plugins")
@click.option("--no-load", is_flag=True, help="Read metadata only; do not import anything.")
@click.option("--refresh", is_flag=True, help="Forget the cached scan of installed distributions first.")
@json_option
def command(no_load: bool, refresh: bool, as_json: bool) -> None:
    """List installed plugins; one that is broken is a row that says why."""
    from tuneport.errors import Untrusted
    from tuneport.experiment.findings import finding_to_json, findings_text
    from tuneport.registry import catalog, plugins, scan, sources, vocabulary
    from tuneport.types import Finding

    if refresh:
        scan.entry_points("tuneport.manifests", refresh=True)
    rows = plugins.rows(check=not no_load)
    broken = []
    for framework in catalog.frameworks():
        try:
            broken += catalog.problems(framework)
        except Untrusted as error:  # the rows say what the site does not trust
            broken.append(Finding(error.code, "error", error.message, error.hint))
    broken += vocabulary.problems()
    found, missing = sources.sources()
    folders = [source.folder for source in found if source.owner == str(source.folder)]
    if as_json:
        listed = [row._asdict() for row in rows]
        print_json(
            {
                "ok": True,
                "plugins": listed,
                "manifests": [finding_to_json(f) for f in broken],
                "sources": missing,
                "folders": [str(folder) for folder in folders],
            }
        )
        return
    lines = []
    for row in rows:
        state = "off" if not row.enabled else ("broken: " + row.problem if row.problem else "ok")
        lines.append([row.kind, row.name, f"{row.dist} {row.version}", state])
    if lines:
        data(table(lines, ("kind", "name", "distribution", "state")))
    kept = [[row.name, row.trust, ", ".join(row.provides), row.folder] for row in rows if row.folder]
    kept += [["(folder)", "", ", ".join(sources.frameworks_in(folder)), str(folder)] for folder in folders]
    if kept:
        data("")
        data(table(kept, ("manifests", "trust", "frameworks", "folder")))
    for problem in missing:
        talk(problem)
    if broken:
        talk(findings_text(broken).rstrip())
