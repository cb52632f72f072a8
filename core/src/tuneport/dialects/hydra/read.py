"""An existing argument list as settings: what each word does, in order, under the rules of Hydra 1.3.

Hydra composes the chosen files, closes the result so that unknown keys are refused, and applies the
overrides one after the other. So does this, on the keys of a surface.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from tuneport.checks.rules import nested
from tuneport.checks.surface import MAX_UNKNOWN
from tuneport.checks.undecided import UNDECIDED
from tuneport.dialects.hydra.defaults import Tree
from tuneport.dialects.hydra.interpolate import Resolver, Unresolved
from tuneport.dialects.hydra.parse import Override, OverrideError, parse_override
from tuneport.dialects.hydra.render import branches_of, equal
from tuneport.shell.gaps import Word, open_
from tuneport.text import closest_key
from tuneport.types import EMPTY, Finding, Json, Key

_FLAGS = "--help -h,--hydra-help,--version,--resolve,--run -r,--multirun -m,--shell-completion -sc"
_WITH_VALUE = (
    "--cfg -c,--package -p,--config-path -cp,--config-name -cn,--config-dir -cd,--experimental-rerun"
)
_OWN_FLAGS = frozenset(name for name in re.split("[ ,]", f"{_FLAGS},{_WITH_VALUE}") if name)
_DASHED = re.compile(r"--?[A-Za-z_][\w@/-]*(?:\.[\w@-]+)*=")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")
_DOCS = "hydra-core 1.3 hydra/_internal/config_loader_impl.py"


@dataclass(slots=True)
class Words:
    """An argument list taken apart: Hydra's own flags and the overrides, with what is wrong in them."""

    flags: dict[str, str] = field(default_factory=dict)
    overrides: list[Override] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


@dataclass(slots=True)
class Applied:
    """What the overrides do to the composed keys. `own` holds what was set, by key; `added` those of them
    that came with `+`; `deleted` the keys taken out; `places` where a script sets a key."""

    own: dict[str, Json] = field(default_factory=dict)
    added: set[str] = field(default_factory=set)
    deleted: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    places: dict[str, Word] = field(default_factory=dict)


class _Stop(Exception):
    pass


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Stop(message)


def take_apart(arguments: Sequence[str]) -> Words:
    """Sort an argument list into flags and overrides."""
    parser = _Parser(prog="hydra", add_help=False)
    for names in _FLAGS.split(","):
        parser.add_argument(*names.split(), action="store_true")
    for names in _WITH_VALUE.split(","):
        parser.add_argument(*names.split())
    parser.add_argument("--info", "-i", const="all", nargs="?")
    parser.add_argument("overrides", nargs="*")
    words = Words()
    try:
        parsed = vars(parser.parse_args(list(arguments)))
    except _Stop as refusal:
        key = next((word for word in arguments if word.startswith("-")), "")
        hint = "write the flags before the overrides"
        dashed = next((word for word in arguments if _DASHED.match(word)), "")
        if dashed and dashed.partition("=")[0] not in _OWN_FLAGS:
            key, hint = dashed, f"an override has no dashes: write {dashed.lstrip('-')[:80]}"
        words.findings.append(Finding("hydra-flag", "error", str(refusal)[:200], hint, key))
        parsed = {"overrides": [word for word in arguments if not word.startswith("-") and "=" in word]}
    read_overrides(parsed.pop("overrides"), words)
    words.flags = {name: str(value) for name, value in parsed.items() if value}
    return words


def read_overrides(arguments: Sequence[str], into: Words) -> None:
    """Read words that are overrides; one that cannot be read is a finding."""
    for text in arguments:
        try:
            into.overrides.append(_override(text))
        except OverrideError as error:
            into.findings.append(placed(_unreadable(text, error), text))


def _override(text: str) -> Override:
    if not open_(text):
        return parse_override(text)
    known = parse_override(text.partition("=")[0] + "=x")
    return known._replace(text=text, value=UNDECIDED)


def placed(finding: Finding, text: str) -> Finding:
    """A finding with the place of the word that it is about, where that comes from a script."""
    return replace(finding, file=text.file, line=text.line) if isinstance(text, Word) else finding


def _unreadable(text: str, error: OverrideError) -> Finding:
    key = text.partition("=")[0].lstrip("+~")
    shown = text if len(text) <= 80 else text[: error.at][-30:] + "…"
    shown = shown if key[:60] in shown else f"{key[:60]}=…{shown}"
    message = f"{shown!r} cannot be read: {error.message} (character {error.at + 1})"
    hint = "quote the value for Hydra, inside the shell's own quotes: \"key='…'\""
    if "=" not in text:
        hint = "an override is key=value; a value with blanks needs quotes around the whole word"
    return Finding("hydra-syntax", "error", message, hint, key)


