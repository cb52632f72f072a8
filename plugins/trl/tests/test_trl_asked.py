"""A release's own parsers, asked as an adoption asks them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from trl_support import ENTRIES, RELEASES, Workshop
from tuneport import api
from tuneport.registry import catalog
from tuneport.types import LaunchPlan
from tuneport.upstream import adopt_oracle

pytestmark = pytest.mark.engine
# All but the one that runs on no processor.
OTHERS = [one for one in catalog.releases("trl") if one not in (RELEASES[0], "1.15.0")]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "release", [RELEASES[0], *(pytest.param(one, marks=pytest.mark.upstream) for one in OTHERS)]
)
def test_a_release_takes_the_starting_command_of_every_method(
    release: str, workshop: Workshop, interpreter: Callable[[str], str]
) -> None:
    interpreter(release)  # its runtime is installed

    def planned(method: str, profile: str) -> LaunchPlan:
        experiment = api.Experiment(str(workshop.experiment(release, method.partition("/")[2])))
        plan = experiment.plan(profile=profile, model="org/model", train_data="org/data")
        if method != "trl/kto":
            return plan
        (command,) = plan.commands
        return replace(plan, commands=(replace(command, argv=(*command.argv, "--nowhere=1")),))

    answers = adopt_oracle.ask("trl", release, planned)
    methods = {name for name, _, _ in catalog.methods("trl")}
    assert set(answers.accepted) == methods - {"trl/kto"}
    assert list(answers.refused) == ["trl/kto"] and "--nowhere" in answers.refused["trl/kto"]
    assert (answers.why, answers.unasked, answers.unlike) == ("", {}, [])
    assert answers.entries == len(set(ENTRIES.values())) and answers.keys > 1_000
