"""Which accelerators this machine has, as far as jobs of this user may use them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tuneport.errors import Invalid, Unavailable
from tuneport.types import Pool


@dataclass(frozen=True, slots=True)
class Card:
    """`index` is what CUDA_VISIBLE_DEVICES takes under CUDA_DEVICE_ORDER=PCI_BUS_ID. An empty `name`
    fits every series."""

    index: int
    name: str = ""
    uuid: str = ""


def cards(settings: Mapping[str, Any]) -> tuple[Card, ...]:
    """The cards of setting `gpus` (indexes, or how many), else those nvidia-smi lists, less those that
    CUDA_VISIBLE_DEVICES hides from this process.

    Raises:
        Invalid: the setting is neither.
    """
    declared = settings.get("gpus")
    if declared is None:
        return _visible(_listed(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    if isinstance(declared, int) and not isinstance(declared, bool) and declared >= 0:
        declared = range(declared)
    elif not isinstance(declared, list | tuple) or not all(_is_index(index) for index in declared):
        raise Invalid(
            f"fleet setting gpus must be a number or a list of card indexes, not {declared!r}",
            code="fleet-setting",
            hint="for example gpus: [0, 1]",
        )
    return tuple(Card(index) for index in dict.fromkeys(declared))


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _listed() -> list[Card]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        answer = subprocess.run(
            [tool, "--query-gpu=index,uuid,name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_smi(answer.stdout) if answer.returncode == 0 else []


def parse_smi(text: str) -> list[Card]:
    """Lines such as `0, GPU-5c2d…, NVIDIA H200`."""
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",", 2)]
        if len(fields) == 3 and fields[0].isdigit():
            found.append(Card(int(fields[0]), fields[2], fields[1]))
    return found


def _visible(found: list[Card], allowed: str | None) -> tuple[Card, ...]:
    if allowed is None:
        return tuple(found)
    names = [name.strip() for name in allowed.split(",") if name.strip()]
    return tuple(
        card
        for card in found
        if str(card.index) in names or any(card.uuid.startswith(name) for name in names if len(name) > 3)
    )


def cards_needed(pools: Iterable[Pool]) -> int:
    return sum(pool.nodes * pool.gpus_per_node for pool in pools if pool.series != "cpu")


def fitting(pools: tuple[Pool, ...], present: tuple[Card, ...]) -> tuple[int, ...]:
    """The indexes of the cards that these pools may run on, all series of the pools taken together.

    Raises:
        Unavailable: more cards of the series are asked for than exist, or several nodes.
    """
    for pool in pools:
        if pool.nodes != 1:
            raise Unavailable(
                f"pool {pool.name} asks for {pool.nodes} nodes; the local fleet is one machine",
                code="fleet-one-node",
                hint="use --profile with one node, or a fleet with several",
            )
    wanted = [pool for pool in pools if pool.series != "cpu"]
    needed = cards_needed(wanted)
    if not needed:
        return ()
    usable = tuple(card for card in present if all(_is_series(card, pool.series) for pool in wanted))
    if len(usable) < needed:
        series = ", ".join(dict.fromkeys(pool.series for pool in wanted))
        names = ", ".join(dict.fromkeys(card.name for card in present if card.name))
        others = f" ({len(present)} x {names})" if names and len(present) > len(usable) else ""
        plural = "s" * (needed != 1)
        raise Unavailable(
            f"the plan needs {needed} {series} card{plural}, this machine has {len(usable)}{others}",
            code="cards-missing",
            hint="ask for fewer, for --profile cpu:N, or use another fleet",
        )
    return tuple(card.index for card in usable)


def _is_series(card: Card, series: str) -> bool:
    wanted, name = _letters(series), _letters(card.name)
    return not name or wanted in ("gpu", "cuda") or wanted in name


def _letters(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum())
