"""Builds and removes Python environments, one builder at a time, usable only when complete."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tuneport.errors import Unavailable
from tuneport.runtimes import steps, venvs
from tuneport.runtimes.interpreters import Interpreter, find_interpreter
from tuneport.runtimes.locks import held
from tuneport.runtimes.progress import Progress
from tuneport.runtimes.variants import Variant, digest
from tuneport.settings import private_dir
from tuneport.text import printable

_IMPORT = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)\n"
_LIST = (
    "import importlib.metadata as m\n"
    "for d in m.distributions():\n    print(d.metadata['Name'], d.version, sep='\\t')\n"
)


def install(variant: Variant, say: Callable[[str], None]) -> venvs.Built:
    """The environment of `variant`, built now where it is not here yet. `say` gets lines of talk.

    Raises:
        Unavailable: no fitting Python, no network, no space, or packages that do not install.
    """
    what = f"{variant.runtime_id} ({variant.name})"
    ready = venvs.find_built(variant)
    if ready is not None:
        return ready
    python = find_interpreter(variant.python, what)
    path = venvs.folder(variant, digest(variant, python.tag))
    private_dir(venvs.root())
    with held(venvs.lock_of(path), f"installing {what}", say) as lock:
        found = venvs.inspect(path)
        if found.state == "ready":  # another tp built it while this one waited
            return found
        size = f"about {variant.download_mb} MB" if variant.download_mb else "its packages"
        say(f"installing {what} with Python {python.version}, downloading {size}, into {path}")
        if variant.note:
            say(f"  {variant.note}")
        _warn_of_space(path.parent, variant.download_mb, say)
        build = _Build(variant, path, lock)
        found = build.run(python)
        say(f"installed {what}: {len(found.packages)} packages in {build.progress.elapsed:.0f} s")
        return found


def remove(path: Path, say: Callable[[str], None]) -> int:
    """Delete an environment and its log; returns the bytes its marker counted.

    Raises:
        Unavailable: it is being built, a process runs from it, or it cannot be deleted.
    """
    with held(venvs.lock_of(path), "removing it", say, wait=False):
        users = venvs.users_of(path)
        if users:
            listed = ", ".join(str(pid) for pid in users[:5])
            raise Unavailable(
                f"{path.name} is in use by process {listed}", code="runtime-in-use", hint="stop the job first"
            )
        size = venvs.inspect(path).size
        try:
            (path / venvs.MARKER).unlink(missing_ok=True)  # first: a half-deleted one must not look whole
            shutil.rmtree(path)
            venvs.log_of(path).unlink(missing_ok=True)
        except OSError as error:
            raise Unavailable(
                f"cannot delete {error.filename or path}: {error.strerror}", code="runtime-not-removed"
            ) from error
        return size


class _Build:
    """One attempt. Whatever ends it early, the folder goes and the log stays."""

    def __init__(self, variant: Variant, path: Path, lock: int) -> None:
        self.variant, self.path, self.lock = variant, path, lock
        self.what = f"{variant.runtime_id} ({variant.name})"
        self.progress = Progress()

    def run(self, python: Interpreter) -> venvs.Built:
        complete = False
        try:
            if self.path.exists():  # a half-built one from before
                shutil.rmtree(self.path)
            self._steps(python)
            found = self._mark(python)
            complete = True
            return found
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self._no_space() from error
            raise Unavailable(
                f"cannot install {self.what}: {error.strerror or error} ({error.filename or self.path})",
                code="runtime-install-failed",
            ) from error
        finally:
            self.progress.close()
            if not complete:
                shutil.rmtree(self.path, ignore_errors=True)

    def _steps(self, python: Interpreter) -> None:
        inside = str(venvs.interpreter(self.path))
        pip = [inside, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
        requirements, check = self.variant.requirements, self.variant.check
        options = ["--progress-bar", "off", *self.variant.pip_args, "--"]
        with venvs.log_of(self.path).open("wb") as log:
            self.progress.step("creating the environment")
            code, text = self._call(log.fileno(), [str(python.path), "-I", "-m", "venv", str(self.path)])
            if code != 0 and "ensurepip" in text:
                raise Unavailable(
                    f"{python.path} cannot create virtual environments: its ensurepip is missing",
                    code="runtime-no-ensurepip",
                    hint="install your system's python3-venv package, or use another Python",
                )
            if code == 0:
                self.progress.step(f"installing {len(requirements)} pinned packages and what they need")
                code, text = self._call(log.fileno(), [*pip, *options, *requirements])
            if code != 0:
                raise self._failure(*steps.explain(text, code))
            if check:
                self.progress.step(f"importing {', '.join(check)}")
                code, _ = self._call(log.fileno(), [inside, "-I", "-c", _IMPORT, *check])
                if code != 0:
                    raise self._failure("a module that it promises does not import", "its pins need mending")

    def _call(self, log: int, argv: list[str]) -> tuple[int, str]:
        folder = self.path.parent
        code = steps.call(argv, folder=folder, log=log, lock=self.lock, progress=self.progress)
        text = "\n".join(self.progress.tail)
        if code != 0 and steps.is_full(text):
            raise self._no_space()
        return code, text

    def _mark(self, python: Interpreter) -> venvs.Built:
        argv = [str(venvs.interpreter(self.path)), "-I", "-c", _LIST]
        listing = subprocess.run(argv, capture_output=True, text=True).stdout.splitlines()
        packages = dict(line.split("\t") for line in listing if "\t" in line)
        found = venvs.Built(
            path=self.path,
            state="ready",
            runtime_id=self.variant.runtime_id,
            variant=self.variant.name,
            release=self.variant.release,
            python=python.version,
            tag=python.tag,
            requirements=self.variant.requirements,
            size=_size(self.path),
            created=time.time(),
            packages=packages,
        )
        venvs.write_marker(found)
        return found

    def _failure(self, why: str, hint: str) -> Unavailable:
        shown = "\n".join(f"  | {printable(line)[:300]}" for line in list(self.progress.tail)[-8:])
        return Unavailable(
            f"cannot install {self.what}: {why}\n{shown}",
            code="runtime-install-failed",
            hint=f"{hint}; the whole log is {venvs.log_of(self.path)}",
        )

    def _no_space(self) -> Unavailable:
        return Unavailable(
            f"cannot install {self.what}: no space left under {self.path.parent}",
            code="runtime-no-space",
            hint="free some space or set TUNEPORT_CACHE_DIR to a larger disk, then repeat the command",
        )


def _warn_of_space(folder: Path, download_mb: int, say: Callable[[str], None]) -> None:
    free = shutil.disk_usage(folder).free // 1_000_000
    if free < 3 * download_mb:  # what is downloaded unpacks to about two times its size
        say(f"  only {free} MB are free there; this may not be enough")


def _size(path: Path) -> int:
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total
