"""Which files of a Hydra tree a command line composes, in which order, and where each one lands.

The rules are those of Hydra 1.3: defaults lists are walked from their end, so that an `override`
further down wins; a choice written with `${…}` is made after all plain ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tuneport.dialects.hydra.choices import is_group
from tuneport.types import Json

_CHOICE = re.compile(r"\$\{([^${}]+)\}")
_SELF = "_self_"


class ComposeError(Exception):
    """The release would refuse to compose this. `code` is a finding's, `key` the group or file at fault."""

    def __init__(self, code: str, key: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code, self.key, self.message, self.hint = code, key, message, hint


@dataclass(frozen=True, slots=True)
class Placed:
    """A file of the tree and the dotted place (empty for the root) where its content goes."""

    file: str
    package: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class Choices:
    """Group choices of a command line, by group key (`optim@actor.optim`). `added` come from `+group=`;
    `deleted` maps a group key to the option it must have (empty for any)."""

    chosen: Mapping[str, str | None] = field(default_factory=dict)
    added: Mapping[str, str] = field(default_factory=dict)
    deleted: Mapping[str, str] = field(default_factory=dict)


class Tree:
    """The files that one search path can reach. `files` maps `folder/group/name` to what the surface
    holds of the file: `defaults`, `package`, `searchpath`, `tree`."""

    def __init__(self, files: Mapping[str, Mapping[str, Json]], path: Sequence[str]) -> None:
        self.files, self.path = files, tuple(path)
        self._options: dict[str, list[str]] = {}
        for folder in self.path:
            for name in files:
                if name.startswith(folder + "/"):
                    group, _, option = name[len(folder) + 1 :].rpartition("/")
                    known = self._options.setdefault(group, [])
                    if option not in known:
                        known.append(option)

    def find(self, name: str) -> str | None:
        """The file behind `group/option`, the first folder of the search path winning."""
        return next((f"{root}/{name}" for root in self.path if f"{root}/{name}" in self.files), None)

    def is_group(self, name: str) -> bool:
        return is_group(self._options, name)

    def groups(self) -> list[str]:
        """The folders that hold files, by their path from the root."""
        return sorted(self._options)

    def options(self, group: str) -> list[str]:
        """Names of the files of a group; of the primary configurations for the empty group."""
        return sorted(self._options.get(group, ()))


def reach(files: Mapping[str, Mapping[str, Json]], path: Sequence[str], config: str) -> Tree:
    """The files that a primary configuration can reach: its entry's, and those of the search path it adds."""
    tree = Tree(files, path)
    main = tree.find(config)
    more = files[main].get("searchpath", ()) if main else ()
    return Tree(files, (*path, *more)) if more else tree


@dataclass(slots=True)
class _Item:
    """One entry of a defaults list. `group` is None where a file is named directly."""

    name: str | None
    group: str | None = None
    package: str | None = None
    optional: bool = False
    override: bool = False
    names: tuple[str, ...] = ()
    base: str = ""
    parent_package: str = ""
    header: str | None = None

    def under(self, base: str, package: str) -> None:
        self.base, self.parent_package = base, package
        if self.package is not None and "_group_" in self.package:
            self.package = "_global_." + self.package.replace("_group_", self.group_path().replace("/", "."))

    def relative_group(self) -> str:
        if self.group is not None:
            return self.group.lstrip("/")
        return (self.name or "").lstrip("/").rpartition("/")[0]

    def group_path(self) -> str:
        written = self.group if self.group is not None else (self.name or "")
        relative = self.relative_group()
        if written.startswith("/") or not self.base:
            return relative
        return f"{self.base}/{relative}" if relative else self.base

    def path(self) -> str:
        """`group/option`, with `..` where the list wrote it."""
        last = (self.name or "").rpartition("/")[2]
        group = self.group_path()
        return f"{group}/{last}" if group else last

    def final_package(self, header: bool = True) -> str:
        package = self.package
        if package is None and header:
            package = self.header
        if package is None:
            package = self.relative_group().replace("/", ".")
        joined = ".".join(part for part in (self.parent_package, package) if part)
        return joined.rpartition("_global_")[2].lstrip(".")

    def key(self) -> str:
        """What a command line calls this choice: the group, with `@package` unless it is the usual one."""
        group, package = self.group_path(), self.final_package(header=False)
        return group if package == group.replace("/", ".") else f"{group}@{package or '_global_'}"


class Expansion:
    """The composition order for one primary file and its choices.

    `placed` is the order; `groups` maps each group key that took part to its option; `overridden` is
    what was chosen from outside.

    Raises:
        ComposeError: Hydra would refuse.
    """

    def __init__(self, tree: Tree, config: str, choices: Choices) -> None:
        self._tree, self._choices = tree, choices
        self._wanted: dict[str, str | None] = dict(choices.chosen)
        self._used: set[str] = set()
        self._gone: set[str] = set()
        self._depth = 0
        self.groups: dict[str, str | None] = {}
        if tree.find(config) is None:
            known = ", ".join(tree.options(""))
            raise ComposeError(
                "config-unknown", config, f"there is no configuration named {config!r}", f"there are {known}"
            )
        self.placed = self._expand(_Item(config), root=True, late=False)
        self._check_used()

    def _expand(self, item: _Item, *, root: bool, late: bool) -> list[Placed]:
        self._depth += 1
        if self._depth > 2000:
            raise ComposeError("config-circle", item.path(), f"{item.path()} includes itself")
        key = item.key() if item.group is not None else ""
        if key and self._is_deleted(key, item):
            return []
        if item.name is None:
            return []
        if key:
            self._know(key, item.name)
        path = _normal(item.path())
        file = self._tree.find(path)
        if file is None:
            if item.optional:
                return []
            raise self._missing(item, path)
        content = self._tree.files[file]
        item.header = _header(content.get("package"))
        entries = _entries(content.get("defaults", ()), path)
        others = not entries or any(not entry.override for entry in entries)
        own = not any(entry.name == _SELF for entry in entries)
        if own and others and (entries or (root and self._choices.added)):
            entries.append(_Item(_SELF))
        if root:
            entries += [_group_item(key, option) for key, option in self._choices.added.items()]
        if not entries:
            return [Placed(file, item.final_package(), key)]
        return self._children(item, file, entries, late)

    def _children(self, item: _Item, file: str, entries: list[_Item], late: bool) -> list[Placed]:
        base, package = item.group_path(), item.final_package()
        self._register(item, entries, late)
        slots: list[list[Placed]] = [[] for _ in entries]
        waiting: list[int] = []
        for index in reversed(range(len(entries))):
            entry = entries[index]
            if entry.name == _SELF and entry.group is None:
                slots[index] = [Placed(file, package, "")]
                continue
            if entry.override:
                continue
            if entry.group is not None and entry.key() in self._wanted:
                self._used.add(entry.key())
                entry.name, entry.names = self._wanted[entry.key()], ()
            if entry.names:
                parts = [_Item(f"{entry.group}/{name}", None, entry.package) for name in entry.names]
                for part in parts:
                    part.under(base, package)
                    slots[index] += self._expand(part, root=False, late=late)
            elif "${" in (entry.name or ""):
                waiting.append(index)
            else:
                slots[index] = self._expand(entry, root=False, late=late)
        for index in waiting:
            entries[index].name = self._chosen_name(entries[index].name or "")
            slots[index] = self._expand(entries[index], root=False, late=True)
        return [placed for slot in slots for placed in slot]

    def _register(self, parent: _Item, entries: Iterable[_Item], late: bool) -> None:
        """Take note of the `override` entries; the first one that names a group wins."""
        seen = ""
        for entry in entries:
            if entry.name == _SELF and entry.group is None:
                continue
            entry.under(parent.group_path(), parent.final_package())
            if entry.override:
                if late:
                    raise ComposeError(
                        "config-override-late", entry.key(), f"{parent.path()} may not override {entry.key()}"
                    )
                seen = entry.key()
                self._wanted.setdefault(seen, entry.name)
            elif seen and not (entry.group is not None and entry.key() in self._choices.added):
                raise ComposeError(
                    "config-override-order",
                    seen,
                    f"{parent.path()} overrides {seen} before its other defaults",
                )

    def _chosen_name(self, text: str) -> str:
        def known(match: re.Match[str]) -> str:
            value = self.groups.get(match[1])
            if value is None:
                raise ComposeError(
                    "config-choice", match[1], f"the choice {text!r} depends on no known group"
                )
            return value

        return _CHOICE.sub(known, text)

    def _know(self, key: str, name: str) -> None:
        before = self.groups.setdefault(key, name)
        if before != name:
            raise ComposeError("group-twice", key, f"`{key}` is chosen twice: {before} and {name}")

    def _is_deleted(self, key: str, item: _Item) -> bool:
        if key not in self._choices.deleted:
            return False
        option = self._choices.deleted[key]
        if option and option != item.name:
            return False
        self._gone.add(key)
        return True

    def _missing(self, item: _Item, path: str) -> ComposeError:
        if item.group is None:
            return ComposeError("config-unknown", path, f"the tree has no file {path}")
        group = _normal(item.group_path())
        key, known = item.key(), ", ".join(self._tree.options(group))
        if item.name == "???":
            return ComposeError("group-required", key, f"`{key}` must be chosen", f"{key}= one of {known}")
        return ComposeError(
            "group-option", key, f"`{key}` has no option {item.name!r}", f"the group {group} has {known}"
        )

    def _check_used(self) -> None:
        for key in self._wanted:
            if key not in self._used:
                group = key.partition("@")[0]
                near = sorted(known for known in self.groups if known.partition("@")[0] == group)
                hint = f"write {near[0]}=…" if near else f"+{key}=… adds it"
                raise ComposeError("group-unknown", key, f"no choice is called `{key}` here", hint)
        for key in self._choices.deleted:
            if key not in self._gone:
                raise ComposeError("group-unknown", key, f"there is no choice `{key}` to delete")
        seen: set[str] = set()
        for placed in self.placed:
            if placed.group and placed.group in seen:
                raise ComposeError("group-twice", placed.group, f"`{placed.group}` is included twice")
            seen.add(placed.group)


def _entries(written: Iterable[Json], where: str) -> list[_Item]:
    found = []
    for entry in written:
        if isinstance(entry, str):
            name, at, package = entry.partition("@")
            found.append(_Item(name, None, _here(package if at else None)))
        elif isinstance(entry, Mapping) and len(entry) == 1:
            key, value = next(iter(entry.items()))
            words = key.split()
            item = _group_item(words[-1], None)
            item.optional, item.override = "optional" in words[:-1], "override" in words[:-1]
            if isinstance(value, list):
                item.names = tuple(value)
                item.name = ""
            else:
                item.name = value
            found.append(item)
        else:
            raise ComposeError("config-defaults", where, f"{where} has a defaults entry of an unknown form")
    return found


def _group_item(key: str, option: str | None) -> _Item:
    group, at, package = key.partition("@")
    return _Item(option, group, _here(package if at else None))


def _here(package: str | None) -> str | None:
    return "" if package == "_here_" else package


def _header(package: Json) -> str | None:
    if package is None:
        return None
    if package == "":
        return "_global_"
    return package if package == "_global_" or package.startswith("_global_.") else f"_global_.{package}"


def _normal(path: str) -> str:
    """`actor/../optim/fsdp` as `optim/fsdp`."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)
