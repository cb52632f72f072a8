"""Runs the conformance kit in its own processes: a plugin that hangs, exits or prints harms only itself."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneport.testing.conformance import Check
from tuneport.testing.subject import Subject, find
from tuneport.types import Json

HOURS = 3600.0
_CLEAN = ("TUNEPORT_", "TUNEPLANE_", "FORGE_")
_KEPT = ("TUNEPORT_CACHE_DIR", "TUNEPORT_MANIFEST_PATH", "TUNEPORT_TRACEBACK")


@dataclass(frozen=True, slots=True)
class Options:
    """`times` compilations must be equal; a check may take `deadline` seconds; `golden` is a folder of plans
    (default: tests/plans of a source folder, where it is there); `only` are framework names or method ids."""

    times: int = 100
    deadline: float = 600.0
    golden: Path | None = None
    write_golden: bool = False
    only: Sequence[str] = ()


def check_plugin(named: str, options: Options = Options()) -> Iterator[Check]:
    """Every check of an installed distribution, a source folder, a wheel or a folder of manifests.

    Raises:
        NotFound, Invalid: as `tuneport.testing.subject.find`.
    """
    with tempfile.TemporaryDirectory(prefix="tuneport-check-") as scratch:
        subject = find(named, Path(scratch))
        digests: list[dict[str, str]] = []
        for number in range(2):
            repeat = {"times": 1, "quick": True} if number else {"times": options.times, "quick": False}
            asked = _asked(subject, options, Path(scratch) / f"run{number}", repeat)
            for row in _child(asked, subject, Path(scratch), options.deadline, seed=number):
                if "digests" in row:
                    digests.append(row["digests"])
                elif not number or row["check"].name == "alive":
                    yield row["check"]
        if len(digests) == 2 and digests[0]:
            differing = sorted(name for name in digests[0] if digests[0][name] != digests[1].get(name))
            problems = tuple(f"{name} is another one in another process" for name in differing)
            yield Check("hash seed", subject.dist or named, problems)


def _asked(subject: Subject, options: Options, work: Path, repeat: dict[str, Any]) -> dict[str, Json]:
    golden = options.golden or (subject.golden if subject.golden and subject.golden.is_dir() else None)
    if options.write_golden:
        golden = golden or subject.golden
    work.mkdir()
    return {
        "dist": subject.dist,
        "work": str(work),
        "manifests": str(subject.manifests) if subject.manifests else "",
        "readme": subject.readme,
        "golden": str(golden) if golden else "",
        "write": options.write_golden,
        "only": list(options.only),
        **repeat,
    }


def _child(
    asked: dict[str, Json], subject: Subject, scratch: Path, deadline: float, seed: int
) -> Iterator[dict[str, Any]]:
    """The rows of one process; one more row where it ends badly or does not end."""
    site = scratch / "site.yaml"
    site.write_text("")
    env = {name: value for name, value in os.environ.items() if not name.startswith(_CLEAN)}
    env |= {name: os.environ[name] for name in _KEPT if name in os.environ}
    env |= {"TUNEPORT_SITE_FILE": str(site), "TUNEPORT_STATE_DIR": str(scratch / "state")}
    env |= {"PYTHONHASHSEED": str(seed)}
    front = [str(path) for path in subject.path]
    env["PYTHONPATH"] = os.pathsep.join([*front, *filter(None, [os.environ.get("PYTHONPATH", "")])])
    if subject.manifests:
        known = [os.environ.get("TUNEPORT_MANIFEST_PATH", ""), str(subject.manifests)]
        env["TUNEPORT_MANIFEST_PATH"] = os.pathsep.join(filter(None, dict.fromkeys(known)))
    who = subject.dist or str(subject.manifests)
    with tempfile.TemporaryFile("w+") as talk:
        process = subprocess.Popen(
            [sys.executable, "-m", "tuneport.testing.conformance"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=talk, text=True, env=env,
            start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        last, done = "starting", False
        try:
            process.stdin.write(json.dumps(asked))
            process.stdin.close()
            for line in _lines(process, deadline):
                row = json.loads(line)
                if "check" in row:
                    name, about, problems = row["check"]
                    row["check"] = Check(name, about, tuple(problems))
                    last = f"{name} of {about}"
                done = "digests" in row
                yield row
            process.wait(5 if done else HOURS)
        except TimeoutError:
            said = f"nothing more came for {deadline:g} seconds after {last}: an endless loop?"
            yield {"check": Check("alive", who, (said,))}
            return
        finally:
            _end(process)
        if not done:
            talk.seek(0)
            tail = " / ".join(talk.read().strip().splitlines()[-3:])
            said = f"the process ended with {process.returncode} after {last}: {tail or 'it said nothing'}"
            yield {"check": Check("alive", who, (said,))}


def _lines(process: subprocess.Popen[str], deadline: float) -> Iterator[str]:
    """Whole lines as they come.

    Raises:
        TimeoutError: none came for `deadline` seconds.
    """
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        until = time.monotonic() + deadline
        while True:
            if not selector.select(max(0.0, until - time.monotonic())):
                raise TimeoutError
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                return
            *whole, pending = (pending + part).split(b"\n")
            for line in whole:
                yield line.decode("utf-8")
                until = time.monotonic() + deadline


def _end(process: subprocess.Popen[str]) -> None:
    """End the process and what it started."""
    import contextlib
    import signal

    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
