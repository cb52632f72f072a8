"""Strangers' plugins: found without importing, loaded by need, blamed by name, and never fatal to others."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tuneport.errors import Invalid, NotFound, TuneportError
from tuneport.registry import catalog, plugins, scan, sources
from tuneport.registry.plugins import Hooks
from tuneport.types import Location

from .core_support import World, codes, forget, install, one, tp

HEAD = "from tuneport.hookspec import hookimpl\nfrom tuneport.compiler.adapter import DeclarativeAdapter\n"
GOOD = HEAD + "class Adapter(DeclarativeAdapter):\n    pass\n"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    before = set(sys.modules)
    yield World(tmp_path, monkeypatch)
    for name in set(sys.modules) - before:
        if name.startswith("fake_"):
            del sys.modules[name]


@pytest.fixture
def site(world: World, tmp_path: Path) -> Path:
    """A folder of installed distributions that is on the path."""
    folder = tmp_path / "site"
    folder.mkdir()
    world.monkeypatch.syspath_prepend(str(folder))
    return folder


def plugin(
    site: Path, code: str, name: str = "acme", group: str = "frameworks", dist: str = "acme-plugin"
) -> None:
    """Install a plugin whose module is `fake_<dist>` and whose class is `Adapter`."""
    module = f"fake_{dist.replace('-', '_')}"
    install(site, dist, f"[tuneport.{group}]\n{name} = {module}:Adapter\n", {f"{module}.py": code})
    forget()


def rows() -> dict[tuple[str, str], plugins.PluginRow]:
    return {(row.kind, row.dist): row for row in plugins.rows(check=True)}


BROKEN = {
    "raises": ("raise RuntimeError('boom')\n", "RuntimeError: boom"),
    "exits": ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
    "exits for good": ("raise SystemExit\n", "SystemExit"),
    "no such attribute": ("x = 1\n", "AttributeError"),
    "needs a framework": ("import no_such_framework\n", "No module named 'no_such_framework'"),
    "no Python": ("def (\n", "SyntaxError"),
    "cannot be made": (
        "class Adapter:\n    def __init__(self): raise ValueError('nope')\n",
        "ValueError: nope",
    ),
    "exits when made": ("class Adapter:\n    def __init__(self): raise SystemExit(1)\n", "SystemExit"),
    "recursion": ("def f(): f()\nf()\n", "RecursionError"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plugin_is_a_row_and_hurts_nothing_else(world: World, site: Path, name: str) -> None:
    code, said = BROKEN[name]
    plugin(site, code)
    row = rows()["framework", "acme-plugin"]
    assert said in row.problem
    assert "acme-plugin" in row.problem
    assert not rows()["fleet", "tuneport-core"].problem
    assert [r[0] for r in catalog.methods("acme")], "listing imports no plugin"
    world.experiment()
    with pytest.raises(Invalid) as caught:
        world.validate()
    assert caught.value.code == "plugin-broken"
    assert "acme-plugin" in caught.value.message
    world.env("TUNEPORT_DISABLE_PLUGINS", "acme")
    forget()
    assert world.validate().ok, "the manifest alone is enough for acme"


def test_two_distributions_that_claim_a_name_are_both_named(world: World, site: Path) -> None:
    plugin(site, GOOD, dist="first-one")
    plugin(site, GOOD, dist="second-one")
    with pytest.raises(Invalid) as caught:
        Hooks("acme")
    assert caught.value.code == "plugin-duplicate"
    assert "first-one 1.0" in caught.value.message and "second-one 1.0" in caught.value.message
    found = rows()
    assert "second-one" in found["framework", "first-one"].problem
    assert "first-one" in found["framework", "second-one"].problem


def test_the_first_of_one_distribution_on_the_path_counts(world: World, site: Path, tmp_path: Path) -> None:
    plugin(site, GOOD)
    later = tmp_path / "later"
    later.mkdir()
    sys.path.append(str(later))
    install(later, "Acme.Plugin", "[tuneport.frameworks]\nacme = nowhere:X\n", {}, version="0.9")
    forget()
    assert [point.version for point in plugins.points("tuneport.frameworks")["acme"]] == ["1.0"]
    Hooks("acme")
    sys.path.remove(str(later))


UNFIT = {
    "misspelt": ("    @hookimpl\n    def lunch(self, context): return None\n", "lunch"),
    "wrong argument": ("    @hookimpl\n    def launch(self, contxt): return None\n", "contxt"),
    "no decorator": ("    def launch(self, context): return None\n", "launch lacks @hookimpl"),
    "not first result": ("    @hookimpl\n    def validate(self, ctx): yield 1\n", "ctx"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_hooks_that_do_not_fit_are_errors(world: World, site: Path, name: str) -> None:
    body, said = UNFIT[name]
    plugin(site, HEAD + "class Adapter(DeclarativeAdapter):\n" + body)
    with pytest.raises(Invalid) as caught:
        Hooks("acme")
    assert caught.value.code == "plugin-hooks"
    assert said in caught.value.message
    assert "acme-plugin" in caught.value.message
    assert said in rows()["framework", "acme-plugin"].problem


def test_an_implementation_may_take_fewer_arguments(world: World, site: Path) -> None:
    plugin(
        site, HEAD + "class Adapter(DeclarativeAdapter):\n    @hookimpl\n    def validate(self): return []\n"
    )
    world.experiment()
    assert world.validate().ok


FAULTS = {
    "bind_args raises": ("bind_args(self, context): 1 / 0", "bind_args", "ZeroDivisionError"),
    "bind_args returns a dict": ("bind_args(self, context): return {}", "bind_args", "returned dict"),
    "bind_args exits": ("bind_args(self, context): raise SystemExit(0)", "bind_args", "SystemExit"),
    "topology returns nothing": ("topology(self, context): pass", "topology", "returned NoneType"),
    "launch returns text": ("launch(self, context): return 'x'", "launch", "returned str, not LaunchPlan"),
    "launch returns nothing": ("launch(self, context): return None", "launch", "returned NoneType"),
    "launch recurses": ("launch(self, context): return self.launch(context)", "launch", "RecursionError"),
    "validate returns text": ("validate(self, context): return ['x']", "validate", "returned str"),
    "validate returns a number": ("validate(self, context): return 5", "validate", "TypeError"),
    "validate raises": ("validate(self, context): raise KeyError('k')", "validate", "KeyError"),
    "validate raises later": (
        "validate(self, context):\n        yield from ()\n        raise KeyError('k')",
        "validate", "KeyError",
    ),
    "validate invents a severity": (
        "validate(self, context): return [Finding('a-b', 'fatal', 'm')]", "validate", "severity 'fatal'",
    ),
    "launch gives numbers": (
        "launch(self, context):\n        plan = super().launch(context)\n"
        "        return replace(plan, commands=(replace(plan.commands[0], argv=('x', 5)),))",
        "launch", "put int where",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_a_hook_is_a_finding_or_an_error_that_names_the_plugin(
    world: World, site: Path, name: str
) -> None:
    body, hook, said = FAULTS[name]
    imports = "from dataclasses import replace\nfrom tuneport.types import Finding\n"
    plugin(site, HEAD + imports + f"class Adapter(DeclarativeAdapter):\n    @hookimpl\n    def {body}\n")
    world.experiment()
    message = ""
    try:
        finding = one(world.validate().findings, "plugin-failed")
        assert (finding.severity, hook) in (("error", "validate"), ("error", "launch"))
        message = finding.message
    except TuneportError as error:
        assert error.code == "plugin-failed"
        assert hook in ("bind_args", "topology")
        message = error.message
    assert f"acme (acme-plugin 1.0) failed in {hook}" in message
    assert said in message


def test_a_plugin_overrides_what_is_particular_and_keeps_the_rest(world: World, site: Path) -> None:
    plugin(
        site,
        HEAD + "from tuneport.types import Bindings, Finding, LaunchPlan, Origin\n"
        "from dataclasses import replace\n"
        "class Adapter(DeclarativeAdapter):\n"
        "    @hookimpl\n"
        "    def validate(self, context):\n"
        "        yield Finding('acme-own', 'note', str(len(context.own)), key='optim.lr')\n"
        "    @hookimpl\n"
        "    def topology(self, context):\n"
        "        return Bindings({'nodes': 99}, Origin('topology', 'plugin'))\n"
        "    @hookimpl\n"
        "    def export(self, context, checkpoint, format):\n"
        "        return replace(self.launch(context), action='export', labels={'from': checkpoint.value})\n",
    )
    world.experiment()
    report = world.validate()
    assert report.ok
    assert one(report.findings, "acme-own").severity == "note"
    plan = world.plan()
    assert plan.config["nodes"] == 99
    assert report.compiled is not None
    exported = Hooks("acme").export(report.compiled.context, Location("path", "/c"), "huggingface")
    assert (exported.action, exported.labels) == ("export", {"from": "/c"})


def test_a_framework_that_names_its_plugin_is_nothing_without_it(world: World, site: Path) -> None:
    world.own_manifests()
    world.edit("framework.yaml", "default_release: 1.0.0", "default_release: 1.0.0\nplugin: acme-plugin")
    world.experiment()
    with pytest.raises(NotFound) as caught:
        world.validate()
    assert caught.value.code == "plugin-missing"
    assert "acme-plugin" in caught.value.hint
    plugin(site, GOOD)
    assert world.validate().ok
    world.env("TUNEPORT_PLUGINS", "")
    forget()
    with pytest.raises(NotFound, match="not installed or not enabled"):
        world.validate()


def test_the_switches(world: World, site: Path) -> None:
    plugin(site, GOOD)
    plugin(site, GOOD, name="strict", group="policies", dist="acme-strict")

    def on() -> set[str]:
        forget()
        return {row.name for row in plugins.rows(check=False) if row.enabled and row.kind != "manifest"}

    everything = on()
    assert {"acme", "strict", "local"} <= everything
    world.env("TUNEPORT_PLUGINS", "acme, local")
    assert on() == {"acme", "local"}
    world.env("TUNEPORT_PLUGINS", "")
    assert on() == set()
    assert [row for row in plugins.rows(check=True) if row.kind == "manifest"], "data stays"
    world.monkeypatch.delenv("TUNEPORT_PLUGINS")
    world.env("TUNEPORT_DISABLE_PLUGINS", "strict,local")
    assert on() == everything - {"strict", "local"}
    world.monkeypatch.delenv("TUNEPORT_DISABLE_PLUGINS")
    world.env("TUNEPLANE_DISABLE_PLUGINS", "acme")
    assert on() == everything - {"acme"}, "the older prefixes"
    world.env("FORGE_DISABLE_PLUGINS", "strict")
    assert on() == everything - {"acme"}, "the first prefix that is set counts"


def test_hook_calls_can_be_traced(world: World, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin(site, GOOD)
    world.experiment()
    world.plan()
    assert capsys.readouterr().err == ""
    world.env("TUNEPORT_TRACE_HOOKS", "1")
    world.plan()
    lines = capsys.readouterr().err.splitlines()
    assert "tp: hook bind_args: acme" in lines
    assert [line for line in lines if line.startswith("tp: hook launch: acme")]
    world.env("TUNEPORT_TRACE_HOOKS", "0")
    world.plan()
    assert capsys.readouterr().err == ""


# --- policies

POLICY = (
    HEAD
    + """
