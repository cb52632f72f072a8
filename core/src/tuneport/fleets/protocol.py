"""What a fleet must offer. Fleets are objects, not hooks, because they hold connections.

A fleet is published under the entry-point group `tuneport.fleets`; the entry point names a callable
that takes the fleet's settings (its entry in the site file or `fleets.yaml`, without `kind`) and returns
a `Fleet`. Where the callable has an attribute `SETTINGS`, a mapping from each setting it takes to its
JSON Schema (None for one that all kinds share, see `fleets.schema.json`), settings are checked first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from tuneport.types import LaunchPlan

State: TypeAlias = Literal[
    "ACCEPTED",  # the intent is committed; nothing has been started
    "QUEUED",  # handed to the engine, waiting for resources
    "RUNNING",
    "SUCCEEDED",
    "FAILED",
    "STOPPED",
    "UNKNOWN",  # contact lost: neither ended nor alive as far as anyone can tell
]
TERMINAL: frozenset[State] = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a fleet can do. `accelerators` counts the cards it sees now, None where it cannot know."""

    name: str
    kind: str
    multi_node: bool
    accelerators: int | None
    runtimes: tuple[str, ...]
    searchable: bool = True


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing that `tp fleet check` asked: `what` in two words, what was found, what to do if it is bad."""

    what: str
    ok: bool
    found: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """`cause` explains the state in one sentence; times are seconds since the epoch, None if not yet."""

    state: State
    cause: str = ""
    exit_code: int | None = None
    started: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class LogLine:
    role: str
    text: str
    offset: int
    """Where the next line starts: pass it as `since` to go on without loss or repeats."""


class Fleet(Protocol):
    """All methods may raise `tuneport.errors.Unavailable`; none of them cancels or resubmits on its own.

    A fleet may further have: `probes() -> Iterable[Probe]` for `tp fleet check`, in seconds;
    `show(request) -> str`, the request of `render` for a person; `refuse(plan)`, which raises before
    anything is recorded; `output_dir(handle) -> Path` and `metric_files(handle) -> list[Path]`, where this
    machine sees them; static `shown_folders(settings, image, mounts) -> Sequence[str]`, what jobs see where
    the setting `mounts` decides that, and none where it does not: `image` and `mounts` are the plan's.
    """

    name: str

    def capabilities(self) -> Capabilities: ...

    def render(self, plan: LaunchPlan, key: str) -> Mapping[str, Any]:
        """The engine's own request for this plan. Pure: what `--dry-run` prints is what is submitted."""
        ...

    def submit(self, request: Mapping[str, Any], key: str) -> str:
        """Start it and return the engine's handle. Idempotent by `key`."""
        ...

    def find(self, key: str) -> str | None:
        """The handle of an earlier submission with this key, for recovery after a crash."""
        ...

    def poll(self, handles: Sequence[str]) -> Mapping[str, Status]: ...

    def logs(self, handle: str, *, role: str, since: int, follow: bool) -> Iterator[LogLine]: ...

    def cancel(self, handle: str) -> None:
        """Stop it and wait until nothing of it is left. Idempotent."""
        ...
