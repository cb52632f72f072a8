"""Whose fault it is when a policy breaks, and that stdout stays data whatever a plugin writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tuneport.errors import Invalid
from tuneport.registry.plugins import Hooks
from tuneport.types import Command, FileSpec, LaunchPlan, RuntimeNeed

from .core_support import FLAGS, World, tp
from .test_core_plugins import HEAD, POLICY, enable, plugin, policy, site, world

__all__ = ["site", "world"]  # fixtures


BAD_POLICIES = {
    "yields twice": ("        yield\n        return plan\n", "yield"),
    "returns nothing": ("        return None\n", "returned NoneType, not LaunchPlan"),
    "raises": ("        raise KeyError('kaputt')\n", "kaputt"),
    "gives a number as a label": (
        "        return replace(plan, labels={**plan.labels, 'x': 5})\n", "a label that is not text: 'x': 5",
    ),
    "gives labels that are none": ("        return replace(plan, labels=5)\n", "wrong type"),
    "gives a text as mounts": ("        return replace(plan, mounts='/data')\n", "mounts that are no list"),
    "gives a number to the environment": (
        "        return replace(plan, commands=tuple(replace(c, env={'A': 1}) for c in plan.commands))\n",
        "put int",
    ),
    "gives no commands": ("        return replace(plan, commands=None)\n", "wrong type"),
    "changes argv": ("        return replace(plan, commands=())\n", "changed more than environment"),
}  # fmt: skip


@pytest.mark.parametrize("order", [("strict", "good"), ("good", "strict")])
@pytest.mark.parametrize("what", BAD_POLICIES)
def test_of_two_policies_the_broken_one_is_blamed(
    world: World, site: Path, what: str, order: tuple[str, str]
) -> None:
    body, said = BAD_POLICIES[what]
    policy(site, name="good")
    policy(site, POLICY[: POLICY.index("        commands = ")] + body)
    world.experiment()
    enable(world, *order)
    (found,) = [one for one in world.validate().findings if one.severity == "error"]
    assert found.code in ("plugin-failed", "policy-plan")
    assert "acme-strict" in found.message and "acme-good" not in found.message, found.message
    assert said in found.message


@pytest.mark.parametrize(
    ("finding", "said"),
    [
        ("Finding('a', 'note', 5)", "whose message is int"),
        ("Finding('a', 'note', 'b', line='3')", "the line '3'"),
        ("Finding('a', 'fatal', 'b')", "the severity 'fatal'"),
    ],
)
def test_a_finding_of_a_policy_that_is_none_is_blamed_on_it(
    world: World, site: Path, finding: str, said: str
) -> None:
    policy(site, POLICY.replace("Finding('site-images', 'warning', 'by policy')", finding))
    world.experiment()
    enable(world, "strict")
    (found,) = [one for one in world.validate().findings if one.severity == "error"]
    assert found.code == "plugin-failed" and "acme-strict" in found.message and said in found.message


def test_the_label_names_the_policies_that_changed_the_plan(world: World, site: Path) -> None:
    policy(site)
    policy(site, POLICY[: POLICY.index("        commands = ")] + "        return plan\n", name="idle")
    world.experiment()
    enable(world, "idle", "strict")
    assert world.plan().labels["tuneport.policies"] == "strict"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("plan.commands[0].files['run.py'] = FileSpec('text', 'other')", "changed more than environment"),
        ("plan.config['seed'] = 7", "changed more than environment"),
        ("plan.commands[0].env['SITE'] = 'x'", ""),
    ],
)
def test_what_a_policy_changes_in_place_is_seen_in_every_plan(
    world: World, site: Path, change: str, said: str
) -> None:
    """Also in one that is no launch of the framework, such as an export or an evaluation."""
    body = f"        from tuneport.types import FileSpec\n        {change}\n        return plan\n"
    policy(site, POLICY[: POLICY.index("        commands = ")] + body)
    world.experiment()
    compiled = world.validate().compiled
    assert compiled is not None
    runs = Command("export", ("python", "run.py"), {}, {"run.py": FileSpec("text", "ours")})
    given = LaunchPlan("acme/tune", "acme 1", RuntimeNeed("r"), (), (runs,), {"seed": 1}, action="export")
    hooks = Hooks("acme", ["strict"])
    if said:
        with pytest.raises(Invalid, match=said) as caught:
            hooks.around(compiled.context, given)
        assert caught.value.code == "policy-plan"
    else:
        made = hooks.around(compiled.context, given)
        assert made.labels == {"tuneport.policies": "strict"} and made.commands[0].env == {"SITE": "x"}
    assert given.commands == (
        Command("export", ("python", "run.py"), {}, {"run.py": FileSpec("text", "ours")}),
    )


LOUD = """
import os, subprocess, sys
class Adapter(DeclarativeAdapter):
    @hookimpl
    def launch(self, context):
        os.write(1, b"by descriptor\\n")
        subprocess.run(["sh", "-c", "echo by a process"])
        sys.__stdout__.write("by the first stream\\n")
        print("by print")
        return super().launch(context)
"""


def test_whatever_a_plugin_writes_stdout_stays_data(world: World, site: Path) -> None:
    plugin(site, HEAD + LOUD)
    world.experiment()
    env = {**os.environ, "PYTHONPATH": str(site)}
    done = tp("plan", "exp", *FLAGS, "--json", cwd=world.root, env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["method"] == "acme/tune"
    for way in ("descriptor", "a process", "the first stream", "print"):
        assert f"by {way}\n" in done.stderr


def test_stdout_is_given_back(world: World, site: Path) -> None:
    """Also where what the plugin did failed, and where there is no stderr or no stdout."""
    code = (
        "import os\nfrom tuneport.registry.deadline import deadline\n"
        "for closed in (None, 2, 1):\n"
        "    if closed:\n        os.close(closed)\n"
        "    try:\n        with deadline():\n            with deadline():\n                pass\n"
        "            closed == 1 or os.write(1, b'x')\n            raise KeyError\n"
        "    except KeyError:\n        closed == 1 or os.write(1, b'%d' % (closed or 0))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"02", b"x")
