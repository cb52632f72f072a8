"""Pairs of a removed and an added key that are probably one, with the evidence for each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tuneport.types import Json, Key
from tuneport.upstream.scan import Scan
from tuneport.upstream.words import Said

ENOUGH = 0.5
_MANY = 60  # functions that read a name: more, and it is a word that everything has
_MAX_PAIRS = 400_000  # of an entry; a release that changed so much is another program


@dataclass(frozen=True, slots=True)
class Move:
    """A key that is called otherwise since, at some entries. `evidence` names what speaks for it, the
    strongest first; `confidence` is its weight, from `ENOUGH` to 1."""

    old: str
    new: str
    evidence: tuple[str, ...]
    confidence: float
    entries: tuple[str, ...] = ()

    def document(self) -> dict[str, Json]:
        """As `tp upstream diff --json` has it."""
        return {
            "from": self.old,
            "to": self.new,
            "evidence": list(self.evidence),
            "confidence": self.confidence,
            "entries": list(self.entries),
        }


_CLASS = "_target_"
_OFF = ("off", "no", "none", "disabled", "disable", "never")
Weighed = tuple[float, str, str, list[str]]


def moves(
    old: Scan, new: Scan, gone: Mapping[str, Mapping[str, Key]], come: Mapping[str, Mapping[str, Key]]
) -> tuple[Move, ...]:
    """The moves among the keys that are gone from an entry and those that have come to it, the surest first.
    Each key is in one move of an entry at most, but for a new one that the releases' own words call the heir
    of several.

    Args:
        gone, come: entry -> native key -> what is known of it.
    """
    said = Said(old, new)
    every = {after: now for arrived in come.values() for after, now in arrived.items()}
    heirs: dict[str, dict[str, str]] = {}
    known: dict[tuple[str, str], tuple[float, list[str]]] = {}
    found: dict[tuple[str, str], Move] = {}
    for entry, left in gone.items():
        arrived = come.get(entry, {})
        if not left or not arrived or len(left) * len(arrived) > _MAX_PAIRS:
            continue
        weighed: list[Weighed] = []
        for before, was in left.items():
            if before.endswith(_CLASS):
                continue  # it names what a branch is, and is no setting of its own
            if before not in heirs:
                heirs[before] = said.heirs(before, was, every)
            words = heirs[before]
            for after, now in arrived.items():
                if (before, after) not in known:
                    known[before, after] = _weigh(old, new, was, now, said)
                weight, evidence = known[before, after]
                if after in words:
                    weight, evidence = weight + 0.6, [words[after], *evidence]
                if weight > 0.25:
                    weighed.append((weight, before, after, evidence))
        for move in _chosen(_together(weighed), left, arrived):
            pair = (move.old, move.new)
            before_ = found.get(pair, move)
            found[pair] = replace(before_, entries=(*before_.entries, entry))
    return tuple(sorted(found.values(), key=lambda move: (-move.confidence, move.old, move.new)))


def _chosen(weighed: list[Weighed], gone: Mapping[str, Key], come: Mapping[str, Key]) -> list[Move]:
    weighed.sort(key=lambda item: (-item[0], item[1], item[2]))
    found: dict[str, Move] = {}
    taken: set[str] = set()
    heirs: dict[str, str] = {}
    for weight, before, after, evidence in weighed:
        named = evidence[0].startswith("says:")
        free = before not in found and (after not in taken or named)
        if weight < ENOUGH or not free:
            continue
        # Keys that one line or class declares, for several branches, are one key: so is what follows them.
        same = heirs.setdefault(gone[before].source, come[after].source) == come[after].source
        if same and heirs.setdefault(_declared(before), _declared(after)) == _declared(after):
            found[before] = Move(before, after, tuple(evidence), round(min(weight, 1.0), 2))
            taken.add(after)
    return list(found.values())


def _declared(name: str) -> str:
    """What a key is called where it is declared: its branch's last name and its own."""
    parts = name.split(".")
    return ".".join(parts[-2:]) if len(parts) > 2 else name


