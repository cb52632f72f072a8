"""A lock is believed to the last byte or refused, and what changed since is said field by field."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tuneport.errors import Invalid, NotFound
from tuneport.experiment import lock
from tuneport.porting.upgrade import lock_alone
from tuneport.registry.digest import digest

from .core_support import World, codes, forget, one


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def lock_of(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((path / lock.NAME).read_text())
    return loaded


def write(path: Path, document: Any) -> None:
    (path / lock.NAME).write_text(document if isinstance(document, str) else json.dumps(document, indent=2))


def seal(document: dict[str, Any]) -> dict[str, Any]:
    """The same with the digest that a careful forger would put in."""
    return {**document, "lock_digest": digest({k: v for k, v in document.items() if k != "lock_digest"})}


def leaves(document: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key)


def at(document: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        document = document[part]
    return document


def test_a_fresh_lock_says_what_it_is_for_and_round_trips(world: World) -> None:
    path = world.experiment(version="2.0.0")
    found, findings = lock.read(path / lock.NAME)
    assert not findings
    assert found == lock_of(path) == lock.make("acme/tune", "2.0.0")
    assert found["recipe"]["name"] == "acme/tune"
    assert found["recipe"]["digest"] == world.method("acme/tune", "2.0.0").digest
    assert found["framework"] == {"kind": "acme", "version": "2.0.0", "runtime_id": "acme-2.0.0"}
    assert found["requires"] == {"core": ">=0.1"}
    assert found["lock_digest"] == digest({k: v for k, v in found.items() if k != "lock_digest"})
    assert lock.text(found) == (path / lock.NAME).read_text()
    assert world.validate().ok


def test_whitespace_and_the_order_of_keys_mean_nothing(world: World) -> None:
    path = world.experiment()
    document = lock_of(path)
    backwards = {key: document[key] for key in reversed(document)}
    backwards["recipe"] = {key: document["recipe"][key] for key in reversed(document["recipe"])}
    for text in (
        json.dumps(document),
        json.dumps(document, indent=7),
        f"\n\t {json.dumps(backwards)}\r\n",
        "\ufeff" + json.dumps(document),
    ):
        write(path, text)
        assert world.validate().ok, text


def changes(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(what, the key that must be named, the changed lock) for every value, key and place."""
    for path in leaves(document):
        name = ".".join(path)
        value = at(document, path)
        for new in (value + "0", value[:-1], value.swapcase(), "", None, 1, True, [value], {"x": value}):
            if new == value:
                continue
            changed = copy.deepcopy(document)
            at(changed, path[:-1])[path[-1]] = new
            yield f"{name} = {new!r}", path[-1], changed
        changed = copy.deepcopy(document)
        del at(changed, path[:-1])[path[-1]]
        yield f"without {name}", path[-1], changed
    for group in [(), *({path[:-1] for path in leaves(document)} - {()})]:
        changed = copy.deepcopy(document)
        at(changed, group)["extra"] = "x"
        yield f"extra in {group}", "extra", changed
        if group:
            changed = copy.deepcopy(document)
            del changed[group[0]]
            yield f"without {group[0]}", group[0], changed
            changed = copy.deepcopy(document)
            changed[group[0]] = "x"
            yield f"{group[0]} is text", group[0], changed


def test_every_changed_added_or_removed_value_is_refused_and_named(world: World) -> None:
    path = world.experiment()
    original = lock_of(path)
    for what, key, changed in changes(original):
        write(path, changed)
        findings = [f for f in world.validate().findings if f.severity == "error"]
        assert findings, f"{what} is accepted"
        assert all(f.code.startswith("lock-") for f in findings), what
        # An edited digest of one part is an edit of the seal for all that anybody can tell, and so on up.
        assert any(key in f"{f.key} {f.message}" for f in findings), f"{what}: {findings}"
        assert all(f.hint and f.file.endswith(lock.NAME) for f in findings), what


