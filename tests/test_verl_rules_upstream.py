"""The release refuses what the rules call an error, as far as processors can tell, and takes its neighbours.

`upstream` of a case says what the release makes of the outside command: `refuses`, or `runs` where it goes
wrong later, on GPUs or with data, or is only unwise. A part of the cases is asked in each run; all of them
with TUNEPORT_TEST_UPSTREAM=all.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from verl_commands import RELEASES, Command, cases, having
from verl_reference import ask

pytestmark = pytest.mark.upstream
ONE_IN = 1 if os.environ.get("TUNEPORT_TEST_UPSTREAM") == "all" else 12


@pytest.mark.parametrize("release", RELEASES)
def test_the_release_agrees(release: str) -> None:
    commands: list[Command] = []
    expected: list[tuple[str, bool]] = []
    offset = RELEASES.index(release) * (ONE_IN // 2)
    for number, case in enumerate(cases()):
        if number % ONE_IN != offset or release not in having(case):
            continue
        if case.upstream in ("refuses", "runs"):
            commands.append(case.outside)
            expected.append((f"{case.name} outside", case.upstream != "refuses"))
        if not case.says:
            commands.append(case.inside)
            expected.append((f"{case.name} inside", True))
    answers = ask(release, commands)
    wrong = [
        f"{name}: {answer['error'] or 'accepted'}"
        for (name, accepted), answer in zip(expected, answers, strict=True)
        if answer["accepted"] is not accepted
    ]
    assert not wrong, "\n".join(wrong)
    assert len(commands) > 20