def _weigh(old: Scan, new: Scan, was: Key, now: Key, said: Said) -> tuple[float, list[str]]:
    first, second = was.name.rpartition(".")[2], now.name.rpartition(".")[2]
    evidence: list[str] = []
    weight = 0.0
    if not _compatible(was, now):
        return 0.0, []
    if first == second:
        weight += 0.45 + 0.3 * _shared(was.name, now.name)
        evidence.append(f"the same last name {first}")
    else:
        alike = _alike(was.name, now.name)
        weight += 0.5 * alike
        if alike >= 0.3:
            evidence.append(f"alike names, {round(100 * alike)} % of their words")
        before, after = old.code.readers.get(first, set()), new.code.readers.get(second, set())
        if before & after and len(before | after) < _MANY:
            weight += 0.25 * len(before & after) / min(len(before), len(after))
            evidence.append(f"read by the same {min(before & after)}")
    if set(was.types) == set(now.types):
        weight += 0.05
        evidence.append(f"the same types {' '.join(sorted(was.types))}")
    plain = was.default is None or was.default in (0, 1, "", [], {}) or isinstance(was.default, bool)
    if was.default == now.default and type(was.default) is type(now.default) and was.required == now.required:
        weight += 0.05 if plain else 0.2
        evidence.append(f"the same default {was.default!r}" if not was.required else "both required")
    elif was.default is False and str(now.default).lower() in _OFF:
        weight += 0.15
        evidence.append(f"off by default, as {now.default!r} now")
    elif not plain:
        weight -= 0.1
    if was.choices and set(was.choices) == set(now.choices):
        weight += 0.2
        evidence.append("the same choices")
    if weight > 0.2:
        words = said.alike(was, now)
        weight += 0.25 * words
        if words >= 0.3:
            evidence.append(f"described alike, {round(100 * words)} % of the words")
    return weight, evidence


def _compatible(was: Key, now: Key) -> bool:
    """Whether some value could be of both. A switch may have become a word."""
    kinds, others = set(was.types) - {"null"}, set(now.types) - {"null"}
    either = kinds | others
    numbers = bool(kinds & {"int", "float"}) and bool(others & {"int", "float"})
    open_ = not kinds or not others or "any" in either or "str" in either
    return open_ or numbers or bool(kinds & others)


def _together(weighed: list[Weighed]) -> list[Weighed]:
    """Pairs of one renamed branch speak for each other."""
    branches: dict[tuple[str, str], set[str]] = {}
    for weight, before, after, _ in weighed:
        if weight >= 0.4:
            branches.setdefault(_change(before, after), set()).add(before)
    found = []
    for weight, before, after, evidence in weighed:
        change = _change(before, after)
        others = len(branches.get(change, set()) - {before})
        if others and all(change):
            evidence = [*evidence, f"{others} more of {change[0]} are at {change[1]}"]
            weight += min(0.2, 0.1 * others)
        found.append((weight, before, after, evidence))
    return found


def _change(before: str, after: str) -> tuple[str, str]:
    """What differs of two dotted names once equal parts at both ends are taken off."""
    first, second = before.split("."), after.split(".")
    while first and second and first[-1] == second[-1]:
        first, second = first[:-1], second[:-1]
    return ".".join(first), ".".join(second)


def _shared(before: str, after: str) -> float:
    """How much of two branches is one; a key without a branch has none to disagree with."""
    first, second = set(before.split(".")[:-1]), set(after.split(".")[:-1])
    return len(first & second) / len(first | second) if first and second else 1.0


def _tokens(name: str) -> list[str]:
    return [part for part in re.split(r"[._-]+", name.lower()) if part]


def _alike(before: str, after: str) -> float:
    """How much of the words of two names is shared; a few that were put in front cost little."""
    first, second = _tokens(before), _tokens(after)
    whole, other = set(_spelled(first, second)), set(_spelled(second, first))
    both = len(whole & other)
    return 0.5 * both / max(1, len(whole | other)) + 0.5 * both / max(1, min(len(whole), len(other)))


def _spelled(words: list[str], others: list[str]) -> list[str]:
    """The words, an abbreviation written out where the other name has the words that it is made of."""
    found: list[str] = []
    for word in words:
        runs = (
            [others[at : at + len(word)] for at in range(len(others) - len(word) + 1)]
            if len(word) > 1
            else []
        )
        found += next((run for run in runs if "".join(part[0] for part in run) == word), [word])
    return found
