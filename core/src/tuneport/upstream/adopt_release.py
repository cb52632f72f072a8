"""Drafts `releases/VERSION.yaml` from the manifest of the release before it: the text of that file with what
is known of the new release in place of what was known of the old; its other lines stay as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from tuneport.types import Json
from tuneport.upstream.scan import Scan

_TOP = re.compile(r"^([A-Za-z_]+):", re.MULTILINE)
_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9.!+-]+)")
_PLACE = re.compile(r"(?P<file>\S+\.py):\d+\Z")


def draft(
    text: str,
    spec: Mapping[str, Json],
    scan: Scan,
    moves: Sequence[Mapping[str, str]],
    gates: Mapping[str, Mapping[str, str]],
    *,
    surface: bool = True,
) -> str:
    """The new manifest.

    Args:
        text, spec: the manifest that it starts from, as written and as read.
        moves: key moves to add. gates: the reasons, for `params` and `rules`.
        surface: whether it names one.
    """
    old, new = str(spec["release"]), scan.release
    blocks = dict(_blocks(text))
    blocks["release"] = f"release: {_scalar(new)}\n"
    blocks["artefacts"] = "artefacts:\n" + "".join(f"  - {_flow(item)}\n" for item in scan.artefacts)
    if surface:
        blocks["surface"] = f"surface: {new}.json\n"
    blocks["runtime"] = _runtime(blocks.get("runtime", ""), old, spec, scan)
    blocks.pop("sunset", None)
    if spec.get("status", "supported") != "supported":
        blocks.pop("status")
    if moves:
        lines = "".join(f"  - {_flow(move)}\n" for move in moves)
        blocks["moves"] = blocks.get("moves", "moves:\n").rstrip("\n") + "\n" + lines
    if "keys" in blocks:
        blocks["keys"] = _keys(blocks["keys"], spec, scan)
    blocks.pop("gates", None)
    before = spec.get("gates", {})
    written = {kind: _as_before(reasons, before.get(kind, {})) for kind, reasons in gates.items() if reasons}
    if written:
        body = "".join(
            f"  {kind}:\n" + "".join(f"    {name}: {_scalar(why)}\n" for name, why in reasons.items())
            for kind, reasons in written.items()
        )
        blocks["gates"] = f"gates:\n{body}"
    return "".join(blocks.values())


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """(key, lines) of each entry of the outermost mapping; comments go with what follows them."""
    found = list(_TOP.finditer(text))
    starts = [_with_comments(text, match.start()) for match in found]
    yield "", text[: starts[0]]
    for match, start, end in zip(found, starts, [*starts[1:], len(text)], strict=True):
        yield match[1], text[start:end]


def _with_comments(text: str, start: int) -> int:
    while start:
        before = text.rfind("\n", 0, start - 1) + 1
        line = text[before:start]
        if not line.startswith("#") or "yaml-language-server" in line:
            break
        start = before
    return start


def _runtime(block: str, old: str, spec: Mapping[str, Json], scan: Scan) -> str:
    """The runtime with the new version of what was adopted, and no image: those are the old release's."""
    names = {canonicalize_name(str(item["name"])): str(item["version"]) for item in scan.artefacts}

    def pinned(match: re.Match[str]) -> str:
        version = names.get(canonicalize_name(match["name"]))
        return f"{match['name']}=={version}" if version else match[0]

    block = _PIN.sub(pinned, block)
    identity = str(spec["runtime"]["id"])
    block = block.replace(f"id: {identity}", f"id: {identity.replace(old, scan.release)}", 1)
    for kind in ("oci", "sif", "sqsh"):
        block = re.sub(rf"^  {kind}: \{{.+\}}$", f"  {kind}: {{}}", block, flags=re.MULTILINE)
    return block


def _keys(block: str, spec: Mapping[str, Json], scan: Scan) -> str:
    """Corrections of the surface, with the lines that the new release has them on."""
    for entry, items in spec.get("keys", {}).items():
        there = scan.keys.get(spec.get("entries", {}).get(entry, entry), {})
        for name, item in items.items():
            source = str(item["source"])
            if _PLACE.match(source) and name in there and there[name].source:
                block = block.replace(f'"{source}"', json.dumps(there[name].source), 1)
    return block


def unmet(spec: Mapping[str, Json], scan: Scan, before: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """(what the release asks for and the pinned sets of the manifest that it starts from do not give, what
    those leave open for the release before as well, which asks for `before`)."""
    found: list[str] = []
    left_open: list[str] = []
    for variant, item in spec["runtime"].get("venv", {}).get("variants", {}).items():
        pins = {
            str(canonicalize_name(match["name"])): match["version"]
            for line in item.get("requirements", ())
            if (match := _PIN.match(line))
        }
        for name, wanted in scan.requirements.items():
            for one in wanted.split(" | "):
                why = _unmet(name, one, pins)
                if why:
                    known = name not in pins and name in before
                    (left_open if known else found).append(f"{variant}: {why}")
    return found, left_open


def pins(spec: Mapping[str, Json], scan: Scan) -> list[str]:
    """What `pins` of the manifest says of other packages and the new release does not ask for."""
    found = []
    for name, pin in spec.get("pins", {}).items():
        wanted = scan.requirements.get(str(canonicalize_name(name)), "")
        sets = [one.partition(";")[0].strip() for one in wanted.split(" | ") if one.partition(";")[0].strip()]
        fits = any(pin == one or _within(pin, one) for one in sets)
        if sets and not fits:
            found.append(f"pins.{name} is {pin} and the release asks for {' or '.join(sets)}")
    return found


def _within(pin: str, specifier: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(pin, prereleases=True)
    except (InvalidSpecifier, ValueError):
        return False


def _unmet(name: str, wanted: str, pins: Mapping[str, str]) -> str:
    specifier, _, marker = wanted.partition(";")
    try:
        if marker and not Requirement(f"{name}; {marker}").marker.evaluate({"extra": ""}):  # type: ignore[union-attr]
            return ""
        allowed = SpecifierSet(specifier.strip())
    except (InvalidRequirement, InvalidSpecifier):
        return f"{name} {wanted} cannot be read"
    if name not in pins:
        return f"it needs {f'{name} {specifier}'.strip()}, which is not pinned"
    if not allowed.contains(pins[name], prereleases=True):
        return f"it needs {name} {specifier.strip()} and {pins[name]} is pinned"
    return ""


def _as_before(reasons: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Gates in the order of the manifest that the draft starts from, new ones at the end."""
    return {name: reasons[name] for name in (*before, *reasons) if name in reasons}


def _flow(item: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name}: {_scalar(value, '{{{}}}')}" for name, value in item.items()) + "}"


def _scalar(text: str, around: str = "{}") -> str:
    """Text as YAML, in quotes where it would mean something else without them."""
    from tuneport.experiment.yamlread import parse_yaml

    document = parse_yaml(around.format(f"a: {text}"))
    same = not document.findings and document.data == {"a": text} and "#" not in text
    return text if same else json.dumps(text, ensure_ascii=False)
