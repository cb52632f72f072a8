"""Fleets as files declare them: layered, checked with file and line, and judged against what is asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tuneport.errors import Invalid, NotFound, Unavailable
from tuneport.experiment import fleets, hardware
from tuneport.experiment.project import find_project
from tuneport.jobs import manager
from tuneport.registry import scan
from tuneport.types import Finding, Pool, Topology

from .core_support import World, forget

SITE = """
fleets:
  big: {kind: slurm, partition: site, account: team, nodes: {h200: {gpus_per_node: 8, count: 2}}}
  other: {kind: ray, address: "http://a"}
"""
OWN = """
fleets:
  big:
    kind: slurm
    partition: own
    images: none
  other: {kind: slurm}
  small: {kind: local, nodes: {l40: {gpus_per_node: 4, count: 1}}}
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def declare(world: World, own: str = OWN, site: str = SITE) -> None:
    (world.folder / "site.yaml").write_text(site)
    (world.root / fleets.FILE).write_text(own)
    forget()


def codes(findings: Iterable[Finding]) -> list[str]:
    return [finding.code for finding in findings]


def test_entries_are_laid_over_each_other_key_by_key(world: World) -> None:
    declare(world)
    found, findings = fleets.places(find_project())
    assert not findings and set(found) == {"big", "other", "small"}
    big = found["big"]
    assert (big.kind, big.settings["partition"], big.settings["account"]) == ("slurm", "own", "team")
    assert big.node_gpus("h200") == 8 and big.node_gpus("a100") == 8 and big.node_gpus("cpu") == 0
    assert found["other"].settings == {}, "an entry of another kind replaces"
    own, site = str(world.root / fleets.FILE), str(world.folder / "site.yaml")
    assert big.where("partition") == (own, 5)
    assert big.where("account") == (site, 3) and big.where("nodes", "h200") == (site, 3)
    assert fleets.find("kuberay").kind == "kubernetes" and fleets.find("nobody").where() == ("", 0)


BROKEN = [
    ("fleets: {a: {}}", "'kind' is missing"),
    ("fleets: {a: {kind: slurm, nodes: {h200: {count: 1}}}}", "'gpus_per_node' is missing"),
    ("fleets: {a: {kind: slurm, nodes: {h200: {gpus_per_node: 0}}}}", "0 is less than"),
    ("fleets: {a: {kind: slurm, nodes: {H200: {gpus_per_node: 1}}}}", "H200"),
    ("fleets: {a: {kind: slurm, nodes: {}}}", "fleets.a.nodes"),
    ("fleets: {a: {kind: slurm, images: some}}", "images"),
    ("fleets: {a: {kind: slurm, environment: {A: 1}}}", "environment.A"),
    ("fleets: {a: {kind: slurm, environment: {A-B: x}}}", "A-B"),
    (
        "fleets: {a: {kind: slurm, environment: {TUNEPORT_ROLE: x}}}",
        'fleets.a.environment: "TUNEPORT_ROLE" is written by the fleet',
    ),
    ("fleets: {../a: {kind: slurm}}", "../a"),
    ("fleet: {a: {kind: slurm}}", "unknown key 'fleet'"),
    ("", "empty"),
    ("fleets: [", "not YAML"),
]


@pytest.mark.parametrize(("text", "said"), BROKEN, ids=[said for _, said in BROKEN])
def test_a_broken_file_is_a_finding_with_its_line(world: World, text: str, said: str) -> None:
    declare(world, text, "")
    world.experiment()
    report = world.validate()
    mine = [f for f in report.findings if f.file == str(world.root / fleets.FILE)]
    assert mine and not report.ok and all(f.line in (1, 2) for f in mine), report.findings
    assert any(said in f.message for f in mine), mine
    assert fleets.find("local", find_project()).kind == "local", "this machine needs no declaration"
    with pytest.raises(Invalid) as caught:
        fleets.find("a", find_project())
    assert caught.value.findings


