"""Changes config.yaml and recipe.lock.json together: a process that is killed between leaves a note of both,
which the next command names and the next upgrade completes.

The note holds the whole new content and the digests of the old, so that completing it needs nothing else, and
a file that somebody edited since is not written over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tuneport.errors import Invalid
from tuneport.experiment.yamlread import read_text
from tuneport.registry.digest import sha256
from tuneport.types import Finding

NOTE = ".tuneport-upgrade.json"
_LIMIT = 16 * 1024 * 1024


def change(folder: Path, files: Mapping[str, str]) -> None:
    """Write these files of an experiment, all of them or, after a crash, as soon as `complete` is called.

    Args:
        files: name -> new content; a name that is not there yet is created.
    """
    from tuneport.experiment.create import write_atomic

    note = {name: {"was": _digest(folder / name), "text": text} for name, text in files.items()}
    write_atomic(folder / NOTE, json.dumps(note, ensure_ascii=False))
    _write(folder, files)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    from tuneport.experiment.create import write_atomic

    for name, text in files.items():
        write_atomic(folder / name, text)
    (folder / NOTE).unlink(missing_ok=True)  # another process may have completed it


def complete(folder: Path) -> bool:
    """Finish a change that was interrupted; True where there was one.

    Raises:
        Invalid: a file was edited since, or the note is not one that this module wrote.
    """
    path = folder / NOTE
    if not (path.exists() or path.is_symlink()):
        return False
    hint = f"look at both files, then delete {path}"
    try:
        note = json.loads(read_text(path, _LIMIT))
        files = {str(name): str(item["text"]) for name, item in note.items()}
        before = {name: item["was"] for name, item in note.items()}
        after = {name: _digest_of(text) for name, text in files.items()}
        if not files.keys() <= {"config.yaml", "recipe.lock.json"}:
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Invalid(f"{path} is no note of an upgrade", code="upgrade-unfinished", hint=hint) from None
    for name in files:
        if _digest(folder / name) not in (before[name], after[name]):
            message = f"{folder / name} was edited after an upgrade of it was interrupted"
            raise Invalid(message, code="upgrade-unfinished", hint=hint)
    _write(folder, files)
    return True


def unfinished(folder: Path) -> list[Finding]:
    """What to say of an experiment whose upgrade was interrupted."""
    path = folder / NOTE
    if not (path.exists() or path.is_symlink()):
        return []
    message = "an upgrade of this experiment was interrupted: its files may belong to two releases"
    hint = "`tp recipe upgrade EXP` completes it"
    return [Finding("upgrade-unfinished", "error", message, hint, NOTE, str(path))]


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _digest_of(text: str) -> str:
    return sha256(text.encode("utf-8")).hexdigest()
