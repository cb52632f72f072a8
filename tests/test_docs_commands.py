"""Every command that the pages show is run, and prints what the page says it prints.

How a page is read:

- a `console` block holds commands behind `$ ` and, below each, what it prints (both streams, as on a
  terminal); `…` stands for any text in a line, a line of nothing but `…` for any lines. A command that
  shows no output may print anything. A command that fails is followed by `$ echo $?`.
- an `sh` block holds commands alone.
- a block whose info string has `file=NAME` is written to that file before the commands below it run.
- a `python` block without `file=` is run as a program of its own; `print(…)  # text` prints the text.
- blocks marked `engine` need a runtime with a framework in it, or train: see HEAVY.

All blocks of a page run in order, in one folder and one shell session with a HOME of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        *sorted((ROOT / "docs").glob("**/*.md")),
    )
]

# What pages show and this file does not run: the file that does, and what in its text shows it. Blocks
# marked `engine` are run by `make engine`, where `test_whole_page` below runs whole pages.
HEAVY = {
    "make demo": (".ci/run", "\n  make demo\n"),
    "make test": (".ci/run", "\nmake test\n"),
    "make engine": ("Makefile", "$(MAKE) --jobs 2 --output-sync=target engine-fleets engine-frameworks"),
    "make bench": (".ci/long", "\nmake bench\n"),
    "source .venv/bin/activate": ("Makefile", "\nVENV   := .venv\n"),
}
ENGINE = {
    "tp runtime install": ("Makefile", "engine and not upstream"),
}


@dataclass
class Step:
    """One command of a page, or one file to write (`name`). `expected` is None where nothing is shown."""

    line: int
    text: str
    name: str = ""
    expected: list[str] | None = None
    engine: bool = False
    python: bool = False


@dataclass
class Result:
    code: int = 0
    output: list[str] = field(default_factory=list)


def blocks(page: str) -> Iterator[tuple[int, str, list[str]]]:
    """(line of the first content line, info string, lines) of every fenced block."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    number = 0
    while number < len(lines):
        opening = re.match(r"( *)(`{3,})(.*)$", lines[number])
        number += 1
        if opening is None:
            continue
        indent, fence, info = len(opening[1]), opening[2], opening[3].strip()
        first, content = number + 1, []
        while number < len(lines) and lines[number].strip() != fence:
            content.append(lines[number][indent:] if lines[number][:indent].isspace() else lines[number])
            number += 1
        assert number < len(lines), f"{page}:{first}: the block is not closed"
        number += 1
        yield first, info, content


def steps(page: str) -> list[Step]:
    """What a page asks its reader to do, in order."""
    found: list[Step] = []
    for line, info, content in blocks(page):
        words = info.split()
        kind = words[0] if words else ""
        engine = "engine" in words
        name = next((word.removeprefix("file=") for word in words if word.startswith("file=")), "")
        if name:
            found.append(Step(line, "\n".join(content) + "\n", name, engine=engine))
        elif kind == "sh":
            found += [Step(at, text, engine=engine) for at, text in _commands(line, content)]
        elif kind == "console":
            found += _session(page, line, content, engine)
        elif kind == "python":
            prints = [match[1] for text in content if (match := re.search(r"print\(.*\) +# (.+)$", text))]
            expected = [part for text in prints for part in ("…", text)] + ["…"] if prints else None
            found.append(Step(line, "\n".join(content) + "\n", expected=expected, engine=engine, python=True))
    return found


def _commands(line: int, content: list[str]) -> Iterator[tuple[int, str]]:
    """The commands of an `sh` block; a backslash continues a line."""
    pending: list[str] = []
    for number, text in enumerate(content):
        if not pending and (not text.strip() or text.lstrip().startswith("#")):
            continue
        pending.append(text)
        if not text.endswith("\\"):
            yield line + number - len(pending) + 1, "\n".join(pending)
            pending = []


def _session(page: str, line: int, content: list[str], engine: bool) -> list[Step]:
    found: list[Step] = []
    for number, text in enumerate(content):
        before = found[-1] if found else None
        if text.startswith("$ "):
            found.append(Step(line + number, text.removeprefix("$ "), engine=engine))
        elif before is not None and before.expected is None and _goes_on(before.text, text):
            before.text += "\n" + (text[2:] if text.startswith("> ") else text.removeprefix(">"))
        else:
            assert before is not None, f"{page}:{line}: a console block starts with a command"
            before.expected = [*(before.expected or []), text]
    return found


