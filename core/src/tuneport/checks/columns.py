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

A single reading may stand without the list. Every reading whose `when` holds is applied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuneport.types import Context, Finding, Method

SPLITS = {"train": "--train-data", "validation": "--validation-data"}
WORDS = {
    "text": "text",
    "messages": "messages",
    "bool": "true or false",
    "number": "a number",
    "list": "a list that is no messages",
    "record": "a record",
    "null": "null",
    "empty": "empty",
    "absent": "not there",
}
# What the types of a facts file say about every value; a list may be messages or none.
_TYPES = {"string": "text", "str": "text", "large_string": "text", "bool": "bool", "int64": "number"}
_TYPES |= {"int32": "number", "double": "number", "float": "number", "struct": "record"}
_FORM = Mapping[str, Sequence[str]]
_Shapes = Mapping[str, Mapping[str, int]]


def check(context: Context, unknown: Collection[str] = ()) -> Iterator[Finding]:
    """Findings about each file of the request whose columns are known.

    Args:
        unknown: keys whose value nobody knows; a reading that depends on one is not applied.
    """
    specs = readings(context.method)
    known = [split for split in SPLITS if context.facts.get("data", {}).get(split, {}).get("columns")]
    if not specs or not known:
        return
    holds = _Conditions(context, specs, unknown)
    for split in known:
        facts: Mapping[str, Any] = context.facts["data"][split]
        bound = context.method.spec.get("bind", {}).get("train_data", {}).get("key", SPLITS[split])
        flag = bound if split == "train" else SPLITS[split]
        for spec in specs:
            names = _names(spec, context, split, unknown)
            if names is not None and _applies(spec, split, context, holds):
                yield from _File(spec, names, facts, (split, flag), context.method, holds).findings()


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
        self.shapes: _Shapes = {**types, **blank, **facts.get("shapes", {})}
        # A column of records has fields, where the file shows them.
        inner = [
            f"{name}.{field}" for name, fields in facts.get("column_fields", {}).items() for field in fields
        ]
        self.there = {*self.columns, *inner, *self.shapes}
        self.open = {name for name in self.columns if name not in facts.get("column_fields", {})}

    def findings(self) -> Iterator[Finding]:
        forms = [self._named(form) for form in self.spec["rows"]]
        form = next((form for form in forms if not self._lacks(form)), None)
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
        return self.names[name][0] if name in self.names else name

    def _lacks(self, form: _FORM) -> list[str]:
        return [name for name in form if name not in self.there and not self._unseen(name)]

    def _unseen(self, name: str) -> bool:
        """Whether it is a field of a column whose fields nobody saw."""
        parent = name.partition(".")[0]
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
        ways = " or ".join(dict.fromkeys(" + ".join(form) for form in forms))
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
        if not wrong:
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
            "number": "write true and false" if "bool" in taken else "write it as text, in quotes",
            "text": _for_text(taken),
        }.get(shape, "fill it, or drop the row")
        finding = Finding("data-value", "error", message, hint)
        if dropped:
            finding = replace(finding, severity="warning", message=f"{message}; such rows are left out")
        yield self._placed(finding, name)

    def _mixed(self, names: Sequence[str]) -> Iterator[Finding]:
        """The first value that is text where the others are messages, or the other way round."""
        seen = [(row, name, shape) for name in names for shape, row in self.shapes.get(name, {}).items()]
        seen = [one for one in seen if one[2] in ("text", "messages")]
        first = min(seen, default=None)
        other = min((one for one in seen if first is not None and one[2] != first[2]), default=None)
        if first is None or other is None:
            return
        row, name, shape = other
        message = f"{self._at(row, name)}: it is {WORDS[shape]}, and {first[1]} is {WORDS[first[2]]}"
        hint = "write all of them as text, or all as messages"
        yield self._placed(Finding("data-mixed", "error", message, hint), name)


def kinds(asked: Sequence[str]) -> tuple[str, ...]:
    """What a column takes; a row may lack what may be null, since a table has null in its place."""
    if "any" in asked:
        return tuple(WORDS)
    return (*asked, "absent") if "null" in asked else tuple(asked)


def _for_text(kinds: Sequence[str]) -> str:
    if "bool" in kinds:
        return "write true and false, without quotes"
    if "messages" in kinds:
        return "write it as [{role: user, content: …}]"
    return "write it as a record, such as {field: value}" if "record" in kinds else "prepare the column anew"


def _row(number: int) -> str:
    """As `tables.read` counts: 0 is all of them, and -1 some."""
    return f"row {number}" if number > 0 else "every row" if number == 0 else "a row"
