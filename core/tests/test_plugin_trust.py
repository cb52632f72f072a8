"""Digests and signatures of manifests: every flipped byte is named, and the site's level is held."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tuneport.errors import Invalid, Unavailable, Untrusted
from tuneport.registry import catalog, plugins, trust

from .core_support import FLAGS, World, codes, forget, tp, tp_json


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path, monkeypatch)
    made.own_manifests()
    yield made
    monkeypatch.undo()
    forget()  # what a site asks for is remembered by the process


def signed(world: World) -> str:
    """Sign the world's manifests; the public key."""
    pem, public = trust.new_key()
    (world.manifests / trust.NAME).write_text(trust.document(world.manifests, pem))
    return public


def site(world: World, required: str, *keys: str) -> None:
    named = ", ".join(f"k{number}: '{key}'" for number, key in enumerate(keys))
    (world.folder / "site.yaml").write_text(f"trust: {{required: {required}, keys: {{{named}}}}}\n")
    forget()


def test_the_levels(world: World) -> None:
    assert trust.examine(world.manifests) == trust.Trust("unsigned")
    (world.manifests / trust.NAME).write_text(trust.document(world.manifests))
    assert trust.examine(world.manifests) == trust.Trust("hash")
    public = signed(world)
    assert trust.examine(world.manifests) == trust.Trust("hash", public), "nobody trusts that key"
    assert trust.examine(world.manifests, [public]) == trust.Trust("signed", public)


def test_every_flipped_byte_is_named(world: World) -> None:
    """One byte of each file, at its start, middle and end."""
    public = signed(world)
    files = sorted(p for p in world.manifests.rglob("*") if p.is_file() and p.name != trust.NAME)
    assert len(files) > 10
    for path in files:
        content = path.read_bytes()
        stat = path.stat()
        for place in {0, len(content) // 2, len(content) - 1}:
            flipped = bytearray(content)
            flipped[place] ^= 1
            path.write_bytes(flipped)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # the clock tells nothing
            found = trust.examine(world.manifests, [public])
            name = path.relative_to(world.manifests).as_posix()
            assert found.level == ""
            assert found.problems == (f"{name} is not what {trust.NAME} says",)
        path.write_bytes(content)
    assert trust.examine(world.manifests, [public]).level == "signed"


def test_every_flipped_byte_of_the_record_itself_is_found(world: World) -> None:
    public = signed(world)
    path = world.manifests / trust.NAME
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        flipped = bytearray(content)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        found = trust.examine(world.manifests, [public])
        assert found.level != "signed" or json.loads(flipped) == json.loads(content), place


def test_files_that_come_and_go_are_named(world: World) -> None:
    signed(world)
    (world.manifests / "acme" / "extra.yaml").write_text("x: 1\n")
    (world.manifests / "acme" / "rules" / "common.yaml").unlink()
    (world.manifests / "acme" / "linked").symlink_to("/etc")
    assert trust.examine(world.manifests).problems == (
        f"acme/extra.yaml is not in {trust.NAME}",
        f"acme/linked is not in {trust.NAME}",
        "acme/rules/common.yaml is gone",
    )


def test_what_hides_where_python_keeps_what_it_compiles_is_named(world: World) -> None:
    module = world.manifests / "__init__.py"
    module.write_text("")
    signed(world)
    cache = world.manifests / "__pycache__"
    cache.mkdir()
    (cache / "__init__.cpython-311.pyc").write_bytes(b"what an installer compiled")
    (cache / "__init__.cpython-311.opt-1.pyc").write_bytes(b"and optimised")
    assert trust.examine(world.manifests).problems == ()
    for name in ("__pycache__/gone.cpython-311.pyc", "__pycache__/framework.yaml", "loose.pyc"):
        (world.manifests / name).write_bytes(b"x")
    (cache / "linked.cpython-311.pyc").symlink_to(module)
    (cache / "acme").mkdir()
    (cache / "acme" / "framework.yaml").write_text("framework: acme\n")
    assert trust.examine(world.manifests).problems == tuple(
        f"{name} is not in {trust.NAME}"
        for name in (
            "__pycache__/acme/framework.yaml",
            "__pycache__/framework.yaml",
            "__pycache__/gone.cpython-311.pyc",
            "__pycache__/linked.cpython-311.pyc",
            "loose.pyc",
        )
    )


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"files": []}', '{"files": {}, "signature": 1}', "\x00", "[" * 100_000]
)
def test_a_record_that_is_none(world: World, text: str) -> None:
    (world.manifests / trust.NAME).write_text(text)
    (problem,) = trust.examine(world.manifests).problems
    assert "cannot be read" in problem


