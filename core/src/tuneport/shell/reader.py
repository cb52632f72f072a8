"""From the words of a command to the programs that it starts in the end, through the scripts in between."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuneport.errors import Invalid
from tuneport.experiment.command_line import JOB, NEAR, Invocation, submission, take_apart
from tuneport.shell import complaints
from tuneport.shell.builtin import beside, read_bytes
from tuneport.shell.gaps import Gaps, Word, open_, shown, word
from tuneport.shell.limits import Budget, too_much
from tuneport.shell.run import Break, Exit, Record, Return, Runner, Started
from tuneport.shell.state import Common, State
from tuneport.text import closest
from tuneport.types import Finding

MAX_SCRIPTS = 8
MAX_SAID = 5
MAX_TOGETHER = 2.0  # seconds of CPU for all commands of a job file


@dataclass(slots=True)
class Reading:
    """What a command starts: each program with its arguments. Where one comes from a script, its words say
    where (`gaps.Word`) and may hold gaps. `scripted`: the command is a script or a piece of shell. `job_file`
    is the file of an engine that all comes from, if any."""

    programs: list[Invocation] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    gaps: Gaps = field(default_factory=Gaps)
    scripted: bool = False
    job_file: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """A command that an engine starts: words that say where they stand, of which none is behind line `last`.
    `machines` and `copies` are those of `Invocation`."""

    words: Sequence[Word]
    env: Mapping[str, str]
    last: int
    machines: tuple[int, int]
    copies: int


def read(words: Sequence[str], env: Mapping[str, str]) -> Reading:
    """Follow a command, given as its words, or as one word that is a script's name or a piece of shell.

    Args:
        env: variables that the command sees.

    Raises:
        Invalid: it starts no program, or its script is missing or cannot be read.
    """
    reader = _Reader()
    found = _alone(words[0]) if len(words) == 1 else None
    if found is None:
        try:
            found = take_apart(words)
        except Invalid as error:
            raise _unless_file(words[0], error) from None
    if not found.script and not found.text:
        reader.reading.programs.append(found)
        return reader.reading
    reader.reading.scripted = True
    if JOB in found.told:
        reader.reading.programs.append(submission(found))
    found.arguments = [word(text, "", 0) for text in found.arguments]  # in no script
    reader.enter(found, dict(env), os.getcwd(), "")
    reader.close(env)
    return reader.reading


def follow(starts: Sequence[Start], env: Mapping[str, str], gaps: Gaps) -> Reading:
    """Follow commands that no shell was given, each for itself, on machines that are not this one.

    Args:
        env: variables that were given beside them.
        gaps: what their words leave open.
    """
    reader = _Reader(Common(gaps=gaps, elsewhere=True))
    reader.reading.scripted = True
    until = time.process_time() + MAX_TOGETHER
    for start in starts:
        first, found, known = start.words[0], reader.record.findings, len(reader.reading.programs)
        said = len(found)
        reader.common.budget = Budget()
        try:
            if time.process_time() > until:
                raise too_much("the file starts too much to be followed")
            one = Started(tuple(start.words), dict(start.env), first.file, first.line, os.getcwd())
            reader.follow(one, Invocation(), placed=True)
        except Invalid as error:
            place = ("", first.file, first.line)
            found.append(Finding(error.code, "note", f"not followed: {error.message}", "", *place))
        # A text between quotes has its lines where the file does not.
        found[said:] = [
            replace(one, line=min(one.line, start.last)) if one.file == first.file else one
            for one in found[said:]
        ]
        for program in reader.reading.programs[known:]:
            program.machines, program.copies = start.machines, start.copies
            if program.file == first.file:
                program.line = min(program.line, start.last)
            for argument in program.arguments:
                if isinstance(argument, Word) and argument.file == first.file:
                    argument.line = min(argument.line, start.last)
    reader.close(env)
    return reader.reading


def _alone(text: str) -> Invocation | None:
    """One word: a script, or shell as it would be typed."""
    if "\0" in text:
        raise Invalid("the command holds a NUL character", code="script-text", hint="take it out")
    if any(sign in text for sign in " \t\n;|&"):
        return Invocation(text=text) if not os.path.isfile(text) else Invocation(script=text)
    if not text.endswith(".py") and os.path.lexists(text):
        return Invocation(script=text)
    return None


def _unless_file(name: str, error: Invalid) -> Invalid:
    """Why a command starts nothing; a file without an ending may be a script that lacks its shell."""
    if error.code == "command-unknown" and os.path.isfile(name):
        error.hint = f"if {name} is a shell script: tp check -- bash {name} …"
    return error


class _Reader:
    def __init__(self, common: Common | None = None) -> None:
        self.common = common or Common()
        self.record = Record()
        self.reading = Reading(gaps=self.common.gaps)
        self._scripts = 0

    def enter(self, found: Invocation, env: dict[str, str], cwd: str, file: str, first: int = 1) -> None:
        """Read the script, or the piece of shell, that a shell is given. `first`: the line of the file that a
        piece begins on."""
        self._scripts += 1
        if self._scripts > MAX_SCRIPTS:
            raise too_much(f"more than {MAX_SCRIPTS} scripts start one another")
        variables = {**env, **found.env}
        home = variables.get("HOME") or os.path.expanduser("~")
        state = State(self.common, "", home, cwd, dict(variables), set(variables))
        state.params = list(found.arguments)
        if found.text:
            if open_(found.text):
                self.record.skipped.append((file, 0))
                return
            state.file, state.params = file or "the command", list(found.arguments[1:])
            source = ("\n" * (first - 1) + found.text).encode("utf-8", "replace")
        else:
            path = _script(found.script, cwd, file, elsewhere=self.common.elsewhere)
            state.file = os.path.relpath(path) if path.startswith(os.getcwd() + os.sep) else path
            source = _bytes(path, found.script)
        self.record.texts.append(source.decode("utf-8", "replace"))
        self.record.findings += complaints.of_text(source, state.file)
        before = len(self.record.started)
        with contextlib.suppress(Exit, Return, Break):
            Runner(state, self.record).script(source)
        # Taken out one by one: what such a command starts in turn is recorded behind it.
        started = self.record.started[before:]
        del self.record.started[before:]
        for one in started:
            self.follow(one, found)

    def follow(self, one: Started, above: Invocation, *, placed: bool = False) -> None:
        """Go on with a command, which `above` starts. `placed`: a piece of shell in it has a line."""
        try:
            found = take_apart(one.words)
        except Invalid as error:
            if error.code == NEAR:
                place = ("", one.file, one.line)
                self.record.findings.append(Finding(error.code, "warning", error.message, error.hint, *place))
            return  # some other program
        found.env = {**one.env, **found.env}
        found.launchers = [*above.launchers, *found.launchers]
        found.nodes, found.per_node = found.nodes or above.nodes, found.per_node or above.per_node
        found.file, found.line = one.file, one.line
        if not found.script and not found.text:
            self.reading.programs.append(found)
            return
        if JOB in found.told:
            self.reading.programs.append(submission(found))
        first = found.text.line if placed and isinstance(found.text, Word) else 1
        try:
            self.enter(found, found.env, one.cwd, one.file, first)
        except Invalid as error:
            if error.code != "script-missing":
                raise
            self.record.missing.append((shown(found.script), one.file, one.line))

    def close(self, env: Mapping[str, str]) -> None:
        """Say what bash will stumble over, and what could not be read."""
        for finding in list(dict.fromkeys(self.record.findings))[: MAX_SAID * 4]:
            self.reading.findings.append(finding)
        for name in env:
            if name != "HOME" and not any(
                re.search(rf"\b{re.escape(name)}\b", text) for text in self.record.texts
            ):
                wanted = {gap.variable for gap in self.reading.gaps.found if gap.variable}
                close = closest(name, wanted)
                message = f"the script never reads {name}, which was given: only what it starts can see it"
                hint = f"did you mean {close}?" if close else ""
                self.reading.findings.append(Finding("script-unused", "note", message, hint))
        for name, file, line in dict.fromkeys(self.record.missing[: MAX_SAID * 4]):
            there = not open_(name) and os.path.exists(name) and not os.path.isfile(name)
            what = "is not a regular file" if there else "is not here"
            message = f"{shown(name)} {what}, so what it sets or starts is not known"
            hint = "give what it sets as --env NAME=VALUE"
            self.reading.findings.append(Finding("script-missing", "note", message, hint, "", file, line))
        for file, line in list(dict.fromkeys(self.record.skipped))[:MAX_SAID]:
            message = "this part of the script is not understood, so what it sets or starts is not known"
            hint = "give what it sets as --env NAME=VALUE, or check the command that the script ends in"
            self.reading.findings.append(Finding("script-unread", "note", message, hint, "", file, line))


def _script(name: str, cwd: str, file: str, *, elsewhere: bool = False) -> str:
    path = beside(name, cwd, file, pipes=not file and not elsewhere, elsewhere=elsewhere)
    if path is None:
        here = "" if open_(name) else os.path.join("" if open_(cwd) else cwd, name)
        what = "is not here"
        if here and os.path.lexists(here):
            what = "is a folder" if os.path.isdir(here) else "is not a regular file"
        if here and os.path.islink(here) and not os.path.exists(here):
            what = "is a link that leads nowhere"
        raise Invalid(f"the script {shown(name)} {what}", code="script-missing", hint="give its path")
    return path


def _bytes(path: str, name: str) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise Invalid(f"{name} cannot be read: {error.strerror}", code="script-missing") from None