def _goes_on(command: str, text: str) -> bool:
    """Whether a line belongs to the command before it: after a backslash, or in a here-document."""
    return command.endswith("\\") or (text.startswith(">") and "<<" in command)


def heavy(command: str) -> bool:
    """Whether a command is run elsewhere; what follows it on its line may only be a comment."""
    return any(re.fullmatch(re.escape(start) + r"( +#.*)?", command) for start in HEAVY)


def run_page(page: str, folder: Path, *, whole: bool) -> None:
    """Run a page's steps and compare; `whole` includes the blocks marked `engine`."""
    todo = [
        step
        for step in steps(page)
        if (whole or not step.engine) and (step.name or step.python or not heavy(step.text))
    ]
    if not todo:
        return
    work = folder / "work"
    work.mkdir()
    env = environment(page, folder, whole=whole)
    script = folder / "page.sh"
    script.write_text("".join(_scripted(number, step, folder) for number, step in enumerate(todo)), "utf-8")
    text = _bash(script, work, env, limit=1800 if whole else 120)
    results = _results(text, len(todo))
    problems = []
    for number, step in enumerate(todo):
        after = todo[number + 1].text if number + 1 < len(todo) else ""
        result = results.get(number)
        if result is None:
            problems.append(f"{page}:{step.line}: not reached: {step.text}")
        elif result.code and after != "echo $?":
            shown = "\n".join(result.output)
            problems.append(f"{page}:{step.line}: exit code {result.code}: {step.text}\n{shown}")
        elif whole and not step.engine:
            continue  # compared without a runtime, where there is none to list
        elif step.expected is not None and not matches(step.expected, result.output):
            wanted, got = "\n".join(step.expected), "\n".join(result.output)
            problems.append(f"{page}:{step.line}: {step.text}\n--- the page\n{wanted}\n--- printed\n{got}")
    # What follows a failure mostly follows from it.
    assert not problems, f"{len(problems)} problems, the first of them:\n" + "\n\n".join(problems[:3])


def environment(page: str, folder: Path, *, whole: bool) -> dict[str, str]:
    """A newcomer's environment: their own HOME, no settings, and this installation's commands on PATH.
    A `whole` page has the caller's cache folder, where the runtimes are, and may download what is missing."""
    kept = ("LANG", "LC_ALL", "TMPDIR")
    dropped = ("TUNEPORT_", "TUNEPLANE_", "FORGE_", "XDG_", "PYTHON", "VIRTUAL_ENV")
    env = {
        name: value
        for name, value in os.environ.items()
        if name in kept or (whole and not name.startswith(dropped))
    }
    home = folder / "home"
    home.mkdir()
    scripts = Path(sys.executable).parent
    env |= {"HOME": str(home), "PATH": f"{scripts}:/usr/local/bin:/usr/bin:/bin", "PYTHONUNBUFFERED": "1"}
    env |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "USER": "you", "COLUMNS": "110"}
    if whole:
        from tuneport.settings import cache_dir

        env["TUNEPORT_CACHE_DIR"] = str(cache_dir())
        pip = Path.home() / ".config/pip/pip.conf"
        if pip.is_file():
            env.setdefault("PIP_CONFIG_FILE", str(pip))
    if page == "CONTRIBUTING.md":
        env |= _clone(folder)
    if page in ("docs/plugins.md", "CONTRIBUTING.md"):
        # The page's own packages are really installed, beside the environment and from this machine alone.
        site = folder / "site"
        site.mkdir()
        env |= {"PIP_TARGET": str(site), "PIP_NO_DEPS": "1"}
        if not whole:
            env["PIP_NO_INDEX"] = "1"
        env["PYTHONPATH"] = ":".join(filter(None, (str(site), env.get("PYTHONPATH", ""))))
        env |= {"PIP_NO_BUILD_ISOLATION": "0"}  # pip reads this one backwards: it means without isolation
    return env


