"""Takes a launch command apart: environment, launchers, the program and its own arguments.

Nothing is run. What a launcher says about hardware is kept; what it says about anything else is skipped.
"""

from __future__ import annotations

import json
import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuneport.errors import Invalid
from tuneport.experiment.secrets import is_secret
from tuneport.shell.gaps import blank, open_
from tuneport.shell.gaps import shown as shown_text
from tuneport.text import closest
from tuneport.types import Json

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)\Z", re.S)
_PYTHON = re.compile(r"(?:.*/)?python[0-9.]*\Z")
# Launcher -> its flags that stand alone; every other one takes a value, after `=` or as the next word.
_ALONE = {
    "torchrun": "--standalone --no-python --no_python --run-path --run_path --use-env --use_env --help -h",
    "uv": "--isolated --active --no-sync --frozen --locked --no-project --offline --quiet -q --verbose -v "
    "--all-extras --no-dev --no-cache -n --no-capture-output --live-stream",
    "conda": "--no-capture-output --live-stream -v --verbose --dev --debug-wrapper-scripts",
    "python": "-u -B -E -I -O -OO -P -q -s -S -v -d -i -b -bb -x",
    "env": "-i - --ignore-environment",
    "nohup": "",
    "time": "-p",
    "exec": "-c -l",
    "nsys": "",
    "nice": "",
    "numactl": "",
    "setsid": "-c -f -w",
    "srun": "-u --unbuffered -l --label --overlap --exclusive --pty -v -Q -K",
    "stdbuf": "",
    "sudo": "-E -H -n -S",
    "timeout": "-v --verbose --foreground --preserve-status",
}
_RUNNERS = ("uv", "poetry", "pdm", "conda", "pixi")
_SHELL_ALONE = re.compile(r"[-+][a-zA-Z]+\Z")
_SHELLS = ("sh", "bash", "zsh", "dash")
_CONTAINERS = ("docker", "podman", "nerdctl", "apptainer", "singularity", "enroot")
_PYTHONS = ("ipython", "ipython3", "bpython", "jython", "cython", "cython3")  # programs of other names
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
NEAR = "command-near"
"""The code of a command that all but starts a program; in a script it is said, too."""
_NODES = ("--nnodes",)
_PROCESSES = ("--nproc-per-node", "--nproc_per_node")
_COUNTS = ("nodes", "processes", "total")
JOB = "ray job submit"
_GLUED = re.compile(r"(-[A-Za-z]?)(\d\S*)\Z")  # a short flag and its number in one word, as in -N2


@dataclass(slots=True)
class Invocation:
    """A program and its arguments. `module` is dotted (a file is named by its path, with `is_file`);
    `nodes` and `per_node` are what a launcher says, 0 where it says nothing, and `nodes` is -1 where that is
    not known; `total` counts the processes of all machines. Where a shell is started instead, `script` is the
    file it reads or `text` what it is given after `-c`. `file` and `line` say where in a script it is
    started. `hands_to` is the launcher that gets the flags which the program does not know; `settings` are
    flags of a framework's launcher that say more than hardware, with their values. `told` holds all that each
    launcher is told: launcher -> flag, without its dashes and with `_` between words -> value. `led` is true
    where words that nobody knows stand before the program: they may start it anywhere, and more than once.
    `machines` are those that a job file gives it, and the GPUs of each, 0 where it does not say, and `copies`
    how many of them start it in the same words. `beside` names a command that is no program of a framework
    and is judged by what it is told alone."""

    module: str = ""
    is_file: bool = False
    arguments: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    launchers: list[str] = field(default_factory=list)
    nodes: int = 0
    per_node: int = 0
    total: int = 0
    script: str = ""
    text: str = ""
    file: str = ""
    line: int = 0
    hands_to: str = ""
    settings: list[tuple[str, str]] = field(default_factory=list)
    told: dict[str, dict[str, str]] = field(default_factory=dict)
    led: bool = False
    machines: tuple[int, int] = (0, 0)
    copies: int = 1
    beside: str = ""