def test_hostile_files_are_findings(world: World) -> None:
    world.experiment()
    path = world.root / fleets.FILE
    for make in (
        lambda: path.write_bytes(b"\xff\xfe"),
        lambda: path.write_text("a: " + "x" * (5 << 20)),
        lambda: path.mkdir(),
        lambda: path.symlink_to(world.root / "gone"),
    ):
        make()
        assert not world.validate().ok
        path.rmdir() if path.is_dir() else path.unlink()


PROFILES: list[tuple[str, tuple[Pool, ...] | None]] = [
    ("h200:16", (Pool("main", "h200", 2, 8),)),
    ("student=h200:8", (Pool("student", "h200", 1, 8),)),
    ("train=h200:16,teach=l40:8", (Pool("train", "h200", 2, 8), Pool("teach", "l40", 2, 4))),
    ("a=cpu:4,b=cpu:2", (Pool("a", "cpu", 2, 2), Pool("b", "cpu", 1, 2))),
    ("h200:8,l40:4", None),
    ("a=h200:8,", None),
    ("A=h200:8,b=h200:8", None),
    ("a=h200:12,b=h200:8", None),
    ("-a=h200:8", None),
]


@pytest.mark.parametrize(("text", "pools"), PROFILES, ids=[text for text, _ in PROFILES])
def test_profiles_of_several_pools_follow_the_nodes(text: str, pools: tuple[Pool, ...] | None) -> None:
    nodes = {name: {"gpus_per_node": size} for name, size in (("h200", 8), ("l40", 4), ("cpu", 2))}
    topology, findings = hardware.from_profile(text, fleets.Place("f", "slurm", {"nodes": nodes}).node_gpus)
    assert (topology and topology.pools) == pools
    assert codes(findings) == ([] if pools else ["profile-form"])


def test_roles_go_to_the_pool_that_is_named_like_them(world: World) -> None:
    from tuneport.registry import catalog

    method = catalog.method("acme/align", "")  # its roles are actor and critic
    pools = (Pool("act", "h200", 1, 8), Pool("critic", "h200", 1, 8))
    assert hardware.roles_by_name(Topology(pools), method).roles == {"actor": "act", "critic": "critic"}
    main = (Pool("main", "h200", 1, 8), pools[1])
    assert hardware.roles_by_name(Topology(main), method).roles == {"actor": "main", "critic": "critic"}
    assert not hardware.roles_by_name(Topology((*main, Pool("x", "h200", 1, 1))), method).roles


def unfit(nodes: dict[str, Any], *pools: Pool, kind: str = "slurm") -> list[str]:
    return codes(fleets.unfit(fleets.Place("f", kind, {"nodes": nodes} if nodes else {}), pools))


def test_what_does_not_fit_is_said() -> None:
    nodes = {"h200": {"gpus_per_node": 8, "count": 2}}
    assert unfit(nodes, Pool("main", "h200", 2, 8)) == []
    assert unfit(nodes, Pool("main", "cpu", 2, 8)) == []
    assert unfit({}, Pool("main", "x", 99, 99)) == []
    assert unfit(nodes, Pool("main", "h100", 1, 8)) == ["fleet-series"]
    assert unfit(nodes, Pool("main", "h200", 3, 8)) == ["fleet-nodes"]
    assert unfit(nodes, Pool("main", "h200", 1, 16)) == ["fleet-node-size"]
    assert unfit(nodes, Pool("main", "h200", 1, 4)) == ["fleet-partial-node"]
    two = (Pool("a", "h200", 1, 8), Pool("b", "h200", 1, 4))
    assert unfit(nodes, *two) == ["fleet-partial-node", "fleet-uneven-pools"]
    assert unfit({}, *two, kind="local") == ["pools-fleet"] and unfit({}, *two, kind="ray") == ["pools-fleet"]
    placed = {"h200": {"gpus_per_node": 8, "resources": {"x": 1}}}
    assert "pools-fleet" not in unfit(placed, *two, kind="ray")


def test_validate_warns_of_what_submit_refuses(world: World) -> None:
    declare(world)
    world.experiment()
    report = world.validate(fleet="big", profile="h200:24", set={"batch": 24})
    (finding,) = [f for f in report.findings if f.code == "fleet-nodes"]
    assert report.ok and finding.severity == "warning" and finding.line == 3
    plan = world.plan(fleet="big", profile="h200:24", set={"batch": 24})
    with pytest.raises(Unavailable) as caught:
        manager.submit(plan, source_dir=world.root / "experiments/exp", fleet_name="big")
    assert caught.value.code == "fleet-nodes"
    assert not manager.list_jobs()


