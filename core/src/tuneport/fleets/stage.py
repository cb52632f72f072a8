"""Copies the experiment for a job: what was planned, byte for byte, or nothing."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from tuneport.errors import Invalid, Untrusted
from tuneport.experiment.secrets import SHORTEST, is_secret
from tuneport.fleets import disk
from tuneport.fleets.faults import fault
from tuneport.fleets.layout import Folder
from tuneport.types import LaunchPlan

_SECRET = re.compile(
    r"\.env(\..*)?|\.netrc|\.?credentials?(\.\w+)?|id_(rsa|dsa|ecdsa|ed25519)|.*\.(pem|key|p12|pfx|kdbx)|\.git-credentials",
    re.IGNORECASE,
)


def refuse_secrets(names: Iterable[str]) -> None:
    """For fleets that upload the experiment.

    Raises:
        Invalid: a file of the experiment is named like one that holds a secret.
    """
    for path in names:
        if _SECRET.fullmatch(PurePosixPath(path).name):
            raise Invalid(
                f"{path} looks like a secret, and everything in the experiment folder is uploaded",
                code="upload-secret",
                hint="move it out of the experiment folder; the cluster's own environment can hold secrets",
            )


def refuse_secret_values(plan: LaunchPlan, environment: Mapping[str, str], held: Iterable[str] = ()) -> None:
    """For fleets whose requests others can read.

    Args:
        environment: what the fleet's declaration gives every job.
        held: variables that the cluster itself gives, whatever these say.

    Raises:
        Invalid: a variable that is named like a secret has its value in the plan or the declaration.
    """
    for given in (environment, *(command.env for command in plan.commands)):
        for name, value in given.items():
            if name not in held and is_secret(name) and isinstance(value, str) and len(value) >= SHORTEST:
                raise Invalid(
                    f"{name} looks like a secret, and whoever can see the job could read it",
                    code="request-secret",
                    hint="take it out of `env` and `environment`; the cluster can hold it for its jobs",
                )


def keep_source(folder: Folder, origin: Path | None, digests: Mapping[str, str]) -> None:
    """Copy the planned files of the experiment at `origin` to where all attempts take them from.

    Files that the plan does not list stay behind; nothing is done where the copy exists.

    Raises:
        Untrusted: a file changed, or went, since the plan was made.
    """
    if folder.source.is_dir():
        return
    disk.folder(folder.source.parent, "job-folder")
    draft = folder.source.with_name(".source.draft")
    shutil.rmtree(draft, ignore_errors=True)
    disk.folder(draft, "source-folder")
    fault("source-copy")
    copy_verified(origin or draft, draft, digests)
    disk.publish_folder(draft, folder.source, "source-publish")


def copy_verified(origin: Path, target: Path, digests: Mapping[str, str]) -> None:
    """Copy each file of `digests` (relative path -> SHA-256), refusing one that does not match."""
    for name, digest in digests.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.name:
            raise Invalid(f"{name!r} is outside the experiment folder", code="plan-file")
        try:
            data = (origin / path).read_bytes()
            mode = (origin / path).stat().st_mode
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise _changed(name, "is gone") from None
        if hashlib.sha256(data).hexdigest() != digest.removeprefix("sha256:"):
            raise _changed(name, "changed")
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_bytes(data)
        (target / path).chmod((mode & 0o777) | 0o600)


def _changed(name: str, what: str) -> Untrusted:
    return Untrusted(
        f"{name} {what} since the plan was made", code="source-changed", hint="plan and submit again"
    )


def prepare(folder: Folder, digests: Mapping[str, str]) -> None:
    """The folders of an attempt, its work copy and its reporter. What a crash left half-done is redone."""
    for path in (folder.output, folder.tensorboard, folder.logs):
        disk.folder(path, "attempt-folder")
    shutil.rmtree(folder.work, ignore_errors=True)
    fault("work-copy")
    folder.work.mkdir(mode=0o700)
    copy_verified(folder.source, folder.work, digests)
    fault("work-copy")
    _reporter(folder.modules)


def _reporter(modules: Path) -> None:
    """`import tuneport_report`, and `tuneplane.report` for scripts that know that name."""
    from tuneport import report

    code = Path(report.__file__).read_bytes()
    fault("reporter-copy")
    package = modules / "tuneplane"
    package.mkdir(mode=0o700, parents=True, exist_ok=True)
    (modules / "tuneport_report.py").write_bytes(code)
    (package / "report.py").write_bytes(
        b"import sys\n\nimport tuneport_report\n\nsys.modules[__name__] = tuneport_report\n"
    )
    (package / "__init__.py").write_bytes(b"from tuneplane import report as report\n")
    fault("reporter-copy")