@pytest.mark.parametrize(
    ("edits", "keys"),
    [
        ({"framework.version": "2.0.0"}, ["framework.version"]),
        ({"framework.version": "9.0.0"}, ["framework.version"]),
        ({"recipe.name": "acme/align"}, ["recipe.name"]),
        ({"recipe.name": "acme/align", "framework.version": "2.0.0"}, ["recipe.name", "framework.version"]),
        ({"recipe.name": "other/tune"}, ["recipe.name"]),
        ({"framework.kind": "other"}, ["framework.kind"]),
        ({"recipe.version": "7"}, ["recipe.version"]),
        ({"framework.runtime_id": "acme-2.0.0"}, ["framework.runtime_id"]),
        ({"requires.core": ">=0.0"}, ["requires.core"]),
    ],
)
def test_what_was_edited_is_named_and_nothing_else(
    world: World, edits: dict[str, str], keys: list[str]
) -> None:
    path = world.experiment(version="1.0.0")
    document = lock_of(path)
    for key, value in edits.items():
        group, field = key.split(".")
        assert document[group][field] != value
        document[group][field] = value
    write(path, document)
    finding = one(lock.read(path / lock.NAME)[1], "lock-tampered")
    assert finding.key == keys[0]
    assert finding.message.partition(": ")[2] == ", ".join(keys)
    group, field = keys[0].split(".")
    rows = (path / lock.NAME).read_text().splitlines()
    start = next(number for number, row in enumerate(rows) if row.startswith(f'  "{group}": {{'))
    assert finding.line == start + list(document[group]).index(field) + 2


def test_every_duplicated_key_is_refused_and_named_with_its_line(world: World) -> None:
    path = world.experiment()
    text = (path / lock.NAME).read_text()
    for number, row in enumerate(text.splitlines(), 1):
        if ":" not in row:
            continue
        key = row.split('"')[1]
        single = f'"{key}": "again",' if not row.rstrip().endswith("{") else f'"{key}": {{}},'
        rows = text.splitlines()
        write(path, "\n".join([*rows[: number - 1], single, *rows[number - 1 :]]))
        finding = one(world.validate().findings, "lock-duplicate-key")
        assert finding.key == key
        assert finding.line


def test_no_single_byte_can_be_changed(world: World) -> None:
    path = world.experiment()
    place = path / lock.NAME
    original = place.read_bytes()
    meaning = json.loads(original)
    accepted = 0
    for index in range(len(original)):
        for mask in (0x01, 0x20):
            flipped = bytearray(original)
            flipped[index] ^= mask
            place.write_bytes(flipped)
            found, findings = lock.read(place)
            if findings:
                assert found is None
                assert codes(findings)
            else:
                accepted += 1
                assert json.loads(flipped) == meaning, (index, mask)
    assert accepted < 200, "only white space may be exchanged"


def test_no_byte_can_be_left_out_or_put_in(world: World) -> None:
    path = world.experiment()
    place = path / lock.NAME
    original = place.read_bytes()
    meaning = json.loads(original)
    for index in range(0, len(original), 3):
        for changed in (original[:index] + original[index + 1 :], original[:index] + b"x" + original[index:]):
            place.write_bytes(changed)
            found, findings = lock.read(place)
            assert findings or found == meaning == json.loads(changed), index
    for length in range(0, len(original) - 1, 7):
        place.write_bytes(original[:length])
        assert lock.read(place)[0] is None, "a torn file"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "lock-broken"),
        (b"{}", "lock-schema"),
        (b"[]", "lock-schema"),
        (b"null", "lock-schema"),
        (b'{"a": NaN}', "lock-broken"),
        (b'{"a": Infinity}', "lock-broken"),
        (b"\xff", "lock-unreadable"),
        (b"[" * 60_000, "lock-broken"),
        (b" " * 70_000, "lock-unreadable"),
        (b'{"recipe": "\\ud800"}', "lock-schema"),
        (b"1" * 5_000, "lock-broken"),
        (b"<<<<<<< ours\n{}\n", "lock-broken"),
    ],
)
def test_what_is_no_lock_is_said_to_be_none(world: World, content: bytes, code: str) -> None:
    path = world.experiment()
    (path / lock.NAME).write_bytes(content)
    report = world.validate()
    assert code in codes(report.findings)
    assert report.compiled is None, "nothing is judged by a lock that nobody can trust"


