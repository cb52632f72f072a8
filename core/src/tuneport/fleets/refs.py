"""The text of a reference once a fleet knows it. Every fleet goes through here."""

from __future__ import annotations

import re

from tuneport.errors import Invalid
from tuneport.types import Ref

_PLAIN = re.compile(r"[\w/.,:;=+@%^~ -]*\Z")


def filled(ref: Ref, text: str) -> str:
    """`text` between the reference's prefix and suffix.

    Raises:
        Invalid: the reference stands inside quotes and `text` would not survive them.
    """
    if ref.plain and not _PLAIN.match(text):
        raise Invalid(
            f"the {ref.ref.replace('_', ' ')} {text!r} holds a character that the framework's command line "
            "cannot carry",
            code="value-unusable",
            hint="use a TUNEPORT_STATE_DIR without quotes, backslashes, `$` or line breaks in its name",
        )
    return f"{ref.prefix}{text}{ref.suffix}"