def choices(words: Words, tree: Tree) -> tuple[dict[str, Json], list[Override], list[Finding]]:
    """(settings that choose files, the other overrides, findings)."""
    chosen: dict[str, Json] = {}
    others: list[Override] = []
    findings: list[Finding] = []
    if "config_name" in words.flags:
        chosen["--config"] = words.flags["config_name"]
    for word in words.overrides:
        group = word.key.startswith("hydra/") or tree.is_group(word.key)
        if word.key.startswith(("hydra.", "hydra/")) or word.key == "hydra":
            continue  # of Hydra itself, not of the program
        if not group or isinstance(word.value, dict):
            if word.package is not None:
                message = f"{word.text!r} looks like a choice of files, but there is no group {word.key!r}"
                unknown = Finding("group-unknown", "error", message, "", word.key, source=_DOCS)
                findings.append(placed(unknown, word.text))
            else:
                others.append(word)
            continue
        name = word.key if word.package is None else f"{word.key}@{word.package}"
        finding = _choose(word, name, chosen)
        if finding is not None:
            findings.append(placed(finding, word.text))
    return chosen, others, findings


def _choose(word: Override, name: str, chosen: dict[str, Json]) -> Finding | None:
    if word.kind == "sweep":
        return _sweep(word)
    if word.sign == "++":
        return Finding("hydra-add", "error", f"{word.text!r}: a choice takes one + at most", "", name)
    if word.sign == "~":
        chosen[f"~{name}"] = word.value if isinstance(word.value, str) else ""
        return None
    if word.value is UNDECIDED:
        chosen[name] = UNDECIDED
        return None
    if not isinstance(word.value, str):
        return Finding("group-option", "error", f"`{name}` takes the name of an option", "", name)
    key = f"+{name}" if word.sign else name
    before = chosen.get(key)
    chosen[key] = word.value
    if before is not None and word.sign:
        return Finding("group-twice", "error", f"`{name}` is added twice", "delete one of them", name)
    return twice(name, before, word.value) if before is not None else None


def twice(name: str, before: Json, after: Json, first: str = "", last: str = "") -> Finding:
    same = equal(before, after) and UNDECIDED not in (before, after)
    what = f"{_show(before)}{_line(first)}, then {_show(after)}{_line(last)}; the last one counts"
    if same:
        what = f"the same value{_line(first)}{' and' if _line(first) and _line(last) else ''}{_line(last)}"
    message = f"`{name}` is given twice: {what}"
    return Finding("key-repeated", "note", message, "delete one of them", name)


def _line(text: str) -> str:
    return f" (line {text.line})" if isinstance(text, Word) and text.line else ""


def _sweep(word: Override) -> Finding:
    message = f"{word.text!r} names several values, which a single run refuses"
    hint = f"a list is {word.key}=[…]; text with a comma is {word.key}='…' inside the shell's quotes"
    return Finding("hydra-sweep", "error", message, hint, word.key)


def apply(
    overrides: Sequence[Override], keys: Mapping[str, Key], moves: Mapping[str, str] = EMPTY
) -> Applied:
    """Apply overrides in order to a composed configuration.

    Args:
        moves: old key -> what it is called now.
    """
    tree, branches = _composed(keys)
    state = _State(keys, _copy(tree), branches, moves)
    for word in overrides:
        state.apply(word)
    if state.absent > MAX_UNKNOWN:
        message = f"{state.absent - MAX_UNKNOWN} more keys that are not there"
        state.applied.findings.append(Finding("key-unknown", "error", message, "mend those above first"))
    return state.applied


_TREES: dict[int, tuple[Mapping[str, Key], dict[str, Any], frozenset[str]]] = {}
MAX_TREES = 64


def _composed(keys: Mapping[str, Key]) -> tuple[dict[str, Any], frozenset[str]]:
    """(the tree that some keys make, its branches). Kept, since many commands are applied to one release; the
    keys are kept along, so that no other mapping can have their id."""
    held = _TREES.get(id(keys))
    if held is None:
        known = {name: "???" if key.required else key.default for name, key in keys.items() if not key.add}
        if len(_TREES) >= MAX_TREES:
            _TREES.clear()
        held = _TREES[id(keys)] = keys, nested(known), branches_of(keys)
    return held[1], held[2]


