"""How far a folder of manifests can be trusted: the digests and the signature that it carries, and what the
site asks for.

A manifest package may hold `tuneport-digests.json`: the SHA-256 of each of its files and, where its publisher
signed it, an Ed25519 signature over them. Levels, from low to high:

- unsigned: it carries no digests.
- hash: each file is what the digests say, and nobody whom the site trusts has signed them.
- signed: besides, they are signed by a key that the site trusts.

A folder whose files are not what its own digests say has no level at all. Files are read each time, never a
cache: what is checked is what is there.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.util import source_from_cache
from pathlib import Path
from typing import Any

from tuneport.errors import Invalid, Unavailable, Untrusted
from tuneport.experiment.site import required_trust
from tuneport.registry.digest import canonical, digest_bytes
from tuneport.types import Json

NAME = "tuneport-digests.json"
LEVELS = ("unsigned", "hash", "signed")
_PREFIX = b"tuneport manifests 1\n"
_KEY = re.compile(r"ed25519:[A-Za-z0-9+/]{43}=\Z")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Trust:
    """What was found: `level` is empty where the folder is not what it says; then `problems` names each file.
    `signer` is the public key of a signature that holds, whoever trusts it."""

    level: str
    signer: str = ""
    problems: tuple[str, ...] = ()


def examine(folder: Path, trusted: Collection[str] = ()) -> Trust:
    """The trust level of a folder of manifests, with `trusted` public keys (`ed25519:…`).

    Raises:
        Unavailable: it is signed, and the library that checks signatures is not installed.
    """
    try:
        document = json.loads((folder / NAME).read_bytes())
        known = document["files"]
        signature = document.get("signature")
        assert isinstance(known, dict) and (signature is None or isinstance(signature, dict))
    except FileNotFoundError:
        return Trust("unsigned")
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        AssertionError,
        RecursionError,
    ) as error:
        return Trust("", "", (f"{NAME} cannot be read: {type(error).__name__}: {error}",))
    found = _digests(folder)
    problems = [
        f"{name} is not what {NAME} says" for name in known if found.get(name, known[name]) != known[name]
    ]
    problems += [f"{name} is gone" for name in known if name not in found]
    problems += [f"{name} is not in {NAME}" for name in found if name not in known]
    signer = ""
    if signature is not None:
        signer = str(signature.get("key", ""))
        if not _holds(known, signature):
            problems.append(f"the signature in {NAME} does not hold")
    if problems:
        return Trust("", signer, tuple(sorted(problems)))
    return Trust("signed" if signer and signer in trusted else "hash", signer)


def document(folder: Path, private: bytes | None = None) -> str:
    """The text of the folder's `tuneport-digests.json`, signed where a private key (PEM) is given.

    Raises:
        Invalid: the key is no Ed25519 key, or the folder holds a link. Unavailable: no library to sign with.
    """
    files = _digests(folder)
    found: dict[str, Json] = {"files": files}
    if private is not None:
        ed25519, serialization = _library()
        try:
            key = serialization.load_pem_private_key(private, None)
        except (ValueError, TypeError) as error:
            raise Invalid(f"the key cannot be read: {error}", code="key-broken") from error
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise Invalid("the key is no Ed25519 key", code="key-kind", hint="`tp plugin key FILE` makes one")
        value = base64.b64encode(key.sign(_PREFIX + canonical(files))).decode("ascii")
        found["signature"] = {"key": _public(key.public_key()), "value": value}
    return json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def new_key() -> tuple[bytes, str]:
    """(a new private key as PEM, its public key).

    Raises:
        Unavailable: the library is not installed.
    """
    ed25519, serialization = _library()
    key = ed25519.Ed25519PrivateKey.generate()
    pem: bytes = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return pem, _public(key.public_key())


def demand(sources: Collection[tuple[str, Path]], wanted: str, trusted: Collection[str]) -> list[str]:
    """The keys that signed what is used, after holding each source (owner, folder) to a level.

    Raises:
        Untrusted: a source is below it; its distribution and each changed file are named.
    """
    signers = []
    for owner, folder in sources:
        found = examine(folder, trusted)
        if found.problems:
            shown = "; ".join(found.problems[:_SHOWN])
            more = len(found.problems) - _SHOWN
            shown += f"; and {more} more" if more > 0 else ""
            raise Untrusted(
                f"the manifests of {owner} are not what was published: {shown}",
                code="manifests-changed",
                hint=f"install {owner.partition(' ')[0]} anew; `tp plugin verify` names every file",
            )
        if LEVELS.index(found.level) < LEVELS.index(wanted):
            by = f", signed by {found.signer}, whom it does not trust" if found.signer else ""
            raise Untrusted(
                f"the manifests of {owner} are {found.level}{by}; {wanted} is asked for",
                code="manifests-untrusted",
                hint="see `trust` of the site file, and `tp plugins` for what is installed",
            )
        if found.signer:
            signers.append(found.signer)
    return signers


def recorded(framework: str) -> dict[str, Json] | None:
    """What a lock says was trusted, None where the site asks for nothing."""
    from tuneport.registry.sources import framework_folders

    wanted, keys = required_trust()
    if wanted == "unsigned":
        return None
    sources = [(source.owner, source.folder) for source in framework_folders()[framework]]
    signers = demand(sources, wanted, keys.values())
    return {"level": wanted, "by": sorted(set(signers) & set(keys.values()))}


def hold(framework: str, lock: Mapping[str, Json]) -> None:
    """Hold what is installed to what a lock says was trusted.

    Raises:
        Untrusted: it is less, or by somebody else.
    """
    from tuneport.registry.sources import framework_folders

    sources = [(source.owner, source.folder) for source in framework_folders()[framework]]
    demand(sources, lock["level"], lock["by"])


def check_key(text: str) -> str:
    """A public key as the site file writes it.

    Raises:
        Invalid: it is none.
    """
    if not _KEY.match(text):
        raise Invalid(f"{text!r} is no public key", code="key-broken", hint="it reads ed25519:… in base64")
    return text


def _digests(folder: Path) -> dict[str, str]:
    """Relative name -> digest of each file; a link counts as what it says, wherever it leads. What an
    installer compiles of a module that is here is not part of what was published."""
    found: dict[str, str] = {}
    for base, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted([*files, *(one for one in folders if os.path.islink(os.path.join(base, one)))]):
            path = os.path.join(base, name)
            relative = os.path.relpath(path, folder).replace(os.sep, "/")
            if relative == NAME or _compiled(path):
                continue
            if os.path.islink(path):
                found[relative] = f"link to {os.readlink(path)}"
            elif os.path.isfile(path):
                with open(path, "rb") as stream:
                    found[relative] = digest_bytes(stream.read())
            else:
                found[relative] = "no file"
    return found


def _compiled(path: str) -> bool:
    """Whether Python wrote the file for a module beside it, and so may write it at any time."""
    if not path.endswith(".pyc") or os.path.islink(path):
        return False
    try:
        return os.path.isfile(source_from_cache(path))
    except ValueError:  # not where, or not called as, Python would
        return False


def _holds(files: Mapping[str, Json], signature: Mapping[str, Json]) -> bool:
    key, value = signature.get("key"), signature.get("value")
    if not isinstance(key, str) or not isinstance(value, str) or not _KEY.match(key):
        return False
    ed25519, _ = _library()
    from cryptography.exceptions import InvalidSignature

    try:
        raw = base64.b64decode(key.partition(":")[2], validate=True)
        public = ed25519.Ed25519PublicKey.from_public_bytes(raw)
        public.verify(base64.b64decode(value, validate=True), _PREFIX + canonical(dict(files)))
    except (InvalidSignature, ValueError, Invalid):
        return False
    return True


def _public(key: Any) -> str:
    return "ed25519:" + base64.b64encode(key.public_bytes_raw()).decode("ascii")


def _library() -> tuple[Any, Any]:
    """Imported only where a signature is made or checked: most sites have none."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise Unavailable(
            "signatures are checked by the package cryptography, which is not installed",
            code="signing-missing",
            hint="pip install 'tuneport-core[signing]'",
        ) from error
    return ed25519, serialization
