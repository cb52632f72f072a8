"""Which checks of two releases are not the same."""

from __future__ import annotations

from collections.abc import Sequence

from tuneport.upstream.raises import Check


def checks_changed(old: Sequence[Check], new: Sequence[Check]) -> tuple[tuple[str, Check], ...]:
    """(`added`, `removed` or `changed`, the check) in the order of the files. A check is the same wherever it
    stands; one of the same function that reads the same keys on another condition is changed."""
    gone, come = _without(old, new), _without(new, old)
    found: list[tuple[str, Check]] = []
    for check in come:
        before = next((item for item in gone if _place(item) == _place(check)), None)
        if before is not None:
            gone.remove(before)
        found.append(("changed" if before is not None else "added", check))
    found += [("removed", check) for check in gone]
    return tuple(sorted(found, key=lambda item: (item[1].file, item[1].line, item[0])))


def _without(some: Sequence[Check], others: Sequence[Check]) -> list[Check]:
    left: dict[tuple[object, ...], int] = {}
    for check in others:
        left[_facts(check)] = left.get(_facts(check), 0) + 1
    found = []
    for check in some:
        if left.get(_facts(check), 0):
            left[_facts(check)] -= 1
        else:
            found.append(check)
    return found


def _facts(check: Check) -> tuple[object, ...]:
    return (check.kind, check.names, check.operators, tuple(map(repr, check.values)))


def _place(check: Check) -> tuple[object, ...]:
    return (check.symbol.rpartition(".")[2], check.kind, frozenset(check.names))
