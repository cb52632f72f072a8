"""What bash's own commands do to the state of a script, as far as it shows in the commands it starts."""

from __future__ import annotations

import errno
import os
import re
import select
import stat
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tuneport.shell import complaints, conditions
from tuneport.shell.gaps import blank, fog, open_
from tuneport.shell.limits import MAX_BYTES

if TYPE_CHECKING:
    from tuneport.shell.run import Runner

_PIPE = re.compile(r"/(?:dev|proc/self)/fd/[0-9]+")
PIPE_SECONDS = 3.0
HARMLESS = frozenset({"mkdir", "sleep", "touch", "chmod", "date", "clear"})
"""Programs that are taken to succeed."""


def _print(run: Runner, text: str) -> None:
    if run.out is not None:
        run.out.append(text)


def _echo(run: Runner, words: list[str], _heredoc: str) -> bool | None:
    ending, flags = "\n", True
    while words and flags and re.fullmatch(r"-[neE]+", words[0]):
        if "n" in words[0]:
            ending = ""
        if "e" in words[0]:
            _print(run, run.state.gap("echo -e is not followed here"))
            return True
        words = words[1:]
    _print(run, " ".join(words) + ending)
    return True


def _printf(run: Runner, words: list[str], _heredoc: str) -> bool | None:
    if words[:1] == ["-v"] and len(words) > 1:
        listener, run.out = run.out, []
        try:
            status = _printf(run, words[2:], _heredoc)
            run.assign_text(words[1], "".join(run.out))
        finally:
            run.out = listener
        return status
    form, *values = words or [""]
    parts = re.split(r"(%%|%s|%d|\\n|\\t)", form)
    holes = sum(part in ("%s", "%d") for part in parts)
    left = "".join(parts[::2])
    if open_(form) or "%" in left or "\\" in left or len(values) > max(holes, 0) or holes > len(values) + 8:
        known = not open_(form) and form in ("%s\\n", "%s") and values
        text = "".join(f"{value}" + form[2:].replace("\\n", "\n") for value in values)
        _print(run, text if known else run.state.gap("this printf is not followed here"))
        return True
    rest = iter(values)
    plain = {"%%": "%", "\\n": "\n", "\\t": "\t"}
    _print(run, "".join(plain.get(p) or (next(rest, "") if p in ("%s", "%d") else p) for p in parts))
    return True


def _cat(run: Runner, words: list[str], heredoc: str) -> bool | None:
    _print(run, heredoc if heredoc and not words else run.state.gap("what a file holds is not read"))
    return None if words else True


def _pwd(run: Runner, _words: list[str], _heredoc: str) -> bool | None:
    _print(run, run.state.cwd + "\n")
    return True


def _path(change: Callable[[str], str]) -> Callable[[Runner, list[str], str], bool | None]:
    def builtin(run: Runner, words: list[str], _heredoc: str) -> bool | None:
        words = [word for word in words if word not in ("--", "-m", "-f", "-e", "-P", "-s")]
        if not words or len(words) > 2:
            _print(run, run.state.gap("its options are not followed here"))
            return None
        if open_(words[0]):
            _print(run, fog(words[0]) + "\n")
            return True
        text = change(words[0])
        if len(words) == 2 and text != words[1]:
            text = text.removesuffix(words[1])
        _print(run, text + "\n")
        return True

    return builtin


def _dirname(path: str) -> str:
    return os.path.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else ".")


def _basename(path: str) -> str:
    return os.path.basename(path.rstrip("/")) or path[:1]


def _realpath(run: Runner, words: list[str], heredoc: str) -> bool | None:
    return _path(lambda path: os.path.normpath(os.path.join(run.state.cwd, path)))(run, words, heredoc)


def _cd(run: Runner, words: list[str], _heredoc: str) -> bool | None:
    words = [word for word in words if word not in ("--", "-P", "-L")]
    place = words[0] if words else run.state.home
    if place == "-" or open_(place) or open_(run.state.cwd):
        run.state.cwd = fog(place) if open_(place) else run.state.gap("the folder is not known")
        return None
    run.state.cwd = os.path.normpath(os.path.join(run.state.cwd, place))
    return True if os.path.isdir(run.state.cwd) else None