def test_a_fleet_that_nobody_declares_is_a_note(world: World) -> None:
    declare(world)
    world.experiment()
    report = world.validate(fleet="bgi")
    (finding,) = [f for f in report.findings if f.code == "fleet-unknown"]
    assert report.ok and finding.severity == "note" and "'big'" in finding.hint
    assert "fleet-unknown" not in codes(world.validate(fleet="local").findings)


def test_images_are_as_the_fleet_wants_them(world: World) -> None:
    own = "fleets: {a: {kind: slurm, images: digest}, b: {kind: slurm, images: none}, c: {kind: slurm}}"
    declare(world, own, "")
    world.experiment()
    tag = {
        name: [f for f in world.validate(fleet=name, image="i:1").findings if f.code == "image-tag"]
        for name in "ac"
    }
    assert [one[0].severity for one in tag.values()] == ["error", "note"]
    report = world.validate(fleet="b")
    assert report.compiled is not None and report.compiled.context.request.own_environment
    report = world.validate(fleet="c")
    assert report.compiled is not None and not report.compiled.context.request.own_environment


def plugin(world: World, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet of kind `cloud`, installed in this test alone."""
    (world.folder / "cloud_fleet.py").write_text(text)
    monkeypatch.syspath_prepend(str(world.folder))
    monkeypatch.delitem(sys.modules, "cloud_fleet", raising=False)
    real = scan.entry_points
    point = scan.EntryPoint("tuneport.fleets", "cloud", "cloud_fleet:Cloud", "cloud-dist", "1")

    def points(group: str) -> Any:
        return [*real(group), *([point] if group == "tuneport.fleets" else [])]

    monkeypatch.setattr("tuneport.registry.plugins.entry_points", points)


CLOUD = """
class Cloud:
    name = "cloud"
    SETTINGS = {"account": None, "size": {"type": "integer", "minimum": 1}}
    def __init__(self, settings):
        self.settings = settings
    def render(self, plan, key):
        return {"key": key, "settings": self.settings, "commands": len(plan.commands)}
    def show(self, request):
        return "cloud " + request["key"]
"""


def test_the_plugin_of_the_kind_checks_its_own_settings(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin(world, CLOUD, monkeypatch)
    declare(world, "fleets:\n  c:\n    kind: cloud\n    account: me\n    sise: 3\n    size: 0\n", "")
    with pytest.raises(Invalid) as caught:
        fleets.connect(fleets.find("c", find_project()))
    assert caught.value.code == "fleet-setting"
    found = {(f.line, f.message.partition(": ")[2], f.hint) for f in caught.value.findings}
    assert (5, "unknown key 'sise'", "did you mean 'size'?") in found and any(
        line == 6 for line, _, _ in found
    )
    world.experiment()
    assert [
        (f.line, f.severity) for f in world.validate(fleet="c").findings if f.code == "fleet-setting"
    ] == [
        (5, "error"),
        (6, "error"),
    ]
    declare(world, "fleets: {c: {kind: cloud, size: 3, partition: x}}", "")
    with pytest.raises(Invalid):
        fleets.connect(fleets.find("c", find_project()))
    declare(world, "fleets: {c: {kind: cloud, size: 3, gpus_per_node: 4}}", "")
    assert fleets.connect(fleets.find("c", find_project())).name == "cloud"
    with pytest.raises(NotFound):
        fleets.connect(fleets.find("nowhere"))


def test_the_request_that_is_shown_is_the_one_that_is_sent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin(world, CLOUD, monkeypatch)
    declare(world, "fleets: {c: {kind: cloud, size: 3}}", "")
    path = world.experiment()
    plan = world.plan(fleet="c")
    request, shown = manager.render(plan, "c", path)
    assert request == {"key": "dry-run-1", "settings": {"size": 3}, "commands": 1, "source": str(path)}
    assert shown == "cloud dry-run-1"
