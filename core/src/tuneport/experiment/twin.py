"""A user's YAML file as it was parsed before, where not a byte of it has changed.

Loading the parser costs more than the rest of a command, and most commands look at files that they have
seen: the parsed form is kept in the index cache under the digest of the text.
"""

from __future__ import annotations

from pathlib import Path

from tuneport.experiment.yamlread import Document, parse_yaml, read_text
from tuneport.registry import store
from tuneport.registry.digest import sha256

MAX_KEPT = 64 * 1024
"""Characters of a file whose parsed form is kept; a larger one is parsed each time."""


def read_kept(path: Path) -> Document:
    """As `read_yaml`.

    Raises:
        NotFound: it does not exist. Invalid: it cannot be read as text of a sane size.
    """
    text = read_text(path)
    if len(text) > MAX_KEPT:
        return parse_yaml(text, str(path))
    name = f"yaml-{store.hash_text(str(path)):x}"
    key = sha256(text.encode("utf-8")).hexdigest()
    kept = store.load(name, key)
    if isinstance(kept, dict):
        lines = {tuple(place): line for place, line in kept["lines"]}
        raw = {tuple(place): word for place, word in kept["raw"]}
        return Document(data=kept["data"], file=str(path), lines=lines, raw=raw)
    document = parse_yaml(text, str(path))
    if not document.findings:
        places = {"lines": [*document.lines.items()], "raw": [*document.raw.items()]}
        store.save(name, key, {"data": document.data, **places})
    return document