def take_apart(words: Sequence[str]) -> Invocation:
    """Read a command as a list of words, after the shell has done its part.

    Raises:
        Invalid: no Python program is started by it.
    """
    found = Invocation()
    rest = list(words)
    while rest:
        assignment = _ASSIGNMENT.match(rest[0])
        if assignment:
            found.env[assignment[1]] = assignment[2]
            rest = rest[1:]
            continue
        name = os.path.basename(rest[0])
        if blank(rest[0]):  # launcher options, or an interpreter, that nobody knows
            found.led = True
            if rest[1:2] == ["-m"]:
                return _program(found, rest[1:])
            rest = rest[1:]
            continue
        if _PYTHON.match(rest[0]):
            return _program(found, _skip("python", rest[1:], found))
        if rest[0].endswith(".py"):
            return _file(found, rest)
        if name == "torchrun":
            found.launchers.append(name)
            return _program(found, _skip("torchrun", rest[1:], found))
        if name.endswith((".sh", ".bash")):
            found.script, found.arguments = rest[0], rest[1:]
            return found
        if name in _SHELLS and len(rest) > 1:
            return _shell(found, rest[1:])
        if name == "ray" and rest[1:3] == ["job", "submit"]:
            rest = _ray(found, rest[3:])
        elif begun := _begun(rest):
            return _beside(found, begun, rest[len(begun.split()) :])
        elif name in _RUNNERS and rest[1:2] == ["run"]:
            found.launchers.append(name)
            rest = _skip("conda" if name == "conda" else "uv", rest[2:], found)
        elif name in _ALONE:
            rest = _skip(name, rest[1:], found)
            rest = rest[1:] if name == "timeout" else rest
        elif not found.launchers and "=" not in rest[0] and "/" not in rest[0] and "." in rest[0]:
            return _module(found, rest)  # a module's name alone, as `python -m` takes it
        elif name in _CONTAINERS and rest[1:2] in (["run"], ["exec"]):
            rest = _contained(found, rest)
        elif name in (programs := _programs()) and len(rest) > 1:
            return _by_word(found, name, programs[name], rest[1:])
        elif name in (declared := _declared()) and (after := _asked(declared[name], rest[1:])) is not None:
            return _launched(found, name, declared[name], after)
        else:
            _misspelt(name, rest)
            break
    if JOB in found.told:
        return submission(found)
    shown = shown_text(" ".join(words[:4]))
    raise Invalid(
        f"no program is started by {shown!r} that can be checked",
        code="command-unknown",
        hint="give the command as a shell gets it: tp check -- python -m package.module key=value",
    )


def _misspelt(name: str, rest: list[str]) -> None:
    """Refuse a word that was meant for an interpreter.

    Raises:
        Invalid: the words start a program, but for the spelling of the first.
    """
    starts = rest[1:2] == ["-m"] or any(word.endswith(".py") for word in rest[1:2])
    if starts and name not in _PYTHONS:
        close = closest(name, ("python", "python3", "torchrun"), cutoff=0.8)
        if close:
            raise Invalid(f"there is no program {name!r}", code=NEAR, hint=f"did you mean {close}?")


def _contained(found: Invocation, rest: list[str]) -> list[str]:
    """What runs inside a container: the words from the first that starts something on; the launcher's own
    flags, and the image, stand before it."""
    found.launchers.append(rest[0])
    for number, word in enumerate(rest[2:], 2):
        before = rest[number - 1]
        variable = _ASSIGNMENT.match(word.removeprefix("--env="))
        if variable and (before in ("-e", "--env") or word.startswith("--env=")):
            found.env[variable[1]] = variable[2]
        starts = _PYTHON.match(word) or os.path.basename(word) in (*_SHELLS, "torchrun", "env", *_declared())
        starts = starts or bool(_begun(rest[number:]))
        if (starts or word.endswith((".sh", ".py"))) and not before.startswith("-"):
            return rest[number:]
    raise Invalid(
        f"what {rest[0]} {rest[1]} starts is the image's own command, which is not known here",
        code="command-unknown",
        hint="give the command that runs inside the container",
    )


def _shell(found: Invocation, rest: list[str]) -> Invocation:
    """What follows `bash`."""
    while rest and _SHELL_ALONE.match(rest[0]):
        if "c" in rest[0] and rest[0][0] == "-" and len(rest) > 1:
            found.text, found.arguments = rest[1], rest[2:]
            return found
        rest = rest[2:] if rest[0].endswith(("o", "O")) else rest[1:]
    if not rest or rest[0].startswith("-"):
        raise Invalid("the shell is given no script", code="command-unknown", hint="bash script.sh …")
    found.script, found.arguments = rest[0], rest[1:]
    return found


def _program(found: Invocation, rest: list[str]) -> Invocation:
    """What follows an interpreter or torchrun."""
    if rest[:1] == ["-m"]:
        if rest[1:2] in (["torch.distributed.run"], ["torch.distributed.launch"]):
            found.launchers.append("torchrun")
            return _program(found, _skip("torchrun", rest[2:], found))
        for name, declared in _declared().items():
            if rest[1:2] == [declared.get("module")]:
                return _launched(found, name, declared, rest[2:])
        return _module(found, rest[1:])
    if rest and rest[0] in ("--module",):
        return _module(found, rest[1:])
    return _file(found, rest)


