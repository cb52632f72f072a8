"""Finds where methods disagree about what a parameter's name means."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tuneport.registry import catalog, vocabulary
from tuneport.types import Method


def conflicts(framework: str, release: str) -> list[str]:
    """Sentences about the methods of one release: one name for two things, or two names for one thing.

    Methods of one program share its keys, so that is where two names, or two keys, can be told apart from two
    meanings. The vocabulary's `shares` lists the names that may write one key together.
    """
    rows = catalog.methods(framework)
    methods = [catalog.method(name, release) for name, _, problem in rows if not problem]
    return [*_two_names(methods), *_two_things(methods), *_units(methods)]


def _two_names(methods: list[Method]) -> Iterator[str]:
    shared = _shared()
    names: dict[tuple[object, ...], set[str]] = defaultdict(set)
    for method in methods:
        for name, param in method.params.items():
            if param.keys:
                names[(method.spec.get("entry", ""), param.keys, param.times, param.over)].add(name)
    for (entry, keys, *_), found in names.items():
        first, *others = sorted(found)
        for other in others:
            if frozenset((first, other)) not in shared:
                yield f"{entry}: {first} and {other} are two names of {keys}"


def _two_things(methods: list[Method]) -> Iterator[str]:
    seen: dict[tuple[str, str], tuple[Method, tuple[str, ...]]] = {}
    for method in methods:
        for name, param in method.params.items():
            entry = str(method.spec.get("entry", method.id))
            before, keys = seen.setdefault((entry, name), (method, param.keys))
            same_program = before.spec.get("identity", {}).keys() == method.spec.get("identity", {}).keys()
            if keys != param.keys and same_program:
                yield f"{name} is {keys} in {before.id} and {param.keys} in {method.id}"


def _units(methods: list[Method]) -> Iterator[str]:
    """Where answers are sampled to prompts, batches are counted in prompts; elsewhere in examples."""
    for method in methods:
        sampled = "rollouts_per_prompt" in method.params
        wrong = {"batch_size"} if sampled else {"mini_batch_size", "ppo_epochs"}
        for name in sorted(wrong & method.params.keys()):
            unit = vocabulary.words()[name].get("unit", "")
            yield f"{method.id} has {name} ({unit}) and {'samples' if sampled else 'does not sample'} answers"


def _shared() -> set[frozenset[str]]:
    pairs = {
        frozenset((name, other))
        for name, word in vocabulary.words().items()
        for other in word.get("shares", ())
    }
    # Names that share with one name share with each other.
    for _ in range(2):
        pairs |= {one ^ two for one in pairs for two in pairs if len(one & two) == 1}
    return pairs