@pytest.mark.parametrize("key", ["", "rsa:xx", "ed25519:" + "A" * 43, "ed25519:" + "A" * 43 + "=", 5, None])
def test_a_signature_that_is_none(world: World, key: object) -> None:
    signed(world)
    path = world.manifests / trust.NAME
    document = json.loads(path.read_text())
    document["signature"]["key"] = key
    path.write_text(json.dumps(document))
    assert trust.examine(world.manifests).problems == (f"the signature in {trust.NAME} does not hold",)


def test_a_signature_of_other_files_does_not_hold(world: World) -> None:
    public = signed(world)
    path = world.manifests / trust.NAME
    before = json.loads(path.read_text())
    (world.manifests / "acme" / "extra.yaml").write_text("x: 1\n")
    fresh = json.loads(trust.document(world.manifests))
    path.write_text(json.dumps({**fresh, "signature": before["signature"]}))
    assert "does not hold" in trust.examine(world.manifests, [public]).problems[0]


# --- what a site asks for


def test_a_site_that_asks_for_nothing_gets_what_it_had(world: World) -> None:
    before = world.experiment()
    lock = json.loads((before / "recipe.lock.json").read_text())
    assert "trust" not in lock
    signed(world)
    forget()
    assert json.loads((world.experiment() / "recipe.lock.json").read_text()) == lock, "the same lock digest"
    assert world.validate().ok


@pytest.mark.parametrize(
    ("required", "has", "ok"),
    [
        ("unsigned", "unsigned", True),
        ("hash", "unsigned", False),
        ("hash", "hash", True),
        ("hash", "signed", True),
        ("signed", "hash", False),
        ("signed", "other", False),
        ("signed", "signed", True),
    ],
)
def test_the_level_is_held(world: World, required: str, has: str, ok: bool) -> None:
    world.experiment()
    keys = [trust.new_key()[1]] if has == "other" else []
    if has == "hash":
        (world.manifests / trust.NAME).write_text(trust.document(world.manifests))
    elif has != "unsigned":
        public = signed(world)
        keys = keys or [public]
    site(world, required, *keys)
    if ok:
        assert world.validate().ok
        return
    with pytest.raises(Untrusted) as caught:
        world.validate()
    assert caught.value.exit_code == 5
    assert str(world.manifests) in caught.value.message and f"{required} is asked for" in caught.value.message
    listed = tp("plugins", cwd=world.root)
    assert listed.returncode == 0 and "manifests-untrusted" in listed.stderr


def test_a_changed_file_stops_every_use_of_its_framework(world: World) -> None:
    """And the listing of others goes on."""
    world.experiment()
    site(world, "signed", signed(world))
    assert world.validate().ok
    with (world.manifests / "acme" / "rules" / "common.yaml").open("a") as stream:
        stream.write("#")
    forget()
    for args in (
        ["validate", "exp", *FLAGS], ["plan", "exp", *FLAGS], ["submit", "exp", *FLAGS], ["methods", "acme"],
        ["methods", "acme/tune"], ["new", "other", "--method", "acme/tune"],
    ):  # fmt: skip
        code, document = tp_json(*args)
        assert code == 5, (args, document)
        assert document["error"]["code"] == "manifests-changed"
        assert "acme/rules/common.yaml is not what" in document["error"]["message"]
    assert tp("methods").returncode == 0
    assert tp("job", "ls").returncode == 0
    code, document = tp_json("plugin", "verify", str(world.manifests))
    assert code == 5
    assert document["manifests"][0]["problems"] == [f"acme/rules/common.yaml is not what {trust.NAME} says"]


