"""What the fleet makes of a plan: the golden objects, values that arrive as they are, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tuneport.compiler.ray_cluster import SCRIPT
from tuneport.errors import TuneportError
from tuneport.experiment.fleets import Place, wrong_settings
from tuneport.types import Command, FileSpec, LaunchPlan, Pool, Ref, RuntimeNeed
from tuneport_fleet_kubernetes import package
from tuneport_fleet_kubernetes.fleet import KubernetesFleet
from tuneport_fleet_kubernetes.names import name_of
from tuneport_fleet_kubernetes.settings import seconds

sys.path.insert(0, str(Path(__file__).parent))
from kube_nodes import _expanded
from kube_support import FULL, GOLDEN, own_state, plan, shell

TWO = (Pool("main", "h200", 2, 8), Pool("teach", "l40", 1, 4))
TORCH = Command(
    "trainer",
    (Ref("python"), "-m", "torch.distributed.run", "--nnodes=2", Ref("node_rank", prefix="--node_rank="),
     Ref("head_addr", prefix="--master_addr="), Ref("head_port", prefix="--master_port="), "train.py",
     Ref("output_dir", "/model", prefix="out=")),
    {"ALPHA": "é $(HOME)", "RESULT": Ref("log_dir")},
    {"config/run.yaml": FileSpec("yaml", {"lr": 1e-5, "name": "yes"})},
)  # fmt: skip
RAY = Command(
    "actor",
    (
        Ref("python"),
        SCRIPT,
        "3",
        Ref("node_rank"),
        Ref("head_addr"),
        Ref("head_port"),
        "--",
        "main.py",
        "a 'b'",
    ),
    {"HYDRA_FULL_ERROR": "1"},
    {SCRIPT: FileSpec("text", "# brings up a cluster\n")},
)
ONE = TWO[:1]
CASES: dict[str, tuple[dict[str, Any], LaunchPlan]] = {
    "job-plain": ({"workload": "job", "namespace": "ns"}, plan(shell("echo $HOME"))),
    "job-two-nodes": ({**FULL, "workload": "job"}, plan(TORCH, pools=ONE)),
    "jobset-two-nodes": ({**FULL, "workload": "jobset"}, plan(TORCH, pools=ONE)),
    "jobset-student-teacher": (
        {**FULL, "workload": "jobset"},
        plan(TORCH, Command("teacher", ("serve",), {}, {}, "teach"), pools=TWO),
    ),
    "trainjob-two-nodes": ({**FULL, "workload": "trainjob"}, plan(TORCH, pools=ONE)),
    "rayjob-one-pool": (FULL, plan(RAY, pools=ONE)),
    "rayjob-student-teacher": (
        FULL,
        plan(RAY, Command("teacher", RAY.argv, {}, RAY.files, "teach"), pools=TWO),
    ),
}


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_state(tmp_path, monkeypatch)


@pytest.mark.parametrize("name", CASES)
def test_the_objects_are_the_golden_ones(name: str) -> None:
    declared, what = CASES[name]
    fleet = KubernetesFleet(declared)
    request = fleet.render(what, "sft-a1b2c3-1")
    assert request == fleet.render(what, "sft-a1b2c3-1") == json.loads(json.dumps(request))
    shown = fleet.show({**request, "source": ""})
    assert list(yaml.safe_load_all(shown)) == request["objects"], "what is shown is what is sent"
    shown = shown.replace(yaml_block(package.reporter()), "    # the reporter\n")
    path = GOLDEN / f"{name}.yaml"
    if WRITE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown + "\n", "utf-8")
    assert shown + "\n" == path.read_text("utf-8"), f"{path.name} differs"


def yaml_block(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())


ANY = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
WRITE = bool(os.environ.get("TUNEPORT_WRITE_GOLDEN"))
EXAMPLES = int(os.environ.get("TUNEPORT_TEST_INJECTIONS", "20"))
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is not who wrote it, and quicker


def arrived(words: list[str], env: dict[str, str]) -> list[str]:
    done = subprocess.run(words, env={**os.environ, **env}, capture_output=True, check=True)
    return done.stdout.decode().split("\0")


SHOW = ("/bin/sh", "-c", r'printf "%s\0" "$@" "$V"', "show")
"""A command that prints what it was given."""


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ANY, min_size=8, max_size=8), st.sampled_from(["job", "jobset", "trainjob"]))
def test_any_value_reaches_the_command_exactly(values: list[str], kind: str) -> None:
    """Through YAML, what Kubernetes puts in for variables, and the shell of the container."""
    words = (*SHOW, *values, Ref("node_rank", values[0], prefix=values[1]))
    fleet = KubernetesFleet({"workload": kind, "namespace": "ns", "environment": {"OWN": values[3]}})
    files = {"f.yaml": FileSpec("yaml", {"v": values[4]}), "f.txt": FileSpec("text", values[5])}
    request = fleet.render(plan(Command("trainer", words, {"V": values[2]}, files)), "job-abc-1")
    config, *_, main = yaml.load_all(fleet.show({**request, "source": ""}), LOADER)
    stored = dict(zip(request["files"].values(), config["data"].values(), strict=True))
    assert yaml.safe_load(stored["f.yaml"]) == {"v": values[4]} and stored["f.txt"] == values[5]
    own = node_of(main)
    env = {"TUNEPORT_CLUSTER_NODE_RANK": "7"}
    for item in own["env"]:
        env[item["name"]] = _expanded(item["value"], env) if "value" in item else env[item["name"]]
    assert env["OWN"] == values[3]
    shell_words = [_expanded(word, env) for word in own["command"]]
    shell_words[2] = 'exec "$@"'  # what stands before it needs the volumes; the engine's tests have them
    argv = [*shell_words, *(_expanded(word, env) for word in own["args"])]
    assert arrived(argv, {"V": env["V"]}) == [*values, f"{values[1]}7{values[0]}", values[2], ""]


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=st.lists(ANY, min_size=8, max_size=8))
def test_any_value_reaches_a_command_on_ray_exactly(values: list[str]) -> None:
    words = (*SHOW, *values, Ref("head_addr", values[0], prefix=values[1]))
    files = {SCRIPT: FileSpec("text", "")}
    fleet = KubernetesFleet({"namespace": "ns"})
    request = fleet.render(plan(Command("actor", words, {"V": values[2]}, files)), "job-abc-1")
    config, main = yaml.load_all(fleet.show({**request, "source": ""}), LOADER)
    assert main["spec"]["entrypoint"] == "/bin/sh /mnt/tuneport/files/tuneport-entry.sh", "no text of a user"
    stored = dict(zip(request["files"].values(), config["data"].values(), strict=True))
    script = stored["tuneport-entry.sh"].replace("cd /mnt/tuneport/work || exit 1\n", "", 1)
    head = main["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    env = {item["name"]: _expanded(item["value"], {}) for item in head["env"] if "value" in item}
    env["TUNEPORT_CLUSTER_HEAD_ADDR"] = "10.0.0.7"
    wanted = [*values, f"{values[1]}10.0.0.7{values[0]}", values[2], ""]
    assert (
        arrived(["/bin/sh", "-c", script], {"V": env["V"], **{k: env[k] for k in env if "CLUSTER" in k}})
        == wanted
    )


def node_of(item: Any) -> Any:
    """The container of the first role of a workload."""
    if item["kind"] == "TrainJob":
        return item["spec"]["trainer"]
    spec = item["spec"] if item["kind"] == "Job" else item["spec"]["replicatedJobs"][0]["template"]["spec"]
    return spec["template"]["spec"]["containers"][0]


def test_names_are_labels_and_tell_keys_apart() -> None:
    keys = ["sft-a1b2c3-1", "Sft-a1b2c3-1", "sft_a1b2c3-1", "9-1", "x" * 200 + "-1", "ü-1", "a.b-1", "-1"]
    names = [name_of(key) for key in keys]
    assert names[0] == keys[0] and len(set(names)) == len(keys)
    for name in names:
        assert len(name) <= 32 and name[0].isalpha() and name[-1].isalnum(), name
        assert all(c.islower() or c.isdigit() or c == "-" for c in name) and name.isascii()


def test_times_are_read_as_they_are_written() -> None:
    for text, wanted in (("12h", 43200), ("90m", 5400), ("30s", 30), ("2d", 172800), ("1-02:03:04", 93784)):
        assert seconds({"limits": {"time": text}}) == wanted
    assert seconds({}) is None
    for text in ("12", "12:00", "1:99:00", "h", "-1h", "1h30m", "0h", "0:00:00", "999999999999h"):
        with pytest.raises(TuneportError):
            seconds({"limits": {"time": text}})


@pytest.mark.parametrize(
    "settings",
    [
        {"namespace": "Bad Name!"},
        {"queue": "team a"},
        {"labels": {"team": "a b"}},
        {"labels": {"a b": "c"}},
        {"labels": {"team": "x" * 64}},
        {"annotations": {"a b/": "c"}},
        {"user": 2**40},
        {"keep": 2**40},
        {"secrets": {"TUNEPORT_OUTPUT_DIR": "a/b"}},
    ],
)
def test_what_the_api_would_refuse_is_no_setting(settings: dict[str, Any]) -> None:
    (finding,) = wrong_settings(Place("k", "kubernetes", settings))
    assert finding.code == "fleet-setting" and next(iter(settings)) in finding.key


def test_what_the_api_takes_is_a_setting() -> None:
    fine = {"namespace": "team-a", "queue": "q.one", "labels": {"acme.org/team": "", "b": "A.1_x"}}
    assert not wrong_settings(Place("k", "kubernetes", {**fine, "annotations": {"acme.org/why": "a b c"}}))


def test_no_secret_is_in_an_object_and_none_is_uploaded() -> None:
    fleet = KubernetesFleet({**FULL, "workload": "job"})
    what = plan(Command("trainer", ("x",), {"HF_TOKEN": "hf_verysecretvalue"}))
    shown = fleet.show({**fleet.render(what, "a-1"), "source": ""})
    assert "hf_verysecret" not in shown and "secretKeyRef" in shown
    for name in (".env", "sub/id_rsa", "server.pem"):
        with pytest.raises(TuneportError) as caught:
            fleet.refuse(plan(shell("true"), source={name: "sha256:0"}))
        assert caught.value.code == "upload-secret"
        with pytest.raises(TuneportError):
            fleet.render(plan(shell("true"), source={name: "sha256:0"}), "a-1")
    with pytest.raises(TuneportError) as caught:
        fleet.render(plan(Command("trainer", ("x",), {"MY_API_KEY": "0123456789abcdef"})), "a-1")
    assert caught.value.code == "request-secret" and "0123456789" not in caught.value.message


def test_what_kubernetes_cannot_carry_or_the_fleet_does_not_take_is_refused(tmp_path: Path) -> None:
    late = {"a.json": FileSpec("json", {"x": Ref("head_addr")})}
    tag = RuntimeNeed("x-1", image="registry/x:1")
    two = plan(shell("a"), shell("b", "other"))
    cases: list[tuple[dict[str, Any], LaunchPlan, str]] = [
        ({}, plan(Command("trainer", ("a\0",))), "value-unusable"),
        ({}, plan(Command("trainer", ("a",), {"A-B": "1"})), "value-unusable"),
        ({}, plan(Command("trainer", ("a",), {}, late)), "plan-ref"),
        ({}, plan(Command("trainer", ("a",), {}, {}, "elsewhere")), "plan-pool"),
        ({}, plan(shell("a"), source={"..odd": "sha256:0"}), "upload-name"),
        ({}, plan(shell("a"), mounts=["/site"]), "fleet-data"),
        ({}, plan(shell("a"), runtime=RuntimeNeed("custom-1", host=True)), "runtime-image-form"),
        ({"images": "digest"}, plan(shell("a"), runtime=tag), "runtime-image-form"),
        ({"images": "none"}, plan(shell("a")), "runtime-image-form"),
        ({"limits": {"time": "soon"}}, plan(shell("a")), "fleet-setting"),
        ({"workload": "job"}, two, "fleet-kind-missing"),
        ({"workload": "trainjob"}, two, "fleet-kind-missing"),
        ({}, plan(Command("trainer", (Ref("run_output", name="none-a1b2c3"),))), "job-not-found"),
    ]
    for declared, what, code in cases:
        with pytest.raises(TuneportError) as caught:
            KubernetesFleet({"workload": "jobset", "namespace": "ns", **declared}).refuse(what)
        assert caught.value.code == code, what
        assert caught.value.message
    with pytest.raises(TuneportError) as caught:  # so `tp plan --fleet` says it as well
        KubernetesFleet({"workload": "job"}).render(plan(shell("a"), mounts=["/site"]), "a-1")
    assert caught.value.code == "fleet-data" and "/site" in caught.value.message
    assert KubernetesFleet({"workload": "job"}).render(plan(shell("a"), runtime=tag), "a-1")
    shown = KubernetesFleet({"workload": "job"})
    request = {**shown.render(plan(shell("a"), runtime=tag), "a-1"), "source": ""}
    assert "# note: that is a tag" in shown.show(request)
    big = tmp_path / "big"
    big.write_bytes(b"x" * (package.MAX_BYTES + 1))
    map_ = package.config_map("a", {"file-0": "big"}, {}, {})
    with pytest.raises(TuneportError) as caught:
        package.with_experiment(map_, {"file-0": "big"}, tmp_path)
    assert caught.value.code == "upload-too-large" and "claim" in caught.value.hint


def test_files_of_all_kinds_are_in_the_config_map_as_they_are(tmp_path: Path) -> None:
    contents = {
        "a": b"\x00\xff",
        "b": "é\n\ttab".encode(),
        "c": b"cr\r\nlf",
        "d": b"",
        "e": b"\xef\xbb\xbfbom",
    }
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    files = package.keys(contents)
    made = package.with_experiment(package.config_map("n", files, {}, {}), files, tmp_path)
    import base64

    for key, name in files.items():
        text = made["data"].get(key)
        data = text.encode() if text is not None else base64.b64decode(made["binaryData"][key])
        assert data == contents[name]
    assert package.size_of(made) == sum(map(len, contents.values()))


def test_nothing_heavy_is_imported() -> None:
    words = "import sys, tuneport_fleet_kubernetes.fleet as f; f.KubernetesFleet({}); "
    words += "print([m for m in ('kubernetes', 'yaml', 'requests') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