def _programs() -> Mapping[str, Mapping[str, Json]]:
    """The commands of frameworks that start an entry point by a word."""
    from tuneport.registry import catalog  # late: most commands need none of them

    return catalog.programs()


def _by_word(found: Invocation, name: str, program: Mapping[str, Json], rest: list[str]) -> Invocation:
    """What a framework's own command starts: `rest` begins with the word for it."""
    found.launchers.append(name)
    found.hands_to = program.get("launcher", "")
    if "alone" in program and (not rest or rest[0].startswith("-") or blank(rest[0])):
        found.module, found.arguments = program["alone"], rest
        return found
    word = rest[0] if rest else ""
    found.module = program["modules"].get(word, f"{name} {word}")
    found.arguments = rest[1:]
    return found


def count(found: Invocation, flag: str, value: str, declared: Mapping[str, Json]) -> None:
    """Take in what one flag of a launcher says: machines and processes, or a setting."""
    counting = {name: declared.get(name, ()) for name in _COUNTS}
    _counted(found, flag, value, counting)
    _told(found, found.hands_to, flag, value)
    if not any(flag in flags for flags in counting.values()):
        found.settings.append(_setting(flag, value))


def _told(found: Invocation, launcher: str, flag: str, value: str) -> None:
    shown = _setting(flag, value)[1]
    found.told.setdefault(launcher, {})[flag.lstrip("-").replace("-", "_")] = shown


def _setting(flag: str, value: str) -> tuple[str, str]:
    return flag, "…" if is_secret(flag.lstrip("-").replace("-", "_")) else value


def _declared() -> Mapping[str, Mapping[str, Json]]:
    """The launchers that frameworks bring along."""
    from tuneport.registry import catalog  # late: most commands need none of them

    return catalog.launchers()


def _asked(declared: Mapping[str, Json], rest: list[str]) -> list[str] | None:
    """What follows a launcher's subcommand, where it has one; None where another one is asked for."""
    subcommand = declared.get("subcommand")
    if subcommand is None:
        return rest
    return rest[1:] if rest[:1] == [subcommand] else None


def _launched(found: Invocation, name: str, declared: Mapping[str, Json], rest: list[str]) -> Invocation:
    """What follows a framework's own launcher: its flags, then a file, or with --module a module."""
    found.launchers.append(name)
    rest, module = _skip(name, rest, found, declared), False
    if "scripts" in declared:
        return _submitted(found, name, declared["scripts"], rest)
    while rest[:1] in (["--module"], ["-m"]):
        rest, module = _skip(name, rest[1:], found, declared), True
    return _module(found, rest) if module else _file(found, rest)


def _submitted(found: Invocation, name: str, scripts: Mapping[str, str], rest: list[str]) -> Invocation:
    """What follows a launcher of scripts: one that is known, with a command in a variable, or any other."""
    script = rest[0] if rest else ""
    variable = scripts.get(os.path.basename(script))
    if variable:
        found.text, found.arguments = f'eval "${variable}"', rest[1:]
    elif script.endswith((".sh", ".bash")):
        found.script, found.arguments = script, rest[1:]
    else:
        raise Invalid(
            f"{name} is given no script that can be read here",
            code="command-unknown",
            hint="give the command that the script starts",
        )
    return found


def _module(found: Invocation, rest: list[str]) -> Invocation:
    if not rest:
        raise Invalid("the command names no module after -m", code="command-unknown")
    for name, program in _programs().items():
        if program.get("module") == rest[0]:
            return _by_word(found, name, program, rest[1:])
    for name, declared in _besides().items():
        if declared.get("module") == rest[0]:
            return _beside(found, name, rest[1:])
    found.module, found.arguments = rest[0], rest[1:]
    return found


def _besides() -> Mapping[str, Mapping[str, Json]]:
    """The commands that people write beside programs of frameworks."""
    from tuneport.registry import catalog  # late: most commands need none of them

    return catalog.beside()


def _begun(rest: Sequence[str]) -> str:
    """The command beside programs that some words begin with, empty where they begin with none."""
    words = [os.path.basename(rest[0]), *rest[1:4]]
    return next((name for name in _besides() if words[: len(name.split())] == name.split()), "")