def test_a_missing_lock_says_how_to_get_one(world: World) -> None:
    path = world.experiment()
    (path / lock.NAME).unlink()
    finding = one(world.validate().findings, "lock-missing")
    assert "--method" in finding.hint
    with pytest.raises(Invalid):
        lock_alone("exp")
    lock_alone("exp", method="acme/tune")
    assert world.validate().ok


def test_a_forged_seal_does_not_help(world: World) -> None:
    path = world.experiment()
    original = lock_of(path)
    for field, value, code in [
        (("recipe", "digest"), "sha256:" + "0" * 64, "lock-stale"),
        (("recipe", "version"), "9", "lock-stale"),
        (("recipe", "name"), "acme/align", "lock-stale"),
        (("recipe", "name"), "acme/gone", "lock-method-unknown"),
        (("recipe", "name"), "nowhere/tune", "lock-kind"),
        (("framework", "kind"), "other", "lock-kind"),
        (("framework", "version"), "2.0.0", "lock-stale"),
        (("framework", "version"), "7.7.7", "lock-release-unknown"),
        (("framework", "runtime_id"), "acme-9", "lock-stale"),
        (("requires", "core"), ">=0.2", "lock-stale"),
    ]:
        changed = copy.deepcopy(original)
        at(changed, field[:-1])[field[-1]] = value
        write(path, seal(changed))
        report = world.validate()
        assert code in codes(report.findings), (field, value, report.findings)
        assert any(f.line for f in report.findings)


def test_a_core_that_is_too_old_or_a_range_that_is_none_is_refused(world: World) -> None:
    world.own_manifests()
    for wanted in (">=99", "not a range"):
        world.edit("methods/_base.yaml", 'requires: {core: ">=0.1"}', f'requires: {{core: "{wanted}"}}')
        world.experiment()
        finding = one(world.validate().findings, "lock-core")
        assert wanted in finding.message
        assert finding.key == "requires.core"
        world.edit("methods/_base.yaml", f'requires: {{core: "{wanted}"}}', 'requires: {core: ">=0.1"}')


def test_drift_of_the_catalog_is_refused_shown_and_moved_only_on_request(world: World) -> None:
    world.own_manifests()
    path = world.experiment()
    before = (path / lock.NAME).read_bytes()
    assert world.validate().ok
    world.edit("methods/_base.yaml", "minimum: 1}", "minimum: 2}")
    finding = one(world.validate().findings, "lock-stale")
    assert finding.key == "recipe.digest"
    assert "tp recipe upgrade" in finding.hint
    assert finding.line == 5
    with pytest.raises(Invalid):
        world.plan()
    assert (path / lock.NAME).read_bytes() == before, "looking changes nothing"
    changed = lock_alone("exp")
    assert [row["field"] for row in changed] == ["recipe.digest"]
    assert world.validate().ok
    assert lock_alone("exp") == []


def test_another_release_is_refused_until_the_lock_is_moved(world: World) -> None:
    world.experiment()
    finding = one(world.validate(framework_version="2.0.0").findings, "lock-release")
    assert (finding.key, finding.severity) == ("--framework-version", "error")
    assert "--framework-version 2.0.0" in finding.hint
    assert world.validate(framework_version="1.0.0").ok
    changed = lock_alone("exp", "2.0.0")
    fields = [row["field"] for row in changed]
    assert "framework.version" in fields and "recipe.digest" in fields
    assert world.validate(framework_version="2.0.0").ok
    with pytest.raises(NotFound):
        lock_alone("exp", "3.0.0")
    assert world.validate().ok, "a refused upgrade leaves the lock"


def test_a_method_that_is_gone_is_said_by_its_lock(world: World) -> None:
    world.own_manifests()
    world.experiment()
    (world.manifests / "acme" / "methods" / "tune.yaml").unlink()
    forget()
    finding = one(world.validate().findings, "lock-method-unknown")
    assert finding.key == "recipe.name"
    with pytest.raises(NotFound):
        lock_alone("exp")
