"""Fills in what a plan left open, and turns its files into bytes. What a user typed is never scanned."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from tuneport.errors import Invalid, NotFound
from tuneport.fleets.disk import read_json
from tuneport.fleets.layout import Folder, jobs_root
from tuneport.fleets.refs import filled
from tuneport.types import Command, FileSpec, LaunchPlan, Ref, RuntimeNeed, Value

LATE = frozenset({"head_port"})
"""References that only a job which starts can resolve."""
PLACED = frozenset({"head_port", "head_addr", "node_rank"})
"""Those of a fleet with several nodes, which nobody knows before the job is placed."""

Resolver = Callable[[Ref], Value]


def at_submit(
    folder: Folder, job: str, attempt: int, python: Path | str, late: Collection[str] = LATE
) -> Resolver:
    """Everything but `late`.

    The resolver raises NotFound where a dataset version or another job's output does not exist.
    """
    known = {
        "output_dir": str(folder.output),
        "log_dir": str(folder.tensorboard),
        "work_dir": str(folder.work),
        "report_file": str(folder.report),
        "job_id": job,
        "attempt": str(attempt),
        "python": str(python),
        "head_addr": "127.0.0.1",
        "node_rank": "0",
    }

    def resolve(ref: Ref) -> Value:
        if ref.ref in late:
            return ref
        if ref.ref == "dataset":
            from tuneport.datasets import locate

            return filled(ref, str(locate(ref.name)))
        if ref.ref == "run_output":
            return filled(ref, str(output_of(ref.name)))
        if ref.ref not in known:
            raise Invalid(f"a fleet cannot resolve the reference {ref.ref!r}", code="plan-ref")
        return filled(ref, known[ref.ref])

    return resolve


def at_start(head_port: int) -> Resolver:
    """LATE, when the job begins."""
    return lambda ref: filled(ref, str(head_port))


def output_of(job: str) -> Path:
    """The output folder of a job: of its last attempt that succeeded, else of its last.

    Raises:
        NotFound: no job of that name ran here.
    """
    root = jobs_root() / job
    if not job or job != root.name or job.startswith("."):
        raise NotFound(f"{job!r} is not a job's id", code="job-not-found", hint="see tp job ls")
    try:
        numbers = sorted((int(path.name) for path in root.iterdir() if path.name.isdigit()), reverse=True)
    except (FileNotFoundError, NotADirectoryError):
        numbers = []
    attempts = [Folder(f"{root}/{number}") for number in numbers]
    attempts = [attempt for attempt in attempts if attempt.output.is_dir()]
    if not attempts:
        raise NotFound(f"job {job} has no output here", code="job-not-found", hint="see tp job ls")
    good = (attempt for attempt in attempts if (read_json(attempt.exit) or {}).get("state") == "SUCCEEDED")
    return next(good, attempts[0]).output


def interpreter(need: RuntimeNeed) -> Path:
    """The Python of a plan's runtime; this one for a plan that runs in the user's own environment."""
    if need.host:
        return Path(sys.executable)
    from tuneport.runtimes import resolve_python

    return resolve_python(need)


def resolve_all(commands: Iterable[Command], resolver: Resolver) -> tuple[Command, ...]:
    """The commands with the references that `resolver` knows resolved."""
    return tuple(_command(command, resolver) for command in commands)


def _command(command: Command, resolver: Resolver) -> Command:
    files = {
        name: FileSpec(spec.format, _tree(spec.content, resolver)) for name, spec in command.files.items()
    }
    return replace(
        command,
        argv=tuple(_leaf(value, resolver) for value in command.argv),
        env={name: _leaf(value, resolver) for name, value in command.env.items()},
        files=files,
    )


def _tree(node: Any, resolver: Resolver) -> Any:
    if isinstance(node, Ref):
        return resolver(node)
    if isinstance(node, Mapping):
        return {key: _tree(value, resolver) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_tree(value, resolver) for value in node]
    return node


def _leaf(value: Value, resolver: Resolver) -> Value:
    return resolver(value) if isinstance(value, Ref) else value


def refuse_late(commands: Iterable[Command]) -> None:
    """For fleets that write files before a job is placed.

    Args:
        commands: with every reference resolved but PLACED.

    Raises:
        Invalid: a file holds what only a running job knows.
    """
    for command in commands:
        for name, spec in command.files.items():
            if _holds_ref(spec.content):
                raise Invalid(
                    f"the file {name} of {command.role} has to say where the job runs, which only the "
                    "running job knows",
                    code="plan-ref",
                )


def _holds_ref(node: Any) -> bool:
    if isinstance(node, Mapping):
        return any(map(_holds_ref, node.values()))
    return isinstance(node, Ref) or (isinstance(node, list | tuple) and any(map(_holds_ref, node)))


def refuse_unusable(plan: LaunchPlan) -> None:
    """Nothing the operating system would cut short or refuse may reach it.

    Raises:
        Invalid: an argument, variable, file or role that no process can be given.
    """
    if not plan.commands:
        raise Invalid("the plan has no command to run", code="plan-empty")
    roles = [command.role for command in plan.commands]
    for role in roles:
        if not role or not all(c.isascii() and (c.isalnum() or c in "_-.") for c in role) or role[0] == ".":
            raise Invalid(f"{role!r} cannot be the name of a role", code="plan-role")
    if len(set(roles)) != len(roles):
        raise Invalid("two commands of the plan have one role", code="plan-role")
    for command in plan.commands:
        if not command.argv:
            raise Invalid(f"the command of {command.role} is empty", code="plan-empty")
        for position, value in enumerate(command.argv):
            _usable(value, f"argument {position} of {command.role}")
        for name, value in command.env.items():
            if not name or "=" in name:
                raise Invalid(f"{name!r} cannot be an environment variable", code="value-unusable")
            _usable(name, f"environment variable {name!r}")
            _usable(value, f"environment variable {name!r}")
        for name, spec in command.files.items():
            path = PurePosixPath(name)
            if not name or path.is_absolute() or ".." in path.parts or "\0" in name or not path.name:
                raise Invalid(f"the plan writes {name!r}, which is outside the work folder", code="plan-file")
            _encodable(spec.content, f"file {name}")


def _usable(value: Value, what: str) -> None:
    text = value if isinstance(value, str) else value.prefix + value.suffix
    if "\0" in text:
        raise Invalid(f"{what} holds a NUL character, which no process can be given", code="value-unusable")
    _encodable(text, what)


def _encodable(node: Any, what: str) -> None:
    if isinstance(node, str):
        try:
            node.encode()
        except UnicodeEncodeError:
            raise Invalid(
                f"{what} holds half a character (not valid Unicode)", code="value-unusable"
            ) from None
    elif isinstance(node, Ref):
        _encodable(node.prefix + node.suffix, what)
    elif isinstance(node, Mapping):
        for key, value in node.items():
            _encodable(key, what)
            _encodable(value, what)
    elif isinstance(node, list | tuple):
        for value in node:
            _encodable(value, what)