class _State:
    def __init__(
        self,
        keys: Mapping[str, Key],
        tree: dict[str, Any],
        branches: frozenset[str],
        moves: Mapping[str, str],
    ) -> None:
        self._keys, self._tree, self._branches, self._moves = keys, tree, branches, moves
        self._first: dict[str, tuple[Json, str]] = {}
        self._text = ""  # the word that is being applied
        self._names: list[str] = []  # what an unknown key may have meant
        self._above: set[str] = set()  # every key that something was set below
        self.absent = 0
        self.applied = Applied()

    def apply(self, word: Override) -> None:
        self._text = word.text
        if word.kind == "sweep":
            self._say(_sweep(word))
            return
        if word.kind == "call":
            message = f"{word.text!r} is a cast, whose result is not judged here"
            self._say(Finding("hydra-cast", "note", message, "write the value itself", word.key))
        if not word.key:
            self._say(Finding("hydra-syntax", "error", f"{word.text!r} names no key", "", word.text))
            return
        try:
            if word.sign == "~":
                self._delete(word)
                return
            path = word.key.split(".")
            if word.sign == "+":
                self._free_for(word, path)
            self._update(path, word, force=bool(word.sign))
        except _Stop as refusal:
            key = self._keys.get(word.key)
            self.absent += str(refusal) == "absent" and not (key and key.add)
            if str(refusal) != "absent" or self.absent <= MAX_UNKNOWN:
                self._say(self._refusal(word, str(refusal)))
            return
        self._own(word)

    def _say(self, finding: Finding) -> None:
        self.applied.findings.append(placed(finding, self._text))

    def _refusal(self, word: Override, why: str) -> Finding:
        key = self._keys.get(word.key)
        if why == "there":
            message = f"`{word.key}` is there already, so +{word.key} is refused"
            hint = f"write {word.key}=… without +"
            return Finding("key-exists", "error", message, hint, word.key, source=_DOCS)
        if why == "absent" and key is not None and key.add:
            message = f"`{word.key}` is not in the configuration until it is added"
            hint = f"write +{word.key}=…"
            return Finding("key-needs-plus", "error", message, hint, word.key, source=_DOCS)
        if why == "absent" and word.key in self._moves:
            new = self._moves[word.key]
            message = f"there is no key `{word.key}` any more: it is `{new}` now"
            return Finding("key-moved", "error", message, f"write {new}=…", word.key, source=_DOCS)
        if why == "absent":
            self._names = self._names or [name for name, item in self._keys.items() if not item.add]
            close = closest_key(word.key, self._names)
            hint = f"did you mean `{close}`?" if close else f"+{word.key}=… adds a new key"
            if self._below_free(word.key):
                hint = f"write +{word.key}=…"
            return Finding(
                "key-unknown", "error", f"there is no key `{word.key}`", hint, word.key, source=_DOCS
            )
        return Finding("hydra-override", "error", f"{word.text!r}: {why}", "", word.key, source=_DOCS)

    def _below_free(self, name: str) -> bool:
        """Whether a key lies in a mapping that takes any key."""
        while "." in name:
            name = name.rpartition(".")[0]
            if name in self._keys and not self._keys[name].add:
                return "dict" in self._keys[name].types or "any" in self._keys[name].types
        return False

    def _find(self, path: Sequence[str]) -> Any:
        here: Any = self._tree
        for step in path:
            if isinstance(here, dict) and step in here:
                here = here[step]
            elif (
                isinstance(here, list) and step.lstrip("-").isdigit() and -len(here) <= int(step) < len(here)
            ):
                here = here[int(step)]
            else:
                return None
        return None if isinstance(here, str) and here == "???" else here

    def _free_for(self, word: Override, path: Sequence[str]) -> None:
        if isinstance(word.value, dict | list):
            return
        if self._find(path) is not None or self._elsewhere(path) is not None:
            raise _Stop("there")

    def _through(self, path: list[str]) -> list[str]:
        """The place that a path leads to through plain references to other keys."""
        for count in range(1, len(path)):
            match = _REFERENCE.fullmatch(str(self._find(path[:count])))
            if match:
                return [*match[1].split("."), *path[count:]]
        return path

    def _elsewhere(self, path: Sequence[str]) -> Any:
        """What a key leads to through an interpolation above it."""
        for count in range(1, len(path)):
            above = self._find(path[:count])
            if isinstance(above, str) and "${" in above:
                try:
                    return Resolver(self._tree).select(".".join(path))
                except Unresolved:
                    return None
        return None

    def _delete(self, word: Override) -> None:
        path = self._through(word.key.split("."))
        present = self._find(path)
        if present is None:
            raise _Stop("there is nothing to delete")
        named = word.kind == "value" and word.value is not None and word.value is not UNDECIDED
        if named and not equal(word.value, present):
            raise _Stop(f"its value is {_show(present)}")
        parent = self._find(path[:-1]) if len(path) > 1 else self._tree
        if not isinstance(parent, dict):
            raise _Stop("an item of a list cannot be deleted")
        del parent[path[-1]]
        key = ".".join(path)
        self.applied.deleted.append(key)
        for name in [n for n in self.applied.own if n == key or n.startswith(key + ".")]:
            del self.applied.own[name]
        self._keep_mapping(path)

    def _keep_mapping(self, path: list[str]) -> None:
        """A plain value that gave way to a mapping does not come back when the mapping is emptied."""
        for count in range(1, len(path)):
            name, held = ".".join(path[:count]), self._find(path[:count])
            key = self._keys.get(name)
            if key is not None and isinstance(held, dict) and not isinstance(key.default, dict):
                self._give_way(name)
                self.applied.own[name] = _copy(held)
                return

    def _update(self, path: Sequence[str], word: Override, *, force: bool) -> None:
        here: Any = self._tree
        for step in path[:-1]:
            if isinstance(here, dict):
                below = here.get(step)
                if not isinstance(below, dict | list):  # an interpolation, too, gives way to a mapping
                    if not force and step not in here:
                        raise _Stop("absent")
                    below = here[step] = {}
                here = below
            else:
                here = self._item(here, step)
        self._put(here, path[-1], _copy(word.value), force)

    def _item(self, here: Any, step: str) -> Any:
        if not step.lstrip("-").isdigit() or not -len(here) <= int(step) < len(here):
            raise _Stop(f"a list has no {step}")
        return here[int(step)]

    def _put(self, here: Any, last: str, value: Any, force: bool) -> None:
        if isinstance(here, list):
            self._item(here, last)
            here[int(last)] = value
            return
        if not isinstance(here, dict):
            raise _Stop("absent")
        present = here.get(last)
        if isinstance(value, dict) and isinstance(present, dict):
            self._merge(present, value, force)
        elif (
            isinstance(value, dict | list)
            and isinstance(present, dict | list)
            and type(value) is not type(present)
        ):
            raise _Stop("a list and a mapping cannot be merged")
        elif last not in here and not force:
            raise _Stop("absent")
        else:
            here[last] = value

    def _merge(self, into: dict[str, Any], more: Mapping[str, Any], force: bool) -> None:
        for name, item in more.items():
            if isinstance(item, dict) and isinstance(into.get(name), dict):
                self._merge(into[name], item, force)
            elif name not in into and not force:
                raise _Stop("absent")
            else:
                into[name] = item

    def _own(self, word: Override) -> None:
        path = word.key.split(".")
        for count in range(1, len(path)):
            held = self._find(path[:count])
            if isinstance(held, list):  # one item was set: what is known is the list
                self.applied.own[".".join(path[:count])] = _copy(held)
                return
        for name, value in self._flat(word.key, word.value):
            self._give_way(name)
            if name in self._first:
                before, text = self._first[name]
                self._say(twice(name, before, value, text, word.text))
            self._first[name] = value, word.text
            if isinstance(word.text, Word):
                self.applied.places[name] = word.text
            self.applied.own[name] = _copy(self._find(name.split("."))) if isinstance(value, dict) else value
            if word.sign:
                self.applied.added.add(name)

    def _give_way(self, name: str) -> None:
        """What was set before and does not stand any more: a plain value above this key, which becomes a
        mapping, and keys below it, whose place is now this key's or in its value."""
        own = self.applied.own
        steps = name.split(".")
        parents = [".".join(steps[:count]) for count in range(1, len(steps))]
        gone = [key for key in parents if key in own and not isinstance(own[key], dict)]
        branch = name in self._branches and isinstance(self._find(steps), dict)  # it was merged into
        if name in self._above and not branch:
            gone += [key for key in own if key.startswith(f"{name}.")]
        self._above.update(parents)
        for key in gone:
            del own[key]
            self.applied.added.discard(key)

    def _flat(self, name: str, value: Json) -> list[tuple[str, Json]]:
        if isinstance(value, dict) and value and (name in self._branches or name not in self._keys):
            return [pair for key, item in value.items() for pair in self._flat(f"{name}.{key}", item)]
        return [(name, value)]


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy(item) for name, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _show(value: Json) -> str:
    if value is UNDECIDED:
        return "something that is not known"
    text = re.sub(r"\s+", " ", str(value))
    return text if len(text) <= 60 else text[:60] + "…"