from dataclasses import replace
from tuneport.types import Finding
class Adapter:
    @hookimpl
    def validate(self, context):
        yield Finding('site-images', 'warning', 'by policy')
    @hookimpl(wrapper=True)
    def launch(self, context):
        plan = yield
        commands = tuple(replace(c, env={**c.env, 'SITE': 'x'}) for c in plan.commands)
        return replace(plan, commands=commands, labels={**plan.labels, 'policy': 'strict'}, mounts=('/data',))
"""
)


def policy(site: Path, code: str = POLICY, name: str = "strict") -> None:
    plugin(site, code, name=name, group="policies", dist=f"acme-{name}")


def enable(world: World, *names: str) -> None:
    (world.root / "tuneport.yaml").write_text(f"policies: [{', '.join(names)}]\n")
    forget()


def test_a_policy_may_not_change_what_runs(world: World, site: Path) -> None:
    policy(site, POLICY.replace("env={**c.env, 'SITE': 'x'}", "argv=(*c.argv, '--more')"))
    world.experiment()
    enable(world, "strict")
    assert "policy-plan" in codes(world.validate().findings, "error")


def test_a_policy_works_only_where_project_or_site_enable_it(world: World, site: Path) -> None:
    policy(site)
    world.experiment()
    assert "site-images" not in codes(world.validate().findings, "warning")
    assert "SITE" not in world.plan().commands[0].env
    enable(world, "strict")
    assert "site-images" in codes(world.validate().findings, "warning")
    plan = world.plan()
    assert plan.commands[0].env["SITE"] == "x"
    labelled = {"policy": "strict", "tuneport.policies": "strict"}
    assert (plan.labels, plan.mounts) == (labelled, ("/data",))
    (world.root / "tuneport.yaml").write_text("{}\n")
    (world.folder / "site.yaml").write_text("policies: [strict]\n")
    forget()
    assert world.plan().labels == labelled
    enable(world, "strict", "strict")
    assert len([f for f in world.validate().findings if f.code == "site-images"]) == 1, (
        "enabled twice, asked once"
    )


REFUSED = {
    "plain launch": "    @hookimpl\n    def launch(self, context): return None\n",
    "bind_args": "    @hookimpl\n    def bind_args(self, context): return None\n",
    "topology": "    @hookimpl\n    def topology(self, context): return None\n",
    "export": "    @hookimpl\n    def export(self, context, checkpoint, format): return None\n",
    "wrapped export": "    @hookimpl(wrapper=True)\n    def export(self, context): return (yield)\n",
    "old wrapper": "    @hookimpl(hookwrapper=True)\n    def launch(self, context): yield\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_policy_that_implements_anything_else_is_refused(world: World, site: Path, name: str) -> None:
    policy(site, HEAD + "class Adapter:\n" + REFUSED[name])
    world.experiment()
    enable(world, "strict")
    with pytest.raises(Invalid) as caught:
        world.validate()
    assert caught.value.code == "policy-hook"
    assert "'strict' of acme-strict" in caught.value.message


def test_a_policy_that_is_not_there_or_broken_stops_the_request(world: World, site: Path) -> None:
    world.experiment()
    enable(world, "gone")
    with pytest.raises(NotFound) as missing:
        world.validate()
    assert missing.value.code == "policy-missing"
    policy(site, "raise OSError('x')\n")
    enable(world, "strict")
    with pytest.raises(Invalid) as broken:
        world.validate()
    assert broken.value.code == "plugin-broken"
    world.env("TUNEPORT_DISABLE_PLUGINS", "strict")
    forget()
    with pytest.raises(NotFound):
        world.validate()


POLICY_FAULTS = {
    "validate(self, context): return 1 / 0": ("validate", "ZeroDivisionError"),
    "validate(self, context): return ['x']": ("validate", "returned str"),
    "launch(self, context):\n        yield\n        return None": ("launch", "returned NoneType"),
    "launch(self, context):\n        yield\n        raise KeyError('k')": ("launch", "KeyError"),
}


@pytest.mark.parametrize("body", POLICY_FAULTS)
def test_a_fault_in_a_policy_is_blamed_on_it_and_not_on_the_framework(
    world: World, site: Path, body: str
) -> None:
    hook, said = POLICY_FAULTS[body]
    mark = "@hookimpl(wrapper=True)" if hook == "launch" else "@hookimpl"
    plugin(site, GOOD)
    policy(site, HEAD + f"class Adapter:\n    {mark}\n    def {body}\n")
    world.experiment()
    enable(world, "strict")
    finding = one(world.validate().findings, "plugin-failed")
    assert "policy strict (acme-strict)" in finding.message
    assert "acme-plugin" not in finding.message
    assert said in finding.message


# --- finding them


def reference() -> set[tuple[str, str, str, str]]:
    found = set()
    for group in scan.GROUPS:
        for point in importlib.metadata.entry_points(group=group):
            assert point.dist is not None
            name = point.dist.metadata["Name"].lower().replace("_", "-").replace(".", "-")
            found.add((group, point.name, point.value, name))
    return found


def scanned() -> set[tuple[str, str, str, str]]:
    forget()
    return {
        (p.group, p.name, p.value, p.dist)
        for group in scan.GROUPS
        for p in scan.entry_points(group, refresh=True)
    }


def test_the_scan_agrees_with_the_standard_library_here(world: World) -> None:
    assert scanned() == reference()
    assert ("tuneport.fleets", "local", "tuneport.fleets.local:LocalFleet", "tuneport-core") in scanned()
    version = importlib.metadata.version("tuneport-core")
    assert {p.version for p in scan.entry_points("tuneport.fleets") if p.dist == "tuneport-core"} == {version}


def test_the_scan_agrees_with_the_standard_library_in_a_crowd(
    world: World, site: Path, tmp_path: Path
) -> None:
    for number in range(150):
        install(
            site, f"Crowd.Member-{number}", f"[console_scripts]\nx{number} = a:b\n", {}, version="1.0.post1"
        )
    odd = [
        "[tuneport.frameworks]\na=m:A\n",
        "\n# comment\n[console_scripts]\nz = z:z\n\n[tuneport.fleets]\n# no = x:y\n  b  =  m.n:B.c  \n"
        "\n[other]\nc = d:e\n",
        "[tuneport.policies]\r\np1 = m:P\r\np2 = m:Q\r\n[tuneport.manifests]\r\nq = data_only\r\n",
        "[tuneport.frameworkss]\nno = x:y\n[tuneport]\nno = x:y\n",
        "[tuneport.frameworks]\n",
        "",
    ]
    for number, text in enumerate(odd):
        install(site, f"odd-{number}", text, {})
    egg = site / "egg_style-2.0-py3.11.egg-info"
    egg.mkdir()
    (egg / "PKG-INFO").write_text("Metadata-Version: 1.0\nName: egg-style\nVersion: 2.0\n")
    (egg / "entry_points.txt").write_text("[tuneport.fleets]\negg = e:E\n")
    (site / "no_points-1.0.dist-info").mkdir()
    (site / "a_file-1.0.dist-info").write_text("not a folder")
    later = tmp_path / "later"
    later.mkdir()
    install(later, "odd-0", "[tuneport.frameworks]\nhidden = m:A\n", {}, version="9")
    world.monkeypatch.setattr(sys, "path", [*sys.path, str(later), str(tmp_path / "gone"), "", "/dev/null"])
    importlib.invalidate_caches()
    found = scanned()
    assert found == reference()
    assert ("tuneport.fleets", "b", "m.n:B.c", "odd-1") in found
    assert ("tuneport.fleets", "egg", "e:E", "egg-style") in found
    assert not [row for row in found if row[1] in ("hidden", "no")]


def test_the_scan_is_kept_until_a_folder_changes(world: World, site: Path) -> None:
    plugin(site, GOOD)
    assert "acme" in plugins.points("tuneport.frameworks")
    forget()
    world.monkeypatch.setattr(scan, "_scan", lambda: pytest.fail("scanned again"))
    assert "acme" in plugins.points("tuneport.frameworks")
    world.monkeypatch.undo()


def test_installing_and_removing_is_seen(world: World, site: Path) -> None:
    assert "acme" not in plugins.points("tuneport.frameworks")
    plugin(site, GOOD)
    assert "acme" in plugins.points("tuneport.frameworks")
    info = site / "acme_plugin-1.0.dist-info"
    info.rename(site / "gone")
    assert "acme" not in plugins.points("tuneport.frameworks")


# --- data-only packages


def test_a_manifests_package_is_located_without_running_it(world: World, site: Path, tmp_path: Path) -> None:
    mark = tmp_path / "it-ran"
    code = f"open({str(mark)!r}, 'w')\nraise SystemExit('ran')\n"
    method = "method: extra/only\ntitle: Only\nlaunch: {run: {argv: [sh]}}\n"
    install(
        site, "extra-data", "[tuneport.manifests]\nextra = fake_extra_data\n",
        {
            "fake_extra_data/__init__.py": code,
            "fake_extra_data/extra/framework.yaml": "framework: extra\ntitle: Extra\ndefault_release: '1'\n",
            "fake_extra_data/extra/releases/1.yaml": "release: '1'\nruntime: {id: extra-1}\n",
            "fake_extra_data/extra/methods/only.yaml": method,
        },
    )  # fmt: skip
    forget()
    assert catalog.method("extra/only").title == "Only"
    assert not rows()["manifest", "extra-data"].problem
    done = tp("methods", "extra", env={**os.environ, "PYTHONPATH": str(site)})
    assert (done.returncode, done.stdout.split()) == (0, ["extra/only", "Only"])
    assert not mark.exists()
    assert "fake_extra_data" not in sys.modules


def test_the_same_package_elsewhere_is_found_there(world: World, tmp_path: Path) -> None:
    """Two checkouts with the same name and version: the path decides, not what was found last time."""
    for number in (1, 2):
        folder = tmp_path / f"copy{number}"
        install(
            folder, "extra-data", "[tuneport.manifests]\nextra = fake_extra_data\n",
            {
                "fake_extra_data/__init__.py": "",
                f"fake_extra_data/extra{number}/framework.yaml": "x: 1\n",
            },
        )  # fmt: skip
        with world.monkeypatch.context() as patch:
            patch.syspath_prepend(str(folder))
            forget()
            assert f"extra{number}" in sources.framework_folders()
            assert f"extra{3 - number}" not in sources.framework_folders()


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("os.path", "not a top-level package"),
        ("fake_x:attr", "not a top-level package"),
        ("../x", "not a top-level package"),
        ("", "not a top-level package"),
        ("fake_nowhere", "is not there"),
        ("json_lines_nowhere", "is not there"),
        ("antigravity", "is not there"),
    ],
)
def test_manifests_that_name_no_package_are_a_sentence(
    world: World, site: Path, target: str, said: str
) -> None:
    install(site, "bad-data", f"[tuneport.manifests]\nbad = {target}\n", {})
    forget()
    assert any(said in problem for problem in sources.sources()[1])
    assert said in rows()["manifest", "bad-data"].problem
    assert catalog.method("acme/tune").id == "acme/tune"
    assert "antigravity" not in sys.modules


# --- the contract


def test_the_contract_imports_nothing_but_itself() -> None:
    code = (
        "import sys; before = set(sys.modules); import tuneport.hookspec, tuneport.types, tuneport.errors\n"
        "new = {m.partition('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)\n"
        "print(sorted(new), sorted(m for m in sys.modules if m.startswith('tuneport')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = ["tuneport", "tuneport._version", "tuneport.errors", "tuneport.hookspec", "tuneport.types"]
    assert done.stdout.strip() == f"{['pluggy', 'tuneport']} {ours}"


def wheel(name: str) -> Any:
    return importlib.metadata.distribution(name)


def test_every_published_group_is_one_we_read() -> None:
    for name in ("tuneport-core", "tuneport-manifests"):
        groups = {p.group for p in wheel(name).entry_points if p.group.startswith("tuneport.")}
        assert groups <= set(scan.GROUPS)
