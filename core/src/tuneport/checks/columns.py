"""Whether the rows of the data are what the method learns from, by the method's `data`: columns and the kind
of value in each, as far as the first rows show them.

    data:
      - when: cfg.data.apply_chat_template       # a rule's expression: what this reading of rows depends on
        named: {prompt: {keys: [data.prompt_key], otherwise: input}}  # columns whose name a key decides
        rows: [{prompt: [text, messages], chosen: [text, messages], rejected: [text, messages]}]
        optional: {margin: [number]}             # judged where the column is there; null is always taken
        dropped: {prompt: true}                  # rows with null there are left out, and training goes on
        alike: [prompt, chosen, rejected]        # all text, or all messages, within the whole file
        instead: {input_ids_chosen: what to do where a known mistake is seen}
        items: {completions: {count: 2, apart: rank}}  # of a list: how many, and what tells them apart
        together: [images, labels]               # as many rows in each
        unread: {prompt: {hint: set prompt_key}} # is there, and the keys make nothing of it

A single reading may stand without the list. Every reading whose `when` holds is applied.
"""

from __future__ import annotations

import os.path
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuneport.experiment import tables
from tuneport.types import Context, Finding, Method

SPLITS = {"train": "--train-data", "validation": "--validation-data"}
WORDS = {
    "text": "text",
    "messages": "messages",
    "bool": "true or false",
    "number": "a number",
    "class": "a whole number from 0",
    "negative": "a negative number",
    "list": "a list that is no messages",
    "contents": "messages of which one says neither text nor parts",
    "record": "a record",
    "null": "null",
    "empty": "empty",
    "absent": "not there",
}
# What the types of a facts file say about every value; a list may be messages or none.
_TYPES = {"string": "text", "str": "text", "large_string": "text", "bool": "bool", "int64": "number"}
_TYPES |= {"int32": "number", "double": "number", "float": "number", "struct": "record"}
# What else a kind takes: a row may lack what may be null, since a table has null in its place.
_MEANS = {"null": ("absent",), "number": ("negative",), "class": ("number",)}
_FORM = Mapping[str, Sequence[str]]
_Shapes = Mapping[str, Mapping[str, int]]


def check(context: Context, unknown: Collection[str] = ()) -> Iterator[Finding]:
    """Findings about each file of the request whose columns are known.

    Args:
        unknown: keys whose value nobody knows; a reading that depends on one is not applied.
    """
    noted: set[str] = set()
    for split in SPLITS:
        files = list(_files(context, split, unknown))
        for file in files:
            yield from file.findings()
        facts = context.facts.get("data", {}).get(split, {})
        path = str(facts.get("path", ""))
        unseen = _unseen(facts, path) if readings(context.method) and path not in noted else ""
        if unseen and (files or not facts.get("columns")):
            noted.add(path)
            message = f"{SPLITS[split]} {os.path.basename(path)}: {unseen}"
            hint = "what is wrong there shows when the job reads it: check rows where they are made"
            if "wants" in facts:
                hint = f"`pip install '{facts['wants']}'` has its first rows looked into"
            yield Finding("data-unseen", "note", message, hint, SPLITS[split])


def takes(context: Context) -> bool:
    """Whether the rows of the training data are of the kinds that the method, as it is set up, reads: by one
    of the readings that apply, and by all that it makes beside (`also`). Columns that no key names are not
    asked for; a method without readings takes none."""
    files = list(_files(context, "train", ()))
    own = [file for file in files if not file.spec.get("also")]
    return any(file.takes() for file in own) and all(file.takes() for file in files if file.spec.get("also"))


def _files(context: Context, split: str, unknown: Collection[str]) -> Iterator[_File]:
    """The file of a split under each reading that applies to it; none where its columns are not known."""
    specs = readings(context.method)
    facts: Mapping[str, Any] = context.facts.get("data", {}).get(split, {})
    if not specs or not facts.get("columns"):
        return
    holds = _Conditions(context, specs, unknown)
    bound = context.method.spec.get("bind", {}).get("train_data", {}).get("key", SPLITS[split])
    flag = bound if split == "train" else SPLITS[split]
    for spec in specs:
        names = _names(spec, context, split, unknown)
        if names is not None and _applies(spec, split, context, holds):
            yield _File(spec, names, facts, (split, flag), context.method, holds)


