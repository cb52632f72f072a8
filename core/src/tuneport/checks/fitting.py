"""Which methods read the rows that a file has, set up as `tp new` writes them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tuneport.checks import columns
from tuneport.errors import TuneportError
from tuneport.experiment import create, lock
from tuneport.experiment.request import Flags
from tuneport.registry import catalog


def methods(framework: str, file: Path) -> Iterator[tuple[str, str]]:
    """(method, what it does), in the catalogue's order.

    Args:
        framework: only its methods; all where it is empty.
        file: rows to train on, absolute.
    """
    for name, _, problem in catalog.methods(framework):
        if problem:
            continue
        try:
            method = catalog.method(name)
            if columns.readings(method) and fits(name, file):
                yield name, str(method.spec.get("summary") or method.title)
        except TuneportError:  # said by whoever needs it
            continue


def fits(method: str, file: Path) -> bool:
    """Whether a new experiment with this training data reads its rows, with nothing else set.

    Raises:
        TuneportError: the method's manifest or templates are broken.
    """
    from tuneport import workflow

    made = lock.make(method, catalog.default_release(method.partition("/")[0]))
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "new"
        create.write_folder(place, {**catalog.templates(method), lock.NAME: lock.text(made)})
        compiled = workflow.validate(str(place), Flags(train_data=str(file))).compiled
    return compiled is not None and columns.takes(compiled.context)
