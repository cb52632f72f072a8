"""The real Hydra and the real trees, for tests that hold our own reading against them.

The environment and the unpacked wheels are made once, in the cache folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tuneport.settings import cache_dir

REQUIREMENTS = ("hydra-core==1.3.8", "omegaconf==2.3.1", "pyyaml")


class Reference:
    """A process with Hydra in it."""

    def __init__(self) -> None:
        server = Path(__file__).parent / "data" / "hydra_server.py"
        self._process = subprocess.Popen(
            [str(_python()), str(server)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, do: str, **case: Any) -> Any:
        """The answer, or None where Hydra refused (see `reason`)."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **case}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        self.reason = f"{answer.get('error', '')}: {answer.get('message', '')}"
        return answer.get("ok")

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def value(answer: Any) -> Any:
    """A value as the server tells it; nan becomes a text, since it equals nothing."""
    if isinstance(answer, dict):
        if "$float" in answer:
            number = float(answer["$float"])
            return "<nan>" if math.isnan(number) else number
        return {value(key): value(item) for key, item in answer["$dict"]}
    if isinstance(answer, list):
        return [value(item) for item in answer]
    return answer


def same(left: Any, right: Any) -> bool:
    """Equal, and of equal types all the way down."""
    if isinstance(left, float) and isinstance(right, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    return bool(left == right)


@cache
def wheel(name: str, version: str) -> tuple[Path, Path]:
    """(the wheel, the folder it is unpacked in)."""
    folder = cache_dir() / "wheels"
    with locked(folder):
        found = sorted(folder.glob(f"{name}-{version}-*.whl"))
        if not found:
            words = ["download", "-q", "--no-deps", "--ignore-requires-python", "--only-binary=:all:"]
            _run([sys.executable, "-m", "pip", *words, "-d", str(folder), f"{name}=={version}"])
            found = sorted(folder.glob(f"{name}-{version}-*.whl"))
        tree = folder / f"{name}-{version}"
        if not tree.exists():
            part = folder / f".{name}-{version}"
            with zipfile.ZipFile(found[0]) as archive:
                archive.extractall(part)
            part.rename(tree)
    return found[0], tree


def _python() -> Path:
    folder = cache_dir() / "hydra-reference"
    python = folder / "bin" / "python"
    with locked(folder.parent):
        if not (folder / "done").exists():
            _run([sys.executable, "-m", "venv", "--clear", str(folder)])
            _run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *REQUIREMENTS])
            (folder / "done").touch()
    return python


def _run(words: Sequence[str]) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