def _beside(found: Invocation, name: str, rest: list[str]) -> Invocation:
    """Such a command and what it is told; words that are no flags may stand anywhere."""
    declared = _besides()[name]
    short, alone, left = declared.get("short", {}), declared.get("alone", ()), list(rest)
    told = found.told.setdefault(name, {})
    while left:
        word = left.pop(0)
        flag, equal, value = word.partition("=")
        if not flag.startswith("-") or flag.strip("-") == "":
            continue
        if glued := _GLUED.match(word):
            flag, equal, value = glued[1], "=", glued[2]
        if flag == "-":  # a negative number
            continue
        flag = short.get(flag, flag.partition(".")[0])
        if not equal and left and not left[0].startswith("-") and flag not in alone:
            value = left.pop(0)
        _counted(found, flag, value, declared)
        _told(found, name, flag, value)
    for flag, value in declared.get("defaults", {}).items():
        told.setdefault(flag, value)
    if any(word.partition("=")[0] in declared.get("others", ()) for word in rest):
        del found.told[name]
    found.module = found.beside = name
    found.arguments = rest
    return found


def submission(found: Invocation) -> Invocation:
    """What submits a job, by itself: for one that starts no program which is judged in its place."""
    return replace(found, module=JOB, beside=JOB, script="", text="", arguments=[], is_file=False)


def _file(found: Invocation, rest: list[str]) -> Invocation:
    if rest and _DOTTED.fullmatch(rest[0]) and not rest[0].endswith(".py") and not os.path.exists(rest[0]):
        raise Invalid(
            f"Python would look for a file named {rest[0]!r}", code=NEAR, hint=f"did you mean -m {rest[0]}?"
        )
    if not rest or not rest[0].endswith(".py"):
        raise Invalid(
            "the command starts no Python module or file",
            code="command-unknown",
            hint="python -m package.module …",
        )
    found.module, found.is_file, found.arguments = rest[0], True, rest[1:]
    return found


def _skip(
    launcher: str, rest: list[str], found: Invocation, declared: Mapping[str, Json] | None = None
) -> list[str]:
    """What follows a launcher's own flags."""
    alone = _ALONE[launcher].split() if declared is None else declared.get("alone", ())
    counting = {"nodes": _NODES, "processes": _PROCESSES} if declared is None else declared
    found.told.setdefault(launcher, {})
    while rest and (rest[0].startswith("-") or blank(rest[0])) and rest[0] not in ("-m", "--module"):
        if blank(rest[0]) and rest[1:2] and (rest[1].startswith("-") or rest[1].endswith(".py")):
            rest = rest[1:]
            continue
        if blank(rest[0]):
            break
        flag, equal, value = rest[0].partition("=")
        if flag == "--":
            return rest[1:]
        if glued := _GLUED.match(rest[0]):
            rest = rest[1:]
            _told(found, launcher, glued[1], glued[2])
            continue
        if flag in alone or (len(flag) == 2 and launcher == "python" and flag not in ("-W", "-X", "-c")):
            rest = rest[1:]
            _told(found, launcher, flag, "")
            if declared is not None:
                found.settings.append((flag, ""))
            continue
        if not equal:
            value, rest = (rest[1] if len(rest) > 1 else ""), rest[1:]
        rest = rest[1:]
        _counted(found, flag, value, counting)
        _told(found, launcher, flag, value)
        if declared is not None and not any(flag in counting.get(name, ()) for name in _COUNTS):
            found.settings.append(_setting(flag, value))
    return rest


def _counted(found: Invocation, flag: str, value: str, counting: Mapping[str, Json]) -> None:
    number = re.match(r"(?:\d+:)?(\d{1,9})\Z", value)
    for name, field_ in (("nodes", "nodes"), ("processes", "per_node"), ("total", "total")):
        if flag not in counting.get(name, ()):
            continue
        if open_(value):
            found.nodes = -1
        elif number:
            setattr(found, field_, int(number[1]))
    if found.total and found.nodes >= 0:
        found.per_node = max(found.total // max(found.nodes, 1), 1)


def _ray(found: Invocation, rest: list[str]) -> list[str]:
    found.launchers.append("ray-job")
    found.told.setdefault(JOB, {})
    while rest and rest[0] != "--" and rest[0].startswith("-"):
        flag, equal, value = rest[0].partition("=")
        alone = flag in ("--no-wait", "--verbose", "-v")
        if not equal and not alone:
            value, rest = (rest[1] if len(rest) > 1 else ""), rest[1:]
        rest = rest[1:]
        _told(found, JOB, flag, value)
        if flag == "--runtime-env-json":
            try:
                variables = json.loads(value).get("env_vars", {})
                found.env |= {str(name): str(item) for name, item in variables.items()}
            except (ValueError, AttributeError):
                continue
    return rest[1:] if rest[:1] == ["--"] else rest
