"""`make bench`: Tuneport against the incumbent, and against itself with a thousand plugins.

Writes docs/benchmarks.md. Both are run in one go, alternating, from their own environments, so that a
busy machine slows both. Takes a few minutes; heavy environments are kept in the cache folder.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import bench_jobs
import bench_setup as setup
from bench_time import Case, Times, once, race

DOCUMENT = setup.TREE / "docs" / "benchmarks.md"
# What was promised, as a fraction of the incumbent's wall time, and the growth that many plugins may cause.
BARS = {"--help": 1 / 5, "methods": 1 / 5, "validate": 1 / 10}
GROWTH = 2.0
VERL_ROUNDS = 7
COMMANDS = {"--help": ["--help"], "methods": ["methods"], "validate": ["validate", "e1"]}
AT_SCALE = {"--help": ["--help"], "methods trl/sft": ["methods", "trl/sft"], "validate": ["validate", "e1"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--out", type=Path, default=DOCUMENT)
    options = parser.parse_args()
    from tuneport.settings import cache_dir

    base = cache_dir() / "bench"
    work = base / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    ours, many = setup.tuneport(base, "today"), setup.tuneport(base, "many")
    setup.add_plugins(many)
    theirs = setup.incumbent(base)
    text = [_head(options.rounds)]
    text.append(_against_incumbent(ours, theirs, work, options.rounds))
    text.append(_against_verl(ours, theirs, work))
    text.append(_at_scale(ours, many, work, options.rounds))
    text.append(_first_command(ours, many, work))
    text.append(bench_jobs.section(ours, work, options.rounds))
    options.out.write_text("\n".join(text))
    print(options.out.read_text())


def _against_incumbent(ours: Path, theirs: Path | None, work: Path, rounds: int) -> str:
    project, environ = setup.tuneport_project(ours, work / "ours"), setup.environment(work / "ours")
    cases = [Case("python", [str(ours / "bin/python"), "-c", "pass"], project, environ)]
    cases += [
        Case(f"tp {name}", [str(ours / "bin/tp"), *argv], project, environ) for name, argv in COMMANDS.items()
    ]
    if theirs is None:
        print("no Python 3.12 here: the incumbent is left out", file=sys.stderr)
        found = race(cases, rounds)
        return (
            "## Start-up\n\nThere was no Python 3.12 for the incumbent, so only Tuneport was run.\n\n"
            + _table(found)
        )
    other, plain = setup.incumbent_project(theirs, work / "theirs"), setup.environment(work / "theirs")
    cases.append(Case("incumbent python", [str(theirs / "bin/python"), "-c", "pass"], other, plain))
    for name, argv in COMMANDS.items():
        cases.append(Case(f"incumbent {name}", [str(theirs / "bin/tp"), *argv], other, plain))
    found = race(cases, rounds)
    lines = [
        f"## Against {setup.INCUMBENT.replace('==', ' ')}\n",
        "Each validates its own new `trl/sft` experiment. Ours names a model, data and hardware, so that",
        "surface, ownership, rules and topology are all checked; the incumbent leaves its configuration",
        "to the job and says so.\n",
        _table(found),
        "| command | of the incumbent's wall median | of its wall minimum | of its CPU median | promised |",
        "|---|--:|--:|--:|---|",
    ]
    for name, bar in BARS.items():
        mine, other_times = found[f"tp {name}"].row(), found[f"incumbent {name}"].row()
        share = [a / b for a, b in zip(mine, other_times, strict=True)]
        kept = "kept" if share[0] <= bar else "**not kept**"
        lines.append(
            f"| `{name}` | 1/{1 / share[0]:.1f} | 1/{1 / share[1]:.1f} | 1/{1 / share[2]:.1f} "
            f"| at most 1/{1 / bar:.0f}: {kept} |"
        )
    return "\n".join(lines) + "\n"


def _against_verl(ours: Path, theirs: Path | None, work: Path) -> str:
    """Validating a verl experiment, beside verl itself refusing a key that it does not have."""
    method, home = "verl/grpo", work / "verl-ours"
    project = setup.tuneport_project(ours, home, method)
    words, folder, environ = setup.upstream_verl("0.9.0", work / "verl-upstream")
    cases = [
        Case("tp validate", [str(ours / "bin/tp"), "validate", "e1"], project, setup.environment(home)),
        Case("main_ppo bad=1", words, folder, environ, exit_code=1),
    ]
    bars = {"main_ppo bad=1": 1 / 50}
    if theirs is not None:
        home = work / "verl-theirs"
        argv = [str(theirs / "bin/tp"), "validate", "e1"]
        other = setup.incumbent_project(theirs, home, method)
        cases.append(Case("incumbent validate", argv, other, setup.environment(home)))
        bars["incumbent validate"] = 1 / 10
    found = race(cases, VERL_ROUNDS, warm_up=1)
    lines = [
        "## A verl experiment\n",
        f"`tp validate` of a new `{method}` experiment, and the release's own program (`python -m",
        "verl.trainer.main_ppo bad=1`, verl 0.9.0 and its imports) saying that it has no such",
        f"key. {VERL_ROUNDS} rounds after one.\n",
        _table(found),
        "| `tp validate` beside | its wall median | its wall minimum | its CPU median | promised |",
        "|---|--:|--:|--:|---|",
    ]
    for name, bar in bars.items():
        pair = zip(found["tp validate"].row(), found[name].row(), strict=True)
        share = [a / b for a, b in pair]
        kept = "kept" if max(share[0], share[2]) <= bar else "**not kept**"
        cells = " | ".join(f"1/{1 / value:.1f}" for value in share[:3])
        lines.append(f"| `{name}` | {cells} | at most 1/{1 / bar:.0f}: {kept} |")
    return "\n".join(lines) + "\n"


def _at_scale(ours: Path, many: Path, work: Path, rounds: int) -> str:
    cases = []
    for name, venv in (("today", ours), ("many", many)):
        project = work / name
        here = setup.tuneport_project(venv, project)
        for command, argv in AT_SCALE.items():
            case = Case(f"{name}: {command}", [str(venv / "bin/tp"), *argv], here, setup.environment(project))
            cases.append(case)
    listed = subprocess.run(
        [many / "bin/tp", "methods"], env=dict(cases[-1].environ), capture_output=True, text=True, check=True
    )
    count = sum(line.startswith("frame") for line in listed.stdout.splitlines())
    if count != setup.PLUGINS * setup.METHODS_EACH:
        raise SystemExit(f"the environment with many plugins lists {count} of their methods")
    found = race(cases, rounds)
    everything = [
        once(Case("all", [str(many / "bin/tp"), "methods"], work, cases[-1].environ)) for _ in range(2)
    ]
    lines = [
        f"## {setup.PLUGINS:,} plugins\n",
        f"`many` has {setup.PLUGINS:,} more distributions, each with {setup.METHODS_EACH} methods.\n",
        _table(found),
        "| command | many / today, wall median | wall minimum | CPU median | promised |",
        "|---|--:|--:|--:|---|",
    ]
    for command in AT_SCALE:
        pair = zip(found[f"many: {command}"].row(), found[f"today: {command}"].row(), strict=True)
        growth = [a / b for a, b in pair]
        kept = "kept" if growth[0] <= GROWTH else "**not kept**"
        cells = " | ".join(f"{value:.2f}" for value in growth[:3])
        lines.append(f"| `{command}` | {cells} | at most {GROWTH:.0f}: {kept} |")
    lines.append(
        f"\n`tp methods` without a framework, which prints all {count:,} of them and more, takes "
        f"{min(wall for wall, _ in everything):,.0f} ms there (wall minimum of {len(everything)}); "
        "nothing is promised for it."
    )
    return "\n".join(lines) + "\n"


def _first_command(ours: Path, many: Path, work: Path) -> str:
    """What an empty cache costs: the first command after an installation builds its indexes."""
    rows = []
    for name, venv in (("today", ours), ("many", many)):
        times = Times()
        for _ in range(3):
            for folder in (work / name).iterdir():
                if folder.name not in ("proj",):
                    shutil.rmtree(folder)
            case = Case(
                "first",
                [str(venv / "bin/tp"), "validate", "e1"],
                work / name / "proj",
                setup.environment(work / name),
            )
            wall, cpu = once(case)
            times.wall.append(wall)
            times.cpu.append(cpu)
        wall_median, wall_min, cpu_median, cpu_min = times.row()
        rows.append(f"| {name} | {wall_median:,.0f} | {wall_min:,.0f} | {cpu_median:,.0f} | {cpu_min:,.0f} |")
    head = "| set | wall median | wall minimum | CPU median | CPU minimum |\n|---|--:|--:|--:|--:|"
    return (
        "\n".join(
            ["## The first command\n", "`validate` with an empty cache, milliseconds, 3 runs.\n", head, *rows]
        )
        + "\n"
    )


def _head(rounds: int) -> str:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return f"""# Benchmarks

Written by `make bench` on {today}; every number here was measured in that run.

* Machine: {_processor()}, {os.cpu_count()} cores, {_memory()}, {platform.system()} {platform.machine()}.
* Load when it began (1, 5, 15 minutes): {load}. The machine may be shared: compare within one table only.
* Tuneport {_version()} from wheels, Python {platform.python_version()}. Every command is a whole process; all
  alternate ({rounds} rounds after 2 that do not count), output to the null device, bytecode caches on.
* Times are milliseconds: wall clock, and CPU seconds (user and system) of the process and its children.
"""


def _table(found: dict[str, Times]) -> str:
    lines = ["| command | wall median | wall minimum | CPU median | CPU minimum |", "|---|--:|--:|--:|--:|"]
    for name, times in found.items():
        lines.append(f"| `{name}` | " + " | ".join(f"{value:,.0f}" for value in times.row()) + " |")
    return "\n".join(lines) + "\n"


def _version() -> str:
    import tuneport

    return tuneport.__version__


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        "unknown processor",
    )


def _memory() -> str:
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{pages / 2**30:.0f} GiB of memory"


if __name__ == "__main__":
    main()
