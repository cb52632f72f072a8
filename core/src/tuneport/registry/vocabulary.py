"""The vocabulary: canonical parameters, which methods of every framework share."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tuneport.errors import TuneportError
from tuneport.types import Finding, Json


@cache
def words() -> dict[str, dict[str, Json]]:
    """The canonical parameters: name -> title, meaning, unit, type. Sources may add words, not change one."""
    from tuneport.registry import store
    from tuneport.registry.sources import sources

    paths = [source.folder / "vocabulary.yaml" for source in sources()[0]]
    stamps = [[str(path), path.stat().st_mtime_ns, path.stat().st_size] for path in paths if path.is_file()]
    kept = store.load("vocabulary", stamps)
    if not isinstance(kept, dict):
        kept = {}
        for path, _, _ in stamps:
            for name, word in _read(Path(str(path)))[0].items():
                kept.setdefault(name, word)
        store.save("vocabulary", stamps, kept)
    return kept


def problems() -> list[Finding]:
    """Why a source's vocabulary is not used."""
    from tuneport.registry.sources import sources

    paths = (source.folder / "vocabulary.yaml" for source in sources()[0])
    return [problem for path in paths if path.is_file() for problem in _read(path)[1]]


def _read(path: Path) -> tuple[dict[str, dict[str, Json]], list[Finding]]:
    """One source's words; none where its file is broken, which costs nobody else theirs."""
    from tuneport.experiment.yamlread import read_yaml
    from tuneport.registry import schemas

    try:
        document = read_yaml(path)
    except TuneportError as error:
        return {}, [Finding(error.code, "error", error.message, error.hint, "", str(path), 0)]
    problems = [*document.findings] or schemas.check(document, "vocabulary", "manifest-schema")
    return ({} if problems else document.data["parameters"]), problems
