"""What the store and the manager return. Named tuples, because a store holds thousands."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tuneport.fleets.protocol import State


class Transition(NamedTuple):
    """One step of an attempt. Times are seconds since the epoch: when it happened, as far as known."""

    time: float
    before: State | None
    after: State
    cause: str
    actor: str


class Move(NamedTuple):
    """What is found of the attempt called `key`: its state, why, and who says so; `at` is when it came to be
    so, None for now."""

    key: str
    state: State
    cause: str
    actor: str
    at: float | None = None
    exit_code: int | None = None
    started: float | None = None
    ended: float | None = None


class Attempt(NamedTuple):
    """One try of a job. `order` is the position of its intent among all; `key` names it to the fleet;
    `origin` is the process that accepted it, as `procs.Ident` has it."""

    job: str
    number: int
    order: int
    key: str
    handle: str | None
    state: State
    reached: int
    cause: str
    exit_code: int | None
    created: float
    started: float | None
    ended: float | None
    origin: Mapping[str, Any]


class Record(NamedTuple):
    """One submission of a plan, as it was when this was read. `attempts` is in order; the last one is what
    the job's state means; `parent` is the job that this one evaluates or exports."""

    id: str
    method: str
    release: str
    action: str
    experiment: str
    source: str
    fleet: str
    fleet_kind: str
    fleet_settings: Mapping[str, Any]
    digest: str
    parent: str
    created: float
    attempts: tuple[Attempt, ...]

    @property
    def last(self) -> Attempt:
        return self.attempts[-1]

    @property
    def state(self) -> State:
        return self.last.state

    @property
    def cause(self) -> str:
        return self.last.cause

    def attempt(self, number: int | None = None) -> Attempt:
        """The attempt of that number, the last by default.

        Raises:
            NotFound: there is no such attempt.
        """
        if number is None:
            return self.last
        for attempt in self.attempts:
            if attempt.number == number:
                return attempt
        from tuneport.errors import NotFound

        raise NotFound(
            f"job {self.id} has {len(self.attempts)} attempts, no number {number}", code="attempt-not-found"
        )
