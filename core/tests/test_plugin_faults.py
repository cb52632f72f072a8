"""Faults of plugins against commands: what does not need the plugin works, what needs it says whose fault it
is, and the exit code is right."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .core_support import FLAGS, MANIFESTS, Warm, World, install

HEAD = """import os, time
from tuneport.hookspec import hookimpl
from tuneport.compiler.adapter import DeclarativeAdapter
class Adapter(DeclarativeAdapter):
    @hookimpl
    def validate(self, context):
        """


RUN = """
import signal, sys
signal.alarm(0)  # the clock that the deadline of plugins needs
from tuneport.cli.run import run
code = run(sys.argv[1:])
sys.stdout.flush()
os._exit(code)
"""


class Shelf:
    """A project, a folder of installed distributions, and one broken plugin in it for the framework `acme`,
    which has two good methods."""

    def __init__(self, world: World, site: Path, warm: Warm) -> None:
        self.world, self.site, self.warm = world, site, warm
        world.experiment()

    def plugin(
        self, code: str, dist: str = "acme-plugin", name: str = "acme", group: str = "frameworks"
    ) -> None:
        module = f"fake_{dist.replace('-', '_')}"
        points = f"[tuneport.{group}]\n{name} = {module}:Adapter\n"
        install(self.site, dist, points, {f"{module}.py": code})

    def run(self, *args: str) -> tuple[int, Any]:
        env = {**os.environ, "PYTHONPATH": str(self.site), "TUNEPORT_PLUGIN_DEADLINE": "0.5"}
        done = self.warm.run([*args, "--json"], self.world.root, env, RUN)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    made = Warm(tmp_path_factory.mktemp("warm"))
    yield made
    made.close()


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: Warm) -> Shelf:
    site = tmp_path / "site"
    site.mkdir()
    return Shelf(World(tmp_path, monkeypatch), site, warm)


def hook(body: str) -> Callable[[Shelf], None]:
    return lambda shelf: shelf.plugin(HEAD + body + "\n")


def module(code: str) -> Callable[[Shelf], None]:
    return lambda shelf: shelf.plugin(code)


def duplicate(shelf: Shelf) -> None:
    shelf.plugin("class Adapter: pass\n")
    shelf.plugin("class Adapter: pass\n", dist="other-plugin")


def two_digests(shelf: Shelf) -> None:
    """A second source with the release 1.0.0 of acme, and other content."""
    folder = shelf.site / "fake_acme_data"
    shutil.copytree(MANIFESTS / "acme" / "releases", folder / "acme" / "releases")
    release = folder / "acme" / "releases" / "1.0.0.yaml"
    release.write_text(release.read_text() + "# changed\n")
    install(shelf.site, "acme-plugin", "[tuneport.manifests]\nacme = fake_acme_data\n", {})


def stale_editable(shelf: Shelf) -> None:
    """The metadata is there, and the path file leads to a checkout that was moved away."""
    shelf.plugin("")
    (shelf.site / "fake_acme_plugin.py").unlink()
    (shelf.site / "__editable__.acme_plugin.pth").write_text("/nowhere/at/all\n")


def stale_editable_data(shelf: Shelf) -> None:
    install(shelf.site, "acme-plugin", "[tuneport.manifests]\nacme = fake_acme_data\n", {})


def uninstalled_meanwhile(shelf: Shelf) -> None:
    """Its files are gone when the plugin is asked; the scan of what is installed was made before."""
    shelf.plugin(HEAD + "return []\n")
    assert shelf.run("plugins", "--no-load")[0] == 0
    info = shelf.site / "acme_plugin-1.0.dist-info"
    stamp = shelf.site.stat()
    (shelf.site / "fake_acme_plugin.py").unlink()
    for path in info.iterdir():
        path.unlink()
    os.utime(shelf.site, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # nothing tells that it is gone


LOADS, HOOKS, NAMES, DATA, NONE = "plugin-broken", "plugin-failed", "plugin-duplicate", "manifest", ""
# what is wrong, how it is made, the code that commands which need the plugin say, what the message holds
# ruff: noqa: E501 - one row for each fault
FAULTS: dict[str, tuple[Callable[[Shelf], None], str, str]] = {
    "import error": (module("import no_such_thing_at_all\n"), LOADS, "no_such_thing_at_all"),
    "import exits": (module("raise SystemExit(0)\n"), LOADS, "SystemExit"),
    "import loops": (module("while True: pass\n"), LOADS, "more than 0.5 seconds"),
    "import loops and catches": (
        module("import time\nwhile True:\n    try:\n        time.sleep(9)\n    except Exception: pass\n"),
        LOADS, "more than 0.5 seconds",
    ),
    "import prints": (module("print('{}')\nraise ValueError('late')\n"), LOADS, "late"),
    "no syntax": (module("def ("), LOADS, "SyntaxError"),
    "wrong type": (module("Adapter = 5\n"), NONE, ""),
    "making it loops": (
        module("class Adapter:\n    def __init__(self):\n        while True: pass\n"), LOADS, "more than 0.5",
    ),
    "a hook raises": (hook("raise KeyError('kaputt')"), HOOKS, "kaputt"),
    "a hook returns the wrong type": (hook("return [5]"), HOOKS, "returned int, not Finding"),
    "a hook loops": (hook("while True: pass"), HOOKS, "more than 0.5 seconds"),
    "a hook exits": (hook("raise SystemExit(0)"), HOOKS, "SystemExit"),
    "a hook takes what there is not": (module(HEAD.replace("context", "ctx") + "pass\n"), "plugin-hooks", "ctx"),
    "a name twice": (duplicate, NAMES, "other-plugin"),
    "one release, two digests": (two_digests, DATA, "two"),
    "a stale editable install": (stale_editable, LOADS, "fake_acme_plugin"),
    "stale editable data": (stale_editable_data, NONE, ""),
    "uninstalled while running": (uninstalled_meanwhile, LOADS, "fake_acme_plugin"),
}  # fmt: skip

FREE = [
    ["methods"], ["methods", "acme"], ["ls"], ["plugins", "--no-load"], ["plugins"], ["job", "ls"], ["fleet", "ls"],
    ["runtime", "ls"], ["schema"], ["dataset", "ls"], ["methods", "acme/tune"], ["explain", "acme/tune"],
    ["new", "another", "--method", "acme/tune"], ["recipe", "status", "exp"],
]  # fmt: skip
NEEDS = [
    ["validate", "exp", *FLAGS], ["plan", "exp", *FLAGS], ["submit", "exp", *FLAGS],
    ["explain", "exp", "optim.lr", *FLAGS],
]  # fmt: skip
OF_DATA = {"methods", "explain", "new", "recipe"}
"""Commands that read the manifests of a framework, where those are at fault."""


@pytest.mark.sweep
@pytest.mark.parametrize("fault", FAULTS)
def test_the_matrix(shelf: Shelf, fault: str) -> None:
    prepare, code, said = FAULTS[fault]
    prepare(shelf)
    for args in FREE:
        exit_code, document = shelf.run(*args)
        if code == DATA and args[0] in OF_DATA and args != ["methods"]:
            continue  # what is said of broken manifests has tests of its own
        assert exit_code == 0, (args, document)
    for args in NEEDS:
        exit_code, document = shelf.run(*args)
        text = json.dumps(document)
        if code == NONE or (args[0] == "explain" and code == HOOKS):
            continue  # where a key comes from can be said without that hook
        assert exit_code == 3, (args, document)
        if code == DATA:
            assert "fake_acme_data" in text and "acme-plugin 1.0" in text, (args, document)
            continue
        codes = {one["code"] for one in document.get("findings", ())} | {
            document.get("error", {}).get("code")
        }
        assert code in codes, (args, document)
        assert said in text and "acme-plugin" in text, (args, document)
    rows = {row["dist"]: row for row in shelf.run("plugins")[1]["plugins"]}
    if code in (LOADS, NAMES, "plugin-hooks"):
        assert rows["acme-plugin"]["problem"], rows["acme-plugin"]
    assert not rows["tuneport-core"]["problem"]


@pytest.mark.parametrize("kind", ["import error", "import loops"])
@pytest.mark.parametrize("group", ["fleets", "policies"])
def test_a_broken_fleet_or_policy_that_nobody_asked_for_costs_nothing(
    shelf: Shelf, kind: str, group: str
) -> None:
    code = {"import error": "import no_such_thing\n", "import loops": "while True: pass\n"}[kind]
    shelf.plugin(code, name="spare", group=group)
    for args in (
        ["validate", "exp", *FLAGS],
        ["plan", "exp", *FLAGS],
        ["methods"],
        ["job", "ls"],
        ["fleet", "ls"],
    ):
        assert shelf.run(*args)[0] == 0, args
    row = next(row for row in shelf.run("plugins")[1]["plugins"] if row["dist"] == "acme-plugin")
    assert row["problem"]


def test_a_manifests_package_whose_data_is_gone_is_said(shelf: Shelf) -> None:
    stale_editable_data(shelf)
    _, document = shelf.run("plugins")
    row = next(row for row in document["plugins"] if row["dist"] == "acme-plugin")
    assert "is not there" in row["problem"]
    assert any("acme-plugin" in said for said in document["sources"])