def _set(run: Runner, words: list[str], _heredoc: str) -> bool | None:
    rest = list(words)
    while rest and not blank(rest[0]) and rest[0][:1] in ("-", "+") and rest[0] not in ("-", "--"):
        options = rest.pop(0)
        if options.startswith("--"):
            return False
        # Each o, wherever it stands among others, takes the next word as the name of an option.
        for _ in range(options.count("o")):
            if rest and rest[0][:1] not in ("-", "+"):
                rest.pop(0)
        if "a" in options:
            run.state.exported.add("-a") if options[0] == "-" else run.state.exported.discard("-a")
    marked = rest[0] in ("-", "--") if rest else False
    if rest != ["-"] and rest:
        run.state.params = rest[1:] if marked else rest
    return True


def _shift(run: Runner, words: list[str], _heredoc: str) -> bool | None:
    params, count = run.state.params, words[0] if words else "1"
    if not count.isdigit() or any(blank(param) for param in params[: int(count[:6])]):
        run.state.params = [run.state.gap("how far shift goes is not known")]
        return None
    if int(count[:6]) > len(params):
        return False
    run.state.params = params[int(count[:6]) :]
    return True


def _source(run: Runner, words: list[str], _heredoc: str) -> bool | None:
    from tuneport.shell.run import Return

    if not words:
        return None
    path = beside(words[0], run.state.cwd, run.state.file, elsewhere=run.state.common.elsewhere)
    if path is None:
        run.record.missing.append((words[0], run.state.file, run.state.line))
        return None
    state = run.state
    try:
        source = read_bytes(path)
    except OSError:
        run.record.missing.append((words[0], state.file, state.line))
        return None
    before = state.file, state.line, state.params
    state.file, state.line = path, 0
    state.params = words[1:] or state.params
    try:
        run.record.texts.append(source.decode("utf-8", "replace"))
        run.record.findings += complaints.of_text(source, path)
        return run.script(source)
    except Return:
        return None
    finally:
        state.file, state.line, state.params = before


def beside(name: str, cwd: str, script: str, *, pipes: bool = False, elsewhere: bool = False) -> str | None:
    """The file that a script means, seen from its working directory or from where it lies. With `pipes` it
    may be one of this process's, as bash's `<(…)` gives it; `elsewhere`, none of this machine's own."""
    if open_(name) or (elsewhere and os.path.isabs(name)):
        return None
    for folder in (cwd, os.path.dirname(script)):
        if not open_(folder):
            path = os.path.normpath(os.path.join(folder, name))
            if os.path.isfile(path) or (pipes and _PIPE.fullmatch(path)):
                return path
    return None


def read_bytes(path: str) -> bytes:
    """The start of a file: one byte more than may be read, where there is more."""
    if _PIPE.fullmatch(path) and not os.path.isfile(path):
        return _from_pipe(path)
    with open(path, "rb") as stream:
        return stream.read(MAX_BYTES + 1)


