"""Runs an experiment's own preparation script and holds what it writes to what the method reads."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuneport import workflow
from tuneport.datasets import files as reading
from tuneport.errors import Invalid, NotFound, TuneportError, Unavailable
from tuneport.experiment import project, tables
from tuneport.experiment.findings import failed, ordered
from tuneport.experiment.request import Flags
from tuneport.registry import catalog
from tuneport.types import Finding, Json

PATTERN = "prepare_*.py"
# What a file is for, by the word that its name starts with.
SPLITS = {"train": "train", "test": "validation", "validation": "validation", "val": "validation"}


@dataclass(frozen=True, slots=True)
class Prepared:
    """`files`: relative path -> what is known of it; `findings` are those that the data gave rise to."""

    folder: Path
    script: str
    files: Mapping[str, Mapping[str, Json]]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not failed(self.findings)


def prepare(
    experiment: str, out: Path, script: str = "", python: str = "", args: Sequence[str] = ()
) -> Prepared:
    """Run `script` of the experiment with `args`, so that it writes into `out`, and check what it wrote.

    Args:
        out: an empty folder, or one that does not exist; the script finds it as TUNEPORT_OUTPUT_DIR.
        script: a file of the experiment; left out where there is one `prepare_*.py` alone.
        python: the interpreter; left out, that of the release's installed runtime.

    Raises:
        NotFound: no such experiment or script. Unavailable: no interpreter to run it.
        Invalid: the folder is not empty, or the script failed.
    """
    written = project.read(experiment)
    path = _script(written.path, script)
    interpreter = _interpreter(written, python)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        hint = "name an empty folder, or one that does not exist"
        raise Invalid(f"{out} is not an empty folder", code="prepare-out", hint=hint)
    out.mkdir(parents=True, exist_ok=True)
    try:
        _run([interpreter, str(path), *args], {**_env(written), "TUNEPORT_OUTPUT_DIR": str(out.absolute())})
    except BaseException:
        _emptied(out)
        raise
    found = {name: tables.read(out / name) for name in _written(out)}
    findings = [*_readable(out, found), *_judged(experiment, out, found)]
    return Prepared(out, path.name, found, tuple(ordered(findings)))


def _emptied(out: Path) -> None:
    """Take away what a script that failed wrote: the folder was empty, so all of it is the script's."""
    for path in out.iterdir() if out.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _written(out: Path) -> list[str]:
    """The files that the script wrote.

    Raises:
        Invalid: there are none, or some are no plain files.
    """
    try:
        return reading.listing(out)
    except Invalid as error:
        if error.code == "dataset-empty":
            hint = "write train.parquet or train.jsonl to the folder that TUNEPORT_OUTPUT_DIR names"
            raise Invalid(
                "the script ended well and wrote no file", code="prepare-no-train", hint=hint
            ) from None
        message = f"what the script wrote to {out} is not all plain files"
        hint = "correct the script, and name another folder or empty this one"
        raise Invalid(message, code=error.code, hint=hint, findings=error.findings) from None


def _script(folder: Path, wanted: str) -> Path:
    found = sorted(path.name for path in folder.glob(PATTERN) if path.is_file())
    if wanted:
        path = folder / wanted
        if Path(wanted).name != wanted or not path.is_file():
            hint = f"it has {', '.join(found)}" if found else ""
            raise NotFound(f"the experiment has no file {wanted!r}", code="prepare-script", hint=hint)
        return path
    if not found:
        hint = f"write one, such as {folder / 'prepare_data.py'}: it writes files to TUNEPORT_OUTPUT_DIR"
        raise NotFound(f"the experiment has no {PATTERN}", code="prepare-script", hint=hint)
    if len(found) > 1:
        message = f"the experiment has several scripts: {', '.join(found)}"
        raise Invalid(message, code="prepare-script", hint=f"--script {found[0]}")
    return folder / found[0]


