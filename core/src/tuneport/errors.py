"""Errors that reach a person, each with an exit code, a stable code and a way out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:  # not at run time: every command imports this module, and few need those types
    from tuneport.types import Finding


class TuneportError(Exception):
    """Base class. `code` is stable and kebab-case; `hint` says what to do."""

    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, code: str = "internal", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint


class UsageError(TuneportError):
    """The command line itself is wrong."""

    exit_code = 2


class Invalid(TuneportError):
    """What the user wrote is wrong; `findings` lists every problem at once."""

    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        code: str = "invalid",
        hint: str = "",
        findings: Sequence[Finding] = (),
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.findings = tuple(findings)


class NotFound(TuneportError):
    """Something that was named does not exist here."""

    exit_code = 4


class Untrusted(TuneportError):
    """A digest, signature or lock does not hold."""

    exit_code = 5


class Unavailable(TuneportError):
    """A runtime, a fleet or the machine cannot do it now."""

    exit_code = 6


class JobFailed(TuneportError):
    """The job itself ended badly; Tuneport worked."""

    exit_code = 1
