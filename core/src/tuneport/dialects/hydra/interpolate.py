"""Resolves `${…}` as OmegaConf does: other keys, relative ones, nested ones, and the `oc.` resolvers.

What only the job's own process can know (a variable of an unknown environment, a resolver that the
framework registers) stays unresolved, and the keys that depend on it are left out of the result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from tuneport.dialects.hydra.nodes import GrammarError, Interpolation, Quoted, Text, Words, plain, split_key
from tuneport.types import Json, Ref

MISSING = "???"
MAX_DEPTH = 60
OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "product": operator.mul,
    "quotient": operator.truediv,
    "maximum": max,
}
"""What the resolvers of two arguments do that a release may register, by their name in a surface."""
_BRANCHES = (dict, list)


class Unresolved(Exception):
    """The value cannot be known, or OmegaConf would fail to resolve it; the text says why."""


class Unknowable(Unresolved):
    """Only the running job can tell."""


class _Missing(Exception):
    pass


class _NoBranch(Unresolved):
    """A key goes on where a plain value stands."""


class _Node:
    """A value with its place in the tree; `path` is None for what a resolver made, which keys cannot go
    into unless `branch` says so."""

    __slots__ = ("branch", "path", "value")

    def __init__(self, path: tuple[str | int, ...] | None, value: Any, branch: bool = False) -> None:
        self.path, self.value, self.branch = path, value, branch or path is not None


class Resolver:
    """Resolves keys of one nested configuration.

    Args:
        tree: nested mappings and lists; text that holds `${` is an interpolation.
        env: the environment of the job as far as it is known.
        own: resolvers that the release registers, name -> operation of `OPERATIONS`.
    """

    def __init__(
        self,
        tree: Mapping[str, Json],
        env: Mapping[str, str] | None = None,
        own: Mapping[str, str] | None = None,
    ) -> None:
        self._root = _Node((), tree)
        self._env = env or {}
        self._own = own or {}
        self._open: list[tuple[str | int, ...]] = []

    def select(self, key: str) -> Json:
        """The resolved value of a dotted key.

        Raises:
            Unresolved: it is absent, missing (`???`), or depends on what is not known.
        """
        try:
            node = self._select(self._root, split_key(key))
        except _Missing:
            raise Unresolved(f"{key} is ???") from None
        if node is None:
            raise Unresolved(f"there is no {key}")
        if node.value == MISSING:
            raise Unresolved(f"{key} is ???")
        return self._plain(node)

    def at(self, path: tuple[str | int, ...], value: Json) -> Json:
        """The resolved form of the value that stands at `path`.

        Raises:
            Unresolved: as `select`.
        """
        return self._plain(_Node(path, value))

    def _plain(self, node: _Node, depth: int = 0) -> Json:
        if depth > MAX_DEPTH:
            raise Unresolved("nested too deeply")
        node = self._settled(node)
        value, path = node.value, node.path
        if isinstance(value, dict):
            return {
                name: self._plain(_Node(None if path is None else (*path, name), item), depth + 1)
                for name, item in value.items()
            }
        if isinstance(value, list):
            return [
                self._plain(_Node(None if path is None else (*path, index), item), depth + 1)
                for index, item in enumerate(value)
            ]
        return value

    def _settled(self, node: _Node) -> _Node:
        """The node itself, or what its interpolation leads to."""
        if not isinstance(node.value, str) or "${" not in node.value or node.path is None:
            return node
        if node.path in self._open or len(self._open) > MAX_DEPTH:
            raise Unresolved("it depends on itself")
        self._open.append(node.path)
        try:
            found = self._text(_parsed(node.value), node)
        except (
            GrammarError,
            _NoBranch,
        ) as error:  # no branch on another's way: no default stands in for that
            raise Unresolved(str(error)) from None
        finally:
            self._open.pop()
        return found

    def _select(self, base: _Node, keys: list[str], missing: bool = True) -> _Node | None:
        """The settled node below `base`, None where there is none."""
        here = base
        for number, key in enumerate(keys):
            if not isinstance(here.value, _BRANCHES) or not here.branch:
                raise _NoBranch(f"{'.'.join(keys[:number])} holds nothing named {key}")
            child = _child(here, key)
            if child is None:
                return None
            if child.value == MISSING and isinstance(child.value, str):
                if missing:
                    raise _Missing
                return child if number == len(keys) - 1 else None
            here = self._settled(child)
        return here

    def _text(self, parts: Text, at: _Node) -> _Node:
        if len(parts) == 1 and isinstance(parts[0], Interpolation):
            return self._interpolation(parts[0], at)
        return _Node(None, self._joined(parts, at))

    def _joined(self, parts: Text, at: _Node) -> str:
        return "".join(
            part if isinstance(part, str) else _as_text(self._interpolation(part, at)) for part in parts
        )

    def _interpolation(self, item: Interpolation, at: _Node) -> _Node:
        if item.resolver is None:
            return self._reference(item, at)
        name = ".".join(self._name(part, at) for part in item.resolver)
        hands_on = name in ("oc.env", "oc.select")
        arguments = [
            self._handed_on(argument, at) if hands_on and number else self._element(argument, at)
            for number, argument in enumerate(item.arguments)
        ]
        known: dict[str, Callable[..., _Node]] = {
            "oc.env": self._oc_env,
            "oc.select": self._oc_select,
            "oc.decode": self._oc_decode,
            "oc.create": self._oc_create,
            "oc.dict.keys": self._oc_keys,
            "oc.dict.values": self._oc_values,
            "oc.deprecated": self._oc_deprecated,
        }
        if name in self._own:
            return _calculated(OPERATIONS[self._own[name]], arguments)
        if name not in known:
            raise Unknowable(f"what ${{{name}:…}} gives is known to the running job only")
        try:
            return known[name](at, *arguments)
        except TypeError:
            raise Unresolved(f"{name} does not take {len(arguments)} arguments") from None

    def _reference(self, item: Interpolation, at: _Node) -> _Node:
        key = "".join(part if isinstance(part, str) else self._name(part, at) for part in item.path)
        node = self._from(key, at)
        if node is None:
            raise Unresolved(f"there is no {key}")
        if node.path is not None and at.path is not None and at.path[: len(node.path)] == node.path:
            raise Unresolved("it refers to what holds it")
        return node

    def _from(self, key: str, at: _Node, missing: bool = True) -> _Node | None:
        """The node that a key means at a place: leading dots climb from the branch that holds it."""
        base, rest = self._root, key
        if key.startswith("."):
            climb = len(key) - len(key.lstrip("."))
            rest = key.lstrip(".")
            if at.path is None or climb > len(at.path):
                raise Unresolved(f"{key} climbs above the root")
            path = at.path[: len(at.path) - climb]
            base = self._root
            for step in path:
                base = _Node((*(base.path or ()), step), base.value[step])
        if not rest:
            return base
        try:
            return self._select(base, split_key(rest), missing)
        except _Missing:
            raise Unresolved(f"{key} is ???") from None

    def _name(self, part: str | Interpolation, at: _Node) -> str:
        if isinstance(part, str):
            return part
        value = self._interpolation(part, at).value
        if not isinstance(value, str):
            raise Unresolved("a name must be text")
        return value

    def _handed_on(self, default: Any, at: _Node) -> _Node:
        """A default, of which a resolver does not look into what it refers to: as text a list shows what its
        items say."""
        if (
            isinstance(default, Words)
            and len(default.parts) == 1
            and isinstance(default.parts[0], Interpolation)
        ):
            return self._interpolation(default.parts[0], at)
        return _Node(None, self._element(default, at))

    def _element(self, element: Any, at: _Node) -> Any:
        """An argument as the resolver gets it."""
        if isinstance(element, Quoted):
            return self._joined(element.parts, at) if element.parts else ""
        if isinstance(element, Words):
            if len(element.parts) == 1 and isinstance(element.parts[0], Interpolation):
                return self._plain(self._interpolation(element.parts[0], at))
            return self._joined(element.parts, at)
        if isinstance(element, list):
            return [self._element(item, at) for item in element]
        if isinstance(element, dict):
            return {name: self._element(item, at) for name, item in element.items()}
        return element

    def _oc_env(self, _at: _Node, name: Any, default: _Node | None = None) -> _Node:
        if not isinstance(name, str):
            raise Unresolved("the name of a variable must be text")
        if name in self._env:
            return _Node(None, self._env[name])
        if default is None:
            raise Unknowable(f"the variable {name} is not known")
        return _Node(None, None if default.value is None else _as_text(default))

    def _oc_select(self, at: _Node, key: Any, default: _Node | None = None) -> _Node:
        if not isinstance(key, str):
            raise Unresolved("oc.select takes a key")
        try:
            found = self._from(key, at, missing=False)
        except _NoBranch:
            found = None
        if found is None or (isinstance(found.value, str) and found.value == MISSING):
            return default or _Node(None, None)
        return found

    def _oc_decode(self, at: _Node, text: Any) -> _Node:
        if text is None:
            return _Node(None, None)
        if not isinstance(text, str):
            raise Unresolved("oc.decode takes text")
        from tuneport.dialects.hydra import grammar

        return _Node(None, self._element(grammar.parse_element(text), at))

    def _oc_create(self, _at: _Node, value: Any) -> _Node:
        return _Node(None, value, branch=True)

    def _oc_keys(self, at: _Node, key: Any) -> _Node:
        return _Node(None, list(self._mapping(at, key)))

    def _oc_values(self, at: _Node, key: Any) -> _Node:
        return _Node(None, list(self._mapping(at, key).values()))

    def _mapping(self, at: _Node, key: Any) -> Mapping[str, Json]:
        node = self._from(key, at) if isinstance(key, str) else None
        value = None if node is None else self._plain(node)
        if not isinstance(value, dict):
            raise Unresolved(f"{key} is no mapping")
        return value

    def _oc_deprecated(self, at: _Node, key: Any, message: Any = "") -> _Node:
        node = self._from(key, at) if isinstance(key, str) else None
        if node is None or not isinstance(message, str):
            raise Unresolved(f"there is no {key}")
        return node


def _parsed(text: str) -> Text:
    """The pieces of a value, which must not be changed.

    Raises:
        GrammarError: an interpolation in it is malformed.
    """
    pieces = plain(text)
    if pieces is None:
        from tuneport.dialects.hydra import grammar

        pieces = grammar.parse_text(text)
    return pieces


def _calculated(operation: Callable[[Any, Any], Any], arguments: list[Any]) -> _Node:
    numbers = [item for item in arguments if type(item) in (int, float)]
    if len(arguments) != 2 or len(numbers) != 2:
        raise Unresolved(f"it reckons with {', '.join(map(repr, arguments))}, which are not two numbers")
    try:
        return _Node(None, operation(*numbers))
    except (ArithmeticError, ValueError) as error:
        raise Unresolved(str(error)) from None


def resolved(
    flat: Mapping[str, Json],
    literal: Collection[str] = (),
    env: Mapping[str, str] | None = None,
    absent: Collection[str] = (),
    own: Mapping[str, str] | None = None,
) -> dict[str, Json]:
    """A flat configuration with its interpolations resolved; keys that cannot be are left out.

    Args:
        literal: keys whose text stands for itself, `${` included.
        absent: keys that have a value but that no interpolation sees, since no file holds them.
        own: resolvers that the release registers; see `Resolver`.
    """
    from tuneport.checks.rules import nested

    dynamic = [name for name, value in flat.items() if name not in literal and _is_dynamic(value)]
    if not dynamic:
        return dict(flat)
    plain = {
        name: _inert(value) if name in literal else value
        for name, value in flat.items()
        if name not in absent
    }
    tree = nested(plain)
    resolver = Resolver(tree, env, own)
    result = dict(flat)
    for name in dynamic:
        try:
            result[name] = resolver.at(tuple(name.split(".")), flat[name])
        except Unresolved:
            del result[name]
    return result


def fault(
    flat: Mapping[str, Json],
    name: str,
    literal: Collection[str] = (),
    own: Mapping[str, str] | None = None,
) -> str:
    """Why the value of a key can never be resolved; empty where it can, or only the running job can tell."""
    from tuneport.checks.rules import nested

    plain = {key: _inert(value) if key in literal else value for key, value in flat.items()}
    try:
        Resolver(nested(plain), None, own).at(tuple(name.split(".")), flat[name])
    except Unknowable:
        return ""
    except Unresolved as reason:
        return str(reason)
    return ""


def _is_dynamic(value: Json) -> bool:
    if isinstance(value, str):
        return "${" in value
    if isinstance(value, dict):
        return any(map(_is_dynamic, value.values()))
    return isinstance(value, list) and any(map(_is_dynamic, value))


def _inert(value: Json) -> Json:
    """Text that other keys may refer to, guarded so that it stands for itself."""
    from tuneport.dialects.hydra.quote import escaped

    return value if value == MISSING or isinstance(value, Ref) else escaped(value)


def _child(node: _Node, key: str) -> _Node | None:
    value = node.value
    step: str | int = key
    if isinstance(value, list):
        if not key.lstrip("-").isdigit():
            raise Unresolved(f"a list has no {key}")
        step = int(key)
        if not -len(value) <= step < len(value):
            return None
    elif key not in value:
        return None
    return _Node(None if node.path is None else (*node.path, step), value[step], node.branch)


def _as_text(node: _Node) -> str:
    """What OmegaConf writes where a value stands inside other text."""
    if isinstance(node.value, _BRANCHES):
        return str(node.value)
    return str(node.value)
