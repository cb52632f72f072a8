"""The values that the reader of scripts computes with. Everything is bounded; the rest is UNKNOWN."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tuneport.types import Json

MAX_ITEMS = 1_000
_MAX_TEXT = 1_000
_MAX_NUMBER = 2**63


class _Mark:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


UNKNOWN: Final = _Mark("UNKNOWN")
PARSER: Final = _Mark("PARSER")
"""Any ArgumentParser or argument group made in the file; they are not told apart."""
OUTSIDE: Final = _Mark("OUTSIDE")
"""A parameter of a function whose callers are not seen: it may well be a parser."""
ADDER: Final = _Mark("ADDER")
"""The bound method `add_argument`."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """Something imported or built in, by its dotted name."""

    name: str


_BUILTINS = "bool dict float hasattr id int isinstance len list print repr sorted str tuple type vars"
BUILTINS = frozenset(_BUILTINS.split())
"""Those that leave their arguments as they are."""

_TEXTUAL = ("builtins.str", "pathlib.Path", "os.path.abspath", "os.path.expanduser", "os.path.realpath")
_TYPES = {"builtins.int": "int", "builtins.float": "float", "builtins.bool": "bool"}
_TYPES |= dict.fromkeys(_TEXTUAL, "str")


def plain(value: Any, budget: list[int] | None = None) -> Json:
    """`value` as JSON has it, or UNKNOWN where it has no such form (a symbol, infinity) or is large."""
    budget = budget if budget is not None else [MAX_ITEMS]
    budget[0] -= 1
    if budget[0] < 0:
        return UNKNOWN
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else UNKNOWN
    if isinstance(value, list):
        items = [plain(item, budget) for item in value[: MAX_ITEMS + 1]]
        return UNKNOWN if UNKNOWN in items else items
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        pairs = {key: plain(item, budget) for key, item in value.items()}
        return UNKNOWN if UNKNOWN in pairs.values() else pairs
    return UNKNOWN


def same(one: Any, other: Any) -> bool:
    """Whether two values are certainly equal; lists and mappings only where they are one object."""
    if one is other:
        return True
    scalar = isinstance(one, str | int | float | bool | Symbol)
    return scalar and type(one) is type(other) and bool(one == other)


def spoil(value: Any) -> None:
    """A list or mapping that something changed: whoever reads it from now on meets an unknown."""
    if isinstance(value, list) and (not value or value[-1] is not UNKNOWN):
        value.append(UNKNOWN)
    elif isinstance(value, dict):
        value[UNKNOWN] = UNKNOWN


def combine(op: ast.operator, left: Any, right: Any) -> Any:
    """Arithmetic on numbers of ordinary size, sums of short texts and lists."""
    if isinstance(op, ast.Add) and type(left) is type(right) and isinstance(left, str | list):
        return left + right if len(left) + len(right) <= _MAX_TEXT else UNKNOWN
    for number in (left, right):
        if not isinstance(number, int | float) or abs(number) > _MAX_NUMBER:
            return UNKNOWN
    try:
        if isinstance(op, ast.Add):
            return left + right
        if isinstance(op, ast.Sub):
            return left - right
        if isinstance(op, ast.Mult):
            return left * right
        if isinstance(op, ast.Div):
            return left / right
        if isinstance(op, ast.FloorDiv):
            return left // right
        if isinstance(op, ast.Pow) and abs(right) <= 63:
            power = left**right
            return power if isinstance(power, int | float) else UNKNOWN
    except ArithmeticError:
        pass
    return UNKNOWN


def join(parts: Sequence[Any]) -> Any:
    """The text of an f-string whose parts are known."""
    texts = [str(part) for part in parts if isinstance(part, str | int)]
    return "".join(texts) if len(texts) == len(parts) and sum(map(len, texts)) <= _MAX_TEXT else UNKNOWN


def method_of(owner: Any, name: str, args: Sequence[Any]) -> Any:
    """What a method of a known text, list or mapping gives; one that may change the owner spoils it."""
    if isinstance(owner, str):
        texts = all(isinstance(arg, str) for arg in args)
        if name == "replace" and texts and len(args) == 2:
            replaced = owner.replace(*args)
            return replaced if len(replaced) <= _MAX_TEXT else UNKNOWN
        return UNKNOWN
    if isinstance(owner, dict) and name in ("items", "keys", "values") and not args:
        return [list(pair) for pair in owner.items()] if name == "items" else list(getattr(owner, name)())
    if name not in ("get", "copy", "index", "count"):
        spoil(owner)
    return UNKNOWN


def builtin(symbol: Symbol, args: Sequence[Any]) -> Any:
    """`type(x)`, `list(x)`, `sorted(x)`, `str(x)`, `int(x)`, `float(x)` of a known value."""
    name = symbol.name.removeprefix("builtins.")
    first = args[0] if len(args) == 1 else UNKNOWN
    if name == "type" and isinstance(first, bool | int | float | str):
        return Symbol(f"builtins.{type(first).__name__}")
    if name in ("list", "tuple") and isinstance(first, list | dict):
        return list(first)
    if name == "sorted" and isinstance(first, list | dict):
        return sorted(first) if all(isinstance(item, str) for item in first) else UNKNOWN
    if name == "str" and isinstance(first, str | int):
        return str(first)
    if name in ("int", "float") and isinstance(first, int | float) and abs(first) <= _MAX_NUMBER:
        return int(first) if name == "int" else float(first)
    return UNKNOWN


def equal(left: Any, right: Any) -> Any:
    """Whether two plain values are equal, as Python compares them; UNKNOWN for anything else."""
    plain_ones = all(item is None or isinstance(item, bool | int | float | str) for item in (left, right))
    return left == right if plain_ones else UNKNOWN


def flags_of(
    names: Sequence[str], words: Mapping[str, Any], line: int, *, sure: bool
) -> dict[str, dict[str, Json]]:
    """The flags that one `add_argument` call adds: one per long option, or its short one.

    `sure` is False where some keyword arguments of the call are not known.
    """
    long = [name for name in names if name.startswith("--") and len(name) > 2]
    options: dict[str, str] = {}
    for option in long or names[:1]:
        options.setdefault(option.lstrip("-").replace("-", "_"), option)
    fact = _fact(words, line) if sure else {"types": ["any"], "action": "custom", "line": line}
    if fact["action"] in ("help", "version"):
        return {}
    # Where there are two spellings either will do, and neither can be demanded.
    fact["required"] = words.get("required") is True and len(options) == 1
    dest = words.get("dest")
    found = {}
    for name, option in options.items():
        found[name] = fact | {"style": option}
        if isinstance(dest, str) and dest != name:
            found[name]["dest"] = dest
    return found


def _fact(words: Mapping[str, Any], line: int) -> dict[str, Json]:
    action = words.get("action", "store")
    if not isinstance(action, str):
        action = "boolean_optional" if action == Symbol("argparse.BooleanOptionalAction") else "custom"
    fact: dict[str, Json] = {"types": ["any"], "action": action, "line": line}
    # A class of the script's own may have a default of its own.
    default = plain(words.get("default", UNKNOWN if action == "custom" else None))
    if action in ("store_true", "store_false", "store_const"):
        # The key says whether the option is given, whatever its absence means to the script.
        fact["types"] = ["bool"]
        if action != "store_true" or default in (None, False):
            fact["default"] = False
        elif default is True:
            fact["default"] = True
        return fact
    if default is not UNKNOWN:
        fact["default"] = default
    if action == "boolean_optional":
        return fact | {"types": ["bool", "null"] if default is None else ["bool"]}
    nargs = words.get("nargs")
    if isinstance(nargs, int | str):
        fact["nargs"] = nargs
    choices = plain(words.get("choices"))
    if isinstance(choices, list) and choices:
        fact["choices"] = choices
    elif choices not in (None, []):
        fact["computed"] = ["choices"]
    if action in ("store", "append", "extend"):
        fact |= _typed(words, default, many=action != "store" or nargs not in (None, "?"))
    return fact


def _typed(words: Mapping[str, Any], default: Json, *, many: bool) -> dict[str, Json]:
    converter = words.get("type", Symbol("builtins.str"))
    kind = _TYPES.get(converter.name, "any") if isinstance(converter, Symbol) else "any"
    if kind == "any":
        return {}
    types = [kind, "list"] if many else [kind]
    if default is None and words.get("required") is not True:
        types.append("null")
    return {"types": types, "converter": "bool"} if kind == "bool" else {"types": types}