def _unseen(facts: Mapping[str, Any], path: str) -> str:
    """What of a file was not looked into, if anything."""
    kind = tables.kind(Path(path))
    if facts.get("unseen") or not path or facts.get("columns") or kind in tables.KINDS:
        return str(facts.get("unseen", ""))
    return f"its rows were not looked into: {kind or 'its kind'} is none of {', '.join(tables.KINDS)}"


def readings(method: Method) -> list[Mapping[str, Any]]:
    """The method's readings of a row."""
    data = method.spec.get("data", [])
    return [data] if isinstance(data, Mapping) else list(data)


class _Conditions:
    """Evaluates `when` and the like over one context; nothing is set up where no reading has any."""

    def __init__(self, context: Context, specs: Sequence[Mapping[str, Any]], unknown: Collection[str]):
        asked = [
            condition
            for spec in specs
            for condition in (spec.get("when"), spec.get("validation"), *spec.get("dropped", {}).values())
        ]
        self._sources = tuple(condition for condition in asked if isinstance(condition, str))
        self._context, self._unknown = context, unknown
        self._engine: Any = None

    def __call__(self, condition: str | bool) -> bool:
        """Whether it is known to hold."""
        if isinstance(condition, bool):
            return condition
        from tuneport.checks.cel import Rules, Undecided
        from tuneport.checks.rules import variables
        from tuneport.checks.undecided import touches

        if self._unknown and touches([condition], self._unknown, ()):
            return False
        if self._engine is None:
            self._engine = Rules(variables(self._context), self._sources)
        try:
            return bool(self._engine.holds(condition))
        except Undecided:
            return False


def _applies(spec: Mapping[str, Any], split: str, context: Context, holds: _Conditions) -> bool:
    if any(context.own.get(key) for key in spec.get("unless", ())):
        return False
    return holds(spec.get("when", True)) and (split == "train" or holds(spec.get("validation", True)))


def _names(
    spec: Mapping[str, Any], context: Context, split: str, unknown: Collection[str]
) -> dict[str, tuple[str, str]] | None:
    """Name in the contract -> (column, the key that says so); a column whose key says none is not asked for
    and is left out. None where a key's value is not known."""
    found: dict[str, tuple[str, str]] = {}
    for name, how in spec.get("named", {}).items():
        keys = [key.replace("{split}", split) for key in how["keys"]]
        if not set(keys).isdisjoint(unknown):
            return None
        given = [(context.config[key], key) for key in keys if context.config.get(key) not in (None, "")]
        column, key = given[0] if given else (how.get("otherwise", ""), keys[-1])
        if not isinstance(column, str):
            return None
        found[name] = (column, key)
    return found