def _from_pipe(path: str) -> bytes:
    """What comes out of a pipe, such as that of bash's `<(…)`, as far as it may be read.

    Raises:
        OSError: it is no pipe, or has not ended after some seconds.
    """
    if not stat.S_ISFIFO(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    found, until = b"", time.monotonic() + PIPE_SECONDS
    try:
        while len(found) <= MAX_BYTES:
            if not select.select([number], [], [], max(until - time.monotonic(), 0))[0]:
                raise OSError(errno.EAGAIN, "the pipe does not end")
            part = os.read(number, MAX_BYTES + 1 - len(found))
            if not part:
                break
            found += part
    finally:
        os.close(number)
    return found


def _eval(run: Runner, words: list[str], _heredoc: str) -> bool | None:
    text = " ".join(words)
    if open_(text):
        run.record.skipped.append((run.state.file, run.state.line))
        return None
    return run.nested(text)


def _exit(_run: Runner, _words: list[str], _heredoc: str) -> bool | None:
    from tuneport.shell.run import Exit

    raise Exit


def _return(_run: Runner, _words: list[str], _heredoc: str) -> bool | None:
    from tuneport.shell.run import Return

    raise Return


def _leave(again: bool) -> Callable[[Runner, list[str], str], bool | None]:
    def builtin(run: Runner, words: list[str], _heredoc: str) -> bool | None:
        from tuneport.shell.run import Break

        if not run.loops:
            return True  # bash complains, and goes on
        raise Break(int(words[0][:3]) if words and words[0].isdigit() else 1, again)

    return builtin


def _exec(run: Runner, words: list[str], _heredoc: str) -> bool | None:
    from tuneport.shell.run import Exit

    while words and words[0] in ("-c", "-l"):
        words = words[1:]
    if not words:
        return True
    run.start(words, {})
    raise Exit


def _command(run: Runner, words: list[str], heredoc: str) -> bool | None:
    if not words or words[0] in ("-v", "-V"):
        _print(run, run.state.gap("where a program is, only the machine knows"))
        return None
    return run.perform([word for number, word in enumerate(words) if number or word != "-p"], {}, heredoc)


_WHOLE = (["-r", "-d", ""], ["-d", "", "-r"], ["-rd", ""])
"""Options with which `read` takes all of a here-document as it is."""


def _read(run: Runner, words: list[str], heredoc: str) -> bool | None:
    names = [word for word in words if re.fullmatch(r"[A-Za-z_]\w*", word)]
    if heredoc and words[:-1] in _WHOLE and len(names) == 1 and "IFS" not in run.state.variables:
        run.state.variables[names[0]] = heredoc.strip(" \t\n")
        return False  # the text ends before the delimiter comes
    for name in names or ["REPLY"]:
        gap = run.state.gap(f"{name} is read while the script runs", name)
        held = run.state.variables.get(name)
        run.state.variables[name] = [gap] if isinstance(held, list) else gap
    return None


def _mapfile(run: Runner, words: list[str], _heredoc: str) -> bool | None:
    name = words[-1] if words and re.fullmatch(r"[A-Za-z_]\w*", words[-1]) else "MAPFILE"
    run.state.variables[name] = [run.state.gap(f"{name} is read while the script runs")]
    return None


def _let(run: Runner, words: list[str], _heredoc: str) -> bool | None:
    value = "0"
    for text in words:
        value = run.expander.arithmetic(text)
    return None if open_(value) else int(value) != 0


def _test(run: Runner, words: list[str], _heredoc: str) -> bool | None:
    quoted = ["'" + word.replace("'", "'\\''") + "'" for word in words]
    for number, word in enumerate(words):
        if word in ("!", "-o", "-a", "-z", "-n"):
            quoted[number] = word
    return conditions.single(quoted, run.expander, run.state)


def _fixed(status: bool | None) -> Callable[[Runner, list[str], str], bool | None]:
    return lambda _run, _words, _heredoc: status


TABLE: dict[str, Callable[[Runner, list[str], str], bool | None]] = {
    ".": _source,
    ":": _fixed(True),
    "basename": _path(_basename),
    "break": _leave(False),
    "cat": _cat,
    "cd": _cd,
    "command": _command,
    "continue": _leave(True),
    "dirname": _path(_dirname),
    "echo": _echo,
    "eval": _eval,
    "exec": _exec,
    "exit": _exit,
    "false": _fixed(False),
    "getopts": _read,
    "let": _let,
    "mapfile": _mapfile,
    "printf": _printf,
    "pwd": _pwd,
    "read": _read,
    "readarray": _mapfile,
    "readlink": _realpath,
    "realpath": _realpath,
    "return": _return,
    "set": _set,
    "shift": _shift,
    "shopt": _fixed(True),
    "source": _source,
    "test": _test,
    "trap": _fixed(True),
    "true": _fixed(True),
    "ulimit": _fixed(True),
    "umask": _fixed(True),
    "wait": _fixed(None),
}