def test_the_lock_says_what_was_trusted(world: World) -> None:
    public = signed(world)
    site(world, "signed", public, trust.new_key()[1])
    path = world.experiment()
    lock = json.loads((path / "recipe.lock.json").read_text())
    assert lock["trust"] == {"level": "signed", "by": [public]}
    assert world.validate().ok
    # Where no site asks, the lock still does.
    (world.folder / "site.yaml").write_text("")
    forget()
    assert world.validate().ok
    other = signed(world)
    assert other != public
    forget()
    with pytest.raises(Untrusted, match="whom it does not trust"):
        world.validate()
    (world.manifests / trust.NAME).unlink()
    forget()
    with pytest.raises(Untrusted, match="unsigned"):
        world.validate()


def test_a_lock_without_trust_goes_on_where_a_site_begins_to_ask(world: World) -> None:
    world.experiment()
    site(world, "signed", signed(world))
    assert world.validate().ok


def test_trust_in_a_lock_is_sealed(world: World) -> None:
    site(world, "signed", signed(world))
    path = world.experiment() / "recipe.lock.json"
    lock = json.loads(path.read_text())
    lock["trust"]["level"] = "hash"
    path.write_text(json.dumps(lock))
    assert codes(world.validate().findings) == ["lock-tampered"]


def test_without_the_library_a_signature_is_not_taken_for_good(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = signed(world)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(Unavailable) as caught:
        trust.examine(world.manifests, [public])
    assert (caught.value.exit_code, caught.value.code) == (6, "signing-missing")
    assert "tuneport-core[signing]" in caught.value.hint
    (world.manifests / trust.NAME).write_text(trust.document(world.manifests))
    assert trust.examine(world.manifests).level == "hash", "digests need no library"


def test_nothing_imports_the_library_where_nothing_is_signed() -> None:
    code = (
        "import sys; from tuneport.registry import catalog; catalog.methods();"
        "print('cryptography' in sys.modules)"
    )
    import subprocess

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# --- the commands


def test_key_sign_and_verify(world: World) -> None:
    key = world.folder / "key.pem"
    code, document = tp_json("plugin", "key", str(key))
    assert code == 0
    public = document["public"]
    assert key.stat().st_mode & 0o777 == 0o600
    assert tp("plugin", "key", str(key)).returncode == 3, "a key is never written over"
    assert tp("plugin", "sign", str(world.manifests), "--key", str(key)).returncode == 0
    done = tp("plugin", "verify", str(world.manifests), "--trust", public)
    assert done.returncode == 0 and done.stdout.startswith("signed ") and public in done.stdout
    assert tp("plugin", "verify", str(world.manifests)).stdout.startswith("hash ")
    assert tp("plugin", "verify", str(world.manifests), "--trust", "x").returncode == 3
    assert tp("plugin", "verify", "nothing-here").returncode == 4
    (world.folder / "bad.pem").write_text("nonsense")
    done = tp("plugin", "sign", str(world.manifests), "--key", str(world.folder / "bad.pem"))
    assert done.returncode == 3 and "cannot be read" in done.stderr


def test_a_key_of_another_kind_signs_nothing(world: World) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import x25519

    pem = x25519.X25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(Invalid, match="no Ed25519 key"):
        trust.document(world.manifests, pem)


def test_plugins_are_listed_with_their_data_and_trust(world: World) -> None:
    row = next(row for row in plugins.rows(check=True) if row.dist == "tuneport-manifests")
    assert row.trust == "unsigned" and "verl" in row.provides and Path(row.folder).is_dir()
    site(world, "hash")
    row = next(row for row in plugins.rows(check=True) if row.dist == "tuneport-manifests")
    assert row.problem == "unsigned, and the site asks for hash"
    assert catalog.methods() == [], "none of them can be used"