class _File:
    """One file held to one reading."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        names: Mapping[str, tuple[str, str]],
        facts: Mapping[str, Any],
        place: tuple[str, str],
        method: Method,
        holds: _Conditions,
    ) -> None:
        self.spec, self.names, self.method, self.holds = spec, names, method, holds
        split, self.key = place
        self.data = "data" if split == "train" else f"{split} data"
        self.where = "" if split == "train" else f"{split} data, "
        self.columns: list[str] = facts["columns"]
        types = {
            name: {_TYPES[kind]: 0} for name, kind in facts.get("column_types", {}).items() if kind in _TYPES
        }
        blank = {
            name: {"empty" if facts.get("column_types", {}).get(name) == "list" else "null": 0}
            for name in facts.get("columns_blank", ())
        }
        self.facts = facts
        self.shapes: _Shapes = {**types, **blank, **facts.get("shapes", {})}
        # A column of records has fields, where the file shows them.
        inner = [
            f"{name}.{field}" for name, fields in facts.get("column_fields", {}).items() for field in fields
        ]
        self.there = {*self.columns, *inner, *self.shapes}
        self.open = {name for name in self.columns if name not in facts.get("column_fields", {})}

    def takes(self) -> bool:
        """Whether every row that was looked into has one of the forms, and something was asked for."""
        forms = [form for form in map(self._named, self.spec["rows"]) if form]
        form = next((form for form in forms if all(map(self._known, form))), {})
        return bool(form) and all(
            set(self.shapes.get(name, ())) <= {*kinds(asked), "contents", "empty"}
            for name, asked in form.items()
        )

    def findings(self) -> Iterator[Finding]:
        forms = [self._named(form) for form in self.spec["rows"]]
        form = next((form for form in forms if not self._lacks(form)), None)
        yield from self._unread()
        yield from self._apart()
        if form is None:
            if not self.spec.get("open"):
                yield self._missing(forms)
            return
        asked = {**form, **self._optional()}
        found = [finding for name, kinds in asked.items() for finding in self._column(name, kinds)]
        yield from found
        if not any(finding.severity == "error" for finding in found):
            alike = (self._column_of(name) for name in self.spec.get("alike", ()))
            yield from self._mixed([name for name in alike if name in asked])

    def _named(self, form: _FORM) -> dict[str, Sequence[str]]:
        columns = {self._column_of(name): kinds for name, kinds in form.items()}
        return {name: kinds for name, kinds in columns.items() if name}

    def _column_of(self, name: str) -> str:
        column, brackets, field = name.partition("[]")
        return f"{self.names[column][0] if column in self.names else column}{brackets}{field}"

    def _lacks(self, form: _FORM) -> list[str]:
        return [name for name in form if name not in self.there and not self._unseen(name)]

    def _known(self, name: str) -> bool:
        """Whether it is there; what is said of items holds where there are none."""
        return name in self.there or ("[]" in name and self._unseen(name))

    def _unseen(self, name: str) -> bool:
        """Whether it is a field of a column whose fields nobody saw."""
        parent = name.partition(".")[0]
        if parent.endswith("[]"):
            return "record" not in self.shapes.get(parent, {})
        return parent != name and (parent in self.open or "record" not in self.shapes.get(parent, {}))

    def _optional(self) -> dict[str, Sequence[str]]:
        optional = self._named(self.spec.get("optional", {}))
        return {name: [*kinds, "null"] for name, kinds in optional.items() if name in self.there}

    def _placed(self, finding: Finding, column: str) -> Finding:
        """At the key that names the column, where the user may choose it; as light as the reading is."""
        said = next((key for name, key in self.names.values() if name == column and key), self.key)
        light = self.spec.get("severity") == "warning"
        return replace(finding, key=said, severity="warning" if light else finding.severity)

    def _missing(self, forms: Sequence[_FORM]) -> Finding:
        has = ", ".join(self.columns[:8]) + (", …" if len(self.columns) > 8 else "")
        near = min(forms, key=lambda form: (len(self._lacks(form)), -len(form)))
        lacks = self._lacks(near)
        message = f"the {self.data} has no column {' and no column '.join(lacks)}; its columns are {has}"
        asked = ([name for name in form if not name.endswith("[]")] for form in forms)
        ways = " or ".join(dict.fromkeys(" + ".join(names) for names in asked))
        instead = self.spec.get("instead", {}).items()
        hint = next((say for name, say in instead if name in self.columns), "")
        return self._placed(
            Finding("data-columns", "error", message, hint or self._way(lacks, ways)), lacks[0]
        )

    def _way(self, lacks: Sequence[str], ways: str) -> str:
        """The parameter that names the column, where there is one."""
        keys = dict(self.names.values())
        params = [
            param.name
            for name in lacks
            for param in self.method.params.values()
            if name in keys and keys[name] in param.keys
        ]
        more = f"set {' and '.join(dict.fromkeys(params))} to what it is called here; " if params else ""
        return f"{more}a row needs {ways}"

    def _at(self, row: int, column: str) -> str:
        return f"{self.where}{_row(row)}, column {column}"

    def _column(self, name: str, asked: Sequence[str]) -> Iterator[Finding]:
        """The first row whose value is of no kind that the column takes."""
        taken = kinds(asked)
        shapes = self.shapes.get(name, {})
        wrong = {shape: row for shape, row in shapes.items() if shape not in (*taken, "empty")}
        odd = wrong.pop("contents", None) if {"messages", "list"} & set(taken) else None
        if not wrong:
            if odd is not None and "messages" in taken:
                yield self._placed(self._contents(odd, name), name)
            if "empty" in shapes and "empty" not in taken:
                message = f"{self._at(shapes['empty'], name)}: it is empty, so there is nothing to learn from"
                yield self._placed(
                    Finding("data-empty", "warning", message, "fill it, or drop the row"), name
                )
            return
        shape = min(wrong, key=lambda one: wrong[one])
        said = {self._column_of(one): condition for one, condition in self.spec.get("dropped", {}).items()}
        dropped = set(wrong) <= {"null", "absent"} and self.holds(said.get(name, False))
        wants = " or ".join(WORDS[kind] for kind in asked)
        message = f"{self._at(wrong[shape], name)}: it is {WORDS[shape]}, and has to be {wants}"
        hint = {
            "list": "write messages as records with role and content",
            "negative": "number the classes from 0",
            "number": "write true and false" if "bool" in taken else "write it as text, in quotes",
            "text": _for_text(taken),
        }.get(shape, "fill it, or drop the row")
        finding = Finding("data-value", "error", message, self.spec.get("instead", {}).get(name, hint))
        if dropped:
            finding = replace(finding, severity="warning", message=f"{message}; such rows are left out")
        yield self._placed(finding, name)

    def _contents(self, row: int, name: str) -> Finding:
        """Most templates of chats join contents to text, and what they do with others is up to each."""
        message = (
            f"{self._at(row, name)}: the role of a message is no text, or its content neither text nor parts"
        )
        hint = "write each message as {role: user, content: …} with text in quotes"
        return Finding("data-value", "warning", message, hint)

    def _mixed(self, names: Sequence[str]) -> Iterator[Finding]:
        """The first value that is text where the others are messages, or the other way round."""
        seen = [(row, name, shape) for name in names for shape, row in self.shapes.get(name, {}).items()]
        seen = [one for one in seen if one[2] in ("text", "messages")]
        first = min(seen, default=None)
        other = min((one for one in seen if first is not None and one[2] != first[2]), default=None)
        if first is None or other is None:
            return
        row, name, shape = other
        there = f"column {first[1]}" if first[0] == row else f"{_row(first[0])}, column {first[1]}"
        message = f"{self._at(row, name)}: it is {WORDS[shape]}, and {there} is {WORDS[first[2]]}"
        hint = "write all of them as text, or all as messages"
        yield self._placed(Finding("data-mixed", "error", message, hint), name)

    def _unread(self) -> Iterator[Finding]:
        """Columns of a known meaning that are there, and that the keys make nothing of."""
        for name, how in self.spec.get("unread", {}).items():
            column, key = self.names.get(name, ("", ""))
            if not column and name in self.columns:
                message = f"the {self.data} has a column {name} that is not read: {key} does not name it"
                yield Finding(
                    "data-unread", how.get("severity", "warning"), message, how["hint"], key or self.key
                )

    def _apart(self) -> Iterator[Finding]:
        """Lists of another number of records, or of records that are not told apart; arrays likewise."""
        for name, how in self.spec.get("items", {}).items():
            counts = {int(count): row for count, row in self.facts.get("counts", {}).get(name, {}).items()}
            wrong = min(
                ((row, count) for count, row in counts.items() if count != how["count"]), default=None
            )
            if wrong is not None:
                row, count = wrong
                message = f"{self._at(row, name)}: it has {count} items, and has to have {how['count']}"
                hint = f"keep {how['count']} of them in each row"
                yield self._placed(Finding("data-value", "error", message, hint), name)
            row = self.facts.get("ties", {}).get(f"{name}[].{how['apart']}")
            if row is not None:
                message = f"{self._at(row, name)}: all its items have the same {how['apart']}"
                hint = f"give each its own {how['apart']}, or drop the row"
                yield self._placed(Finding("data-value", "error", message, hint), name)
        lengths = self.facts.get("lengths", {})
        known = {name: lengths[name] for name in self.spec.get("together", ()) if name in lengths}
        if len(set(known.values())) > 1:
            counts_ = " and ".join(f"{rows:,} rows of {name}" for name, rows in known.items())
            message = f"the {self.data} has {counts_}, and each row takes one of both"
            yield self._placed(Finding("data-value", "error", message, "save as many of each"), "")


def kinds(asked: Sequence[str]) -> tuple[str, ...]:
    """What a column takes; a row may lack what may be null, since a table has null in its place."""
    if "any" in asked:
        return tuple(WORDS)
    more = [other for kind, others in _MEANS.items() if kind in asked for other in others]
    return (*asked, *more)


def _for_text(kinds: Sequence[str]) -> str:
    if "bool" in kinds:
        return "write true and false, without quotes"
    if "messages" in kinds:
        return "write it as [{role: user, content: …}]"
    return "write it as a record, such as {field: value}" if "record" in kinds else "prepare the column anew"


def _row(number: int) -> str:
    """As `tables.read` counts: 0 is all of them, and -1 some."""
    return f"row {number}" if number > 0 else "every row" if number == 0 else "a row"