def _interpreter(written: project.Written, given: str) -> str:
    """The interpreter that was given, or that of an installed environment of the experiment's release."""
    from tuneport.runtimes.variants import variants
    from tuneport.runtimes.venvs import find_built

    if given:
        return given
    if written.lock is None:
        raise Invalid(
            f"{written.name} has no usable lock", code="lock-missing", findings=list(written.findings)
        )
    framework, version = written.lock["framework"]["kind"], written.lock["framework"]["version"]
    for variant in variants(catalog.release_spec(framework, version), framework).values():
        built = find_built(variant)
        if built is not None:
            return str(built.interpreter)
    raise Unavailable(
        f"no environment of {framework} {version} is installed here",
        code="prepare-python",
        hint=f"--python INTERPRETER, or tp runtime install {framework}@{version}",
    )


def _env(written: project.Written) -> dict[str, str]:
    """This environment with what project and job.yaml add to it, as a job would find it."""
    shared = written.project.spec.get("env", {}) if written.project else {}
    added = {**shared, **written.job.data.get("env", {})}
    return {**os.environ, **{name: str(value) for name, value in added.items()}}


def _run(words: list[str], env: Mapping[str, str]) -> None:
    """What the script prints goes to stderr: stdout is for the result."""
    sys.stderr.flush()
    try:
        code = subprocess.run(words, env={**env, "PYTHONUNBUFFERED": "1"}, stdout=sys.stderr).returncode
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Unavailable(f"{words[0]} cannot be run: {why}", code="prepare-python") from error
    except ValueError as error:  # half a character, or NUL, in a word
        raise Invalid(f"the script cannot be started: {error}", code="prepare-failed") from error
    if code:
        end = f"was ended by {_signal(-code)}" if code < 0 else f"ended with exit code {code}"
        raise Invalid(
            f"{Path(words[1]).name} {end}",
            code="prepare-failed",
            hint="it may have needed more memory than there is"
            if code == -signal.SIGKILL
            else "what it printed is above",
        )


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _readable(out: Path, found: Mapping[str, Mapping[str, Json]]) -> list[Finding]:
    """Findings about the files themselves."""
    findings = []
    if not any(_split(name) == "train" for name in found):
        message = f"the script wrote no training data: {', '.join(sorted(found)[:10])}"
        hint = "name the file train.parquet or train.jsonl"
        findings.append(Finding("prepare-no-train", "error", message, hint, "train"))
    for name, facts in found.items():
        if Path(name).suffix not in tables.KINDS:
            continue
        line, why = tables.broken_line(out / name) if Path(name).suffix in tables.LINES else (0, "")
        if line:
            message = f"line {line} of {name} cannot be read: {why}"
            findings.append(Finding("prepare-unreadable", "error", message, "", name, name, line))
        elif not facts and (_split(name) or Path(name).suffix != ".json"):  # what else JSON may hold
            message = f"{name} cannot be read: it is damaged or not what its ending says"
            findings.append(Finding("prepare-unreadable", "error", message, "", name, name))
        elif not facts.get("rows", 1):
            message = f"{name} holds no rows"
            findings.append(Finding("prepare-empty", "error", message, "", name, name))
    return findings


def _judged(experiment: str, out: Path, found: Mapping[str, Mapping[str, Json]]) -> list[Finding]:
    """What the method says about the data: the findings that are not there for every other kind of file of
    which nothing is known."""
    names = {_split(name): name for name in sorted(found, reverse=True)}
    if "train" not in names:
        return []

    def about(folder: Path, suffix: str = "") -> tuple[Finding, ...]:
        files = {split: (folder / name).absolute() for split, name in names.items()}
        paths = {split: str(file.with_suffix(suffix or file.suffix)) for split, file in files.items()}
        given = Flags(train_data=paths["train"], validation_data=paths.get("validation", ""))
        return workflow.validate(experiment, given).findings

    try:
        unseen = (about(out / "nowhere", suffix) for suffix in (".parquet", ".jsonl"))
        before = set.intersection(*({(finding.code, finding.key) for finding in known} for known in unseen))
        after = about(out)
    except TuneportError as error:
        return [Finding(error.code, "error", error.message, error.hint)]
    return [finding for finding in after if (finding.code, finding.key) not in before]


def _split(name: str) -> str:
    """`train`, `validation`, or nothing for a file that is neither."""
    path = Path(name)
    if path.suffix not in tables.KINDS:
        return ""
    return SPLITS.get(path.stem.partition("-")[0].partition("_")[0].lower(), "")