def _clone(folder: Path) -> dict[str, str]:
    """A copy of the repository's own files as the working folder, its packages before the installed ones."""
    (folder / "work").rmdir()
    ignored = (".venv", ".git", ".ci", "__pycache__", "*_cache", ".hypothesis", "demo-run", "dist", "build")
    shutil.copytree(ROOT, folder / "work", ignore=shutil.ignore_patterns(*ignored), symlinks=True)
    (folder / "work" / ".venv").symlink_to(ROOT / ".venv" if (ROOT / ".venv").exists() else sys.prefix)
    packages = [str(folder / "work" / name) for name in ("manifests", "schemas", "core/src")]
    return {"PYTHONPATH": ":".join(packages), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def _scripted(number: int, step: Step, folder: Path) -> str:
    """The step as shell text between marks, keeping `$?` of the command before it."""
    if step.name:
        source = folder / f"file-{number}"
        source.write_text(step.text, "utf-8")
        target = f'"{step.name}"'
        command = f'mkdir -p "$(dirname {target})" && cp "{source}" {target}'
    elif step.python:
        source = folder / f"block-{number}.py"
        source.write_text(step.text, "utf-8")
        command = f'python "{source}"'
    else:
        command = step.text
    mark = f"printf '\\n\\001step {number}\\001\\n'; (exit ${{docs_code:-0}})\n"
    return f"{mark}{command}\ndocs_code=$?; printf '\\n\\001code {number} %s\\001\\n' $docs_code\n"


def _bash(script: Path, work: Path, env: dict[str, str], limit: int) -> str:
    with script.with_suffix(".out").open("w+b") as output:
        process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", str(script)],
            cwd=work,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return output.read().decode("utf-8", "replace")


def _results(text: str, count: int) -> dict[int, Result]:
    found = {}
    for number in range(count):
        match = re.search(rf"\n\x01step {number}\x01\n(.*?)\n\x01code {number} (\d+)\x01\n", text, re.S)
        if match:
            lines = [line.rstrip() for line in match[1].splitlines()]
            while lines and not lines[-1]:
                lines.pop()
            found[number] = Result(int(match[2]), lines)
    return found


def matches(expected: list[str], output: list[str]) -> bool:
    """Whether output is what a page shows."""
    parts = []
    for line in expected:
        if line.strip() == "…":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(".*?".join(re.escape(part) for part in line.rstrip().split("…")) + r" *\n")
    while parts and parts[-1] == r" *\n":
        parts.pop()
    return re.fullmatch("".join(parts), "".join(line + "\n" for line in output)) is not None


@pytest.mark.sweep
@pytest.mark.parametrize("page", PAGES)
def test_commands_of_page(page: str, tmp_path: Path) -> None:
    run_page(page, tmp_path, whole=False)


@pytest.mark.engine
@pytest.mark.parametrize("page", [page for page in PAGES if any(step.engine for step in steps(page))])
def test_whole_page(page: str, tmp_path: Path) -> None:
    run_page(page, tmp_path, whole=True)


def test_heavy_commands_are_run_elsewhere() -> None:
    shown = [step.text for page in PAGES for step in steps(page) if not step.name and not step.python]
    for start, (stage, proof) in {**HEAVY, **ENGINE}.items():
        assert any(start in text for text in shown), f"no page shows {start}"
        assert proof in (ROOT / stage).read_text("utf-8"), f"{stage} does not run {start}"
    halves = [line.strip() for line in (ROOT / ".ci/run").read_text("utf-8").splitlines()]
    assert "make engine-fleets" in halves and any(
        line.startswith("make engine-frameworks") for line in halves
    )


def test_what_needs_a_runtime_is_marked() -> None:
    """An engine block is about a runtime that its page installs, or a release that it fetches."""
    for page in PAGES:
        marked = [step for step in steps(page) if step.engine]
        assert not marked or any(
            word in step.text for step in marked for word in ("tp runtime install", "tp upstream")
        ), page
        for step in steps(page):
            light = not step.engine and not step.name and not step.python
            assert not (light and any(start in step.text for start in ENGINE)), f"{page}:{step.line}"


@pytest.mark.parametrize(
    ("expected", "output", "same"),
    [
        (["a … c"], ["a b c"], True),
        (["a … c"], ["a b", "c"], False),
        (["a", "…", "c"], ["a", "b", "b", "c"], True),
        (["a"], ["a", "b"], False),
        (["a.c"], ["abc"], False),
    ],
)
def test_comparison(expected: list[str], output: list[str], same: bool) -> None:
    assert matches(expected, output) is same
