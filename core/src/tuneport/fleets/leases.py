"""Who runs now and who waits: one ticket per job in a folder, read and written under one lock.

There is no daemon. Every waiting supervisor looks at the tickets, and starts when every earlier job
that waits for the same kind of place has had its turn and the places suffice. A ticket counts while
its supervisor or any process of its job lives, so cards that an unsupervised job uses stay taken.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneport.errors import Invalid
from tuneport.fleets import disk


@dataclass(frozen=True, slots=True)
class Need:
    """What a job waits for. `order` is the position of its intent; `usable` the cards it may get."""

    key: str
    order: int
    cards: int
    usable: tuple[int, ...]
    max_jobs: int | None
    max_cpu_jobs: int


@dataclass(frozen=True, slots=True)
class Ticket:
    key: str
    order: int
    cards: int
    held: tuple[int, ...] | None
    """None while it waits."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The cards leased, or, where `cards` is None, what the job waits for; `ahead` others come first."""

    cards: tuple[int, ...] | None
    waits_for: str = ""
    ahead: int = 0


def limits(settings: Mapping[str, Any]) -> tuple[int | None, int]:
    """Settings `max_jobs` (jobs running at once, unlimited by default) and `max_cpu_jobs` (those among
    them without a card: a quarter of the processors by default, at least 2).

    Raises:
        Invalid: one of them is not a positive whole number.
    """
    found: list[int | None] = []
    for name in ("max_jobs", "max_cpu_jobs"):
        value = settings.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise Invalid(
                f"fleet setting {name} must be a whole number of at least 1, not {value!r}",
                code="fleet-setting",
            )
        found.append(value)
    return found[0], found[1] or max(2, (os.cpu_count() or 1) // 4)


class Leases:
    """The tickets in `folder`. `lives(key)` says whether anything of a job is left."""

    def __init__(self, folder: Path, lives: Callable[[str], bool]) -> None:
        self._folder = folder
        self._lives = lives

    def join(self, need: Need) -> None:
        """Take a place in the queue."""
        disk.folder(self._folder, "lease-folder")
        with disk.locked(self._folder / "lock"):
            self._put(need, None, "lease-ticket")

    def ask(self, need: Need) -> Grant:
        """Lease what the job needs if it is its turn. Repeat until `cards` is not None."""
        with disk.locked(self._folder / "lock"):
            grant = decide(need, self._tickets(besides=need.key))
            if grant.cards is not None:
                self._put(need, grant.cards, "lease-grant")
            return grant

    def leave(self, key: str) -> None:
        """Give everything back. Idempotent."""
        for path in self._folder.glob(f"*.{key}.json"):
            disk.remove(path, "lease-remove")

    def _put(self, need: Need, held: tuple[int, ...] | None, point: str) -> None:
        ticket = {"key": need.key, "order": need.order, "cards": need.cards, "held": held}
        disk.publish_json(self._folder / f"{need.order:010d}.{need.key}.json", ticket, point, durable=False)

    def _tickets(self, besides: str) -> list[Ticket]:
        found = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                raw = json.loads(path.read_bytes())
                held = None if raw["held"] is None else tuple(raw["held"])
                ticket = Ticket(raw["key"], raw["order"], raw["cards"], held)
            except (OSError, ValueError, KeyError, TypeError):
                continue  # gone meanwhile, or torn by a power cut: its processes are gone as well
            if ticket.key == besides:
                continue
            if self._lives(ticket.key):
                found.append(ticket)
            elif ticket.held is not None:
                disk.remove(path, "lease-sweep")
        return found


def decide(need: Need, others: Sequence[Ticket]) -> Grant:
    """Whether `need` may start beside `others`. First come, first served among jobs of one kind: a job
    that wants many cards is not overtaken for ever by jobs that want one."""
    running = [ticket for ticket in others if ticket.held is not None]
    ahead = [
        ticket
        for ticket in others
        if ticket.held is None and ticket.order < need.order and bool(ticket.cards) == bool(need.cards)
    ]
    taken = {index for ticket in running for index in ticket.held or ()}
    free = [index for index in need.usable if index not in taken]
    idle = [ticket for ticket in running if not ticket.cards]
    waits_for = ""
    if need.max_jobs is not None and len(running) >= need.max_jobs:
        waits_for = f"one of {len(running)} running jobs to end (max_jobs is {need.max_jobs})"
    elif not need.cards and len(idle) >= need.max_cpu_jobs:
        waits_for = f"one of {len(idle)} running jobs to end (max_cpu_jobs is {need.max_cpu_jobs})"
    elif need.cards and len(free) < need.cards:
        waits_for = f"{need.cards} card{'s' * (need.cards != 1)}, {len(free)} free"
    elif ahead:
        waits_for = f"{ahead[0].key}, which was submitted before"
    return Grant(None if waits_for else tuple(free[: need.cards]), waits_for, len(ahead))
