"""Digests: SHA-256 over RFC 8785 canonical JSON, written `sha256:<hex>`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuneport.errors import Invalid
from tuneport.types import Json

# `hashlib` loads OpenSSL, which takes as long as a twentieth of a command. The module below it is the same
# function on its own; `random` of the standard library takes it for the same reason.
if TYPE_CHECKING:
    from hashlib import sha256 as sha256
else:
    try:
        from _sha2 import sha256  # Python 3.12 and newer
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:  # a Python that was built without it
            from hashlib import sha256


def digest(value: Json) -> str:
    """The digest of a JSON value. Integers beyond 2**53 and non-finite floats are tagged as text first,
    because canonical JSON has no form for them and a digest must not merge different values.

    Raises:
        Invalid: the value is nested too deep or holds something JSON cannot.
    """
    return "sha256:" + sha256(canonical(value)).hexdigest()


def canonical(value: Json) -> bytes:
    """RFC 8785 bytes of a JSON value."""
    import rfc8785

    try:
        encoded: bytes = rfc8785.dumps(_tagged(value))
    except (rfc8785.CanonicalizationError, RecursionError, UnicodeEncodeError) as error:
        raise Invalid(f"cannot be written as canonical JSON: {error}", code="not-json") from error
    return encoded


def digest_bytes(content: bytes) -> str:
    """The digest of a file's content."""
    return "sha256:" + sha256(content).hexdigest()


_TAGS = ("$float", "$int", "$map")


def _tagged(value: Any) -> Any:
    if isinstance(value, dict):
        tagged = {key: _tagged(item) for key, item in value.items()}
        # A mapping that looks like a tag gets one itself, so that it is not taken for what it looks like.
        return {"$map": tagged} if len(value) == 1 and next(iter(value)) in _TAGS else tagged
    if isinstance(value, list | tuple):
        return [_tagged(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"$float": repr(value)}
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53 - 1:
        return {"$int": str(value)}
    return value
