"""`tp plugin check`: our own plugins and the examples pass it, and each of its checks can fail."""

from __future__ import annotations

import datetime
import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tuneport import scaffolds
from tuneport.errors import Invalid
from tuneport.registry import catalog
from tuneport.testing import Check, Options, check_plugin, no_side_effects

ROOT = Path(__file__).resolve().parents[1]
FLEETS = sorted(path.parent.name for path in ROOT.glob("plugins/fleet-*/pyproject.toml"))
METHODS = [row[0] for row in catalog.methods()]
EXAMPLES = sorted(path.parent.name for path in ROOT.glob("examples/*/pyproject.toml"))


def owner(framework: str) -> str:
    """The project that publishes a framework's adapter, or its manifests where it has none."""
    folder = ROOT / "plugins" / framework
    return str(folder if folder.is_dir() else ROOT / "manifests")


def problems(checks: list[Check]) -> list[str]:
    return [f"{one.name} of {one.subject}: {said}" for one in checks for said in one.problems]


def spread() -> list[Any]:
    """Each method; the first and the last of each framework in CI, the others in the long run: every plugin's
    own tests look at all of its methods already."""
    ends: dict[str, list[str]] = {}
    for method in METHODS:
        ends.setdefault(method.partition("/")[0], []).append(method)
    often = {method for found in ends.values() for method in (found[0], found[-1])}
    marks = {True: pytest.mark.sweep(whole=True), False: pytest.mark.upstream}
    return [pytest.param(method, marks=marks[method in often]) for method in METHODS]


@pytest.mark.parametrize("method", spread())
def test_our_own_plugins_pass(method: str) -> None:
    checks = list(check_plugin(owner(method.partition("/")[0]), Options(times=3, only=[method])))
    assert not problems(checks)
    assert {"load", "hooks", "readme", "schema", "compiles", "pure", "deterministic", "hostile"} <= {
        one.name for one in checks
    }


@pytest.mark.sweep(whole=True)
@pytest.mark.parametrize("framework", catalog.frameworks())
def test_our_own_manifests_are_documented(framework: str) -> None:
    """Once for each framework; its methods have been checked above."""
    first = next(method for method in METHODS if method.startswith(f"{framework}/"))
    checks = list(check_plugin(str(ROOT / "manifests"), Options(times=1, only=[first])))
    assert not problems(checks)
    assert {"readme", "docs", "schema"} <= {one.name for one in checks}


@pytest.mark.parametrize("name", FLEETS)
def test_our_own_fleets_pass(name: str) -> None:
    checks = list(check_plugin(str(ROOT / "plugins" / name)))
    assert not problems(checks)
    assert {"load", "hooks", "readme"} <= {one.name for one in checks}


@pytest.mark.sweep(whole=True)
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_pass(name: str) -> None:
    checks = list(check_plugin(str(ROOT / "examples" / name), Options(times=3)))
    assert not problems(checks)
    assert len(checks) >= 3


# --- each check can fail

# what code does, and what is seen of it
TOUCHES: list[tuple[Callable[[], object], str]] = [
    (lambda: time.strftime("%Y"), "time.strftime"),
    (lambda: time.time(), "time.time"),
    (lambda: datetime.date.today(), "datetime.today"),
    (lambda: datetime.datetime.now(), "datetime.now"),
    (lambda: random.choice([1, 2]), "random.getrandbits"),
    (lambda: random.gauss(0, 1), "random.random"),
    (lambda: uuid.uuid4(), "os.urandom"),
    (lambda: os.environ.get("HOME"), "os.environ"),
    (lambda: "A" in os.environ, "os.environ"),
    (lambda: os.getenv("A"), "os.environ"),
    (lambda: dict(os.environ), "os.environ"),
    (lambda: os.path.exists("/etc/hostname"), "os.stat"),
    (lambda: os.open("/dev/full", os.O_WRONLY), "writing /dev/full"),
    (lambda: open("/dev/full", "w").close(), "writing /dev/full"),
    (lambda: open("/etc/hostname").close(), "open /etc/hostname"),
    (lambda: os.write(2, b""), "os.write"),
    (lambda: print(end=""), "print"),
    (lambda: sys.stderr.write(""), "a standard stream"),
]
PURE: list[Callable[[], object]] = [
    lambda: random.Random(3).random(),
    lambda: datetime.date(2020, 1, 2).isoformat(),
    lambda: json.dumps({"a": [1]}),
]


def touched(call: Callable[[], object]) -> list[str]:
    with no_side_effects() as seen:
        made = call()
    if isinstance(made, int) and made > 2:
        os.close(made)
    return seen


@pytest.mark.parametrize(("call", "said"), TOUCHES)
def test_what_code_touches_is_seen(call: Callable[[], object], said: str) -> None:
    assert said in touched(call)


@pytest.mark.parametrize("call", PURE)
def test_what_is_pure_is_seen_to_be(call: Callable[[], object]) -> None:
    assert touched(call) == []


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    folder = tmp_path / "acme"
    scaffolds.write("acme", "adapter", folder)
    return folder


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    folder = tmp_path / "strict"
    scaffolds.write("strict", "policy", folder)
    return folder


HEAD = """import datetime, os, random, socket, subprocess, time
from dataclasses import replace
from tuneport.compiler.adapter import DeclarativeAdapter
from tuneport.hookspec import hookimpl
from tuneport.types import Finding
class Adapter(DeclarativeAdapter):
    @hookimpl
    def launch(self, context):
        plan = super().launch(context)
"""
FINDS = (
    "    @hookimpl\n    def validate(self, context):\n        yield from super().validate(context)\n"
    "        yield Finding('x-said', 'note', %s)\n"
)
ADD = "        return replace(plan, labels={'x': %s})\n"
# ruff: noqa: E501 - one row for each case
# what launch does, the check that fails, and what it says
IMPURE = {
    "reads a file": (HEAD + "        open('/etc/hostname').read()\n        return plan\n", "pure", "open /etc/hostname"),
    "lists a folder": (HEAD + "        os.listdir('/etc')\n        return plan\n", "pure", "os.listdir /etc"),
    "opens a socket": (HEAD + "        socket.socket().close()\n        return plan\n", "pure", "socket.__new__"),
    "starts a process": (HEAD + "        subprocess.run(['true'])\n        return plan\n", "pure", "subprocess.Popen"),
    "asks the clock": (HEAD + ADD % "str(time.time_ns())", "deterministic", "compilation 2 differs"),
    "is random": (HEAD + ADD % "str(random.random())", "deterministic", "compilation 2 differs"),
    "depends on the order of a set": (
        HEAD + ADD % "','.join({'a', 'b', 'c', 'd', 'e', 'f'})", "hash seed", "is another one in another process",
    ),
    "asks the clock in a finding": (HEAD + "        return plan\n" + FINDS % "str(time.time_ns())", "deterministic", "validation 2 says"),
    "says a set in its order": (
        HEAD + "        return plan\n" + FINDS % "','.join({'a', 'b', 'c', 'd', 'e', 'f'})", "hash seed", "what is said of",
    ),
    "writes when it is imported": ("import os\nos.write(1, b'{}')\n" + HEAD + "        return plan\n", "load", "os.write"),
    "imports a framework": ("import torch\n" + HEAD + "        return plan\n", "load", "imports torch"),
    "imports a framework late": (
        HEAD + "        try:\n            import torch\n        except ImportError: pass\n        return plan\n",
        "pure", "imports torch",
    ),
    "cannot be imported": ("raise OSError('no')\n", "load", "OSError: no"),
    "ends the process": ("import os\nos._exit(7)\n", "alive", "ended with 7"),
    "takes what no hook has": (
        HEAD.replace("(self, context)", "(self, context, more)") + "        return plan\n", "hooks", "more",
    ),
    "fails on text": (
        HEAD + "        return plan\n    @hookimpl\n    def topology(self, context):\n"
        "        context.config['steps'] > 0\n        return super().topology(context)\n",
        "hostile", "plugin-failed",
    ),
}  # fmt: skip


def release_with_torch(folder: Path) -> None:
    (path,) = folder.glob("src/*/acme/releases/1.yaml")
    path.write_text(
        'release: "1"\nruntime:\n  id: acme-1\n  host: true\n'
        '  venv: {variants: {cpu: {series: ["*"], requirements: [torch==2.13.0]}}}\n'
    )


@pytest.mark.sweep(whole=True)
@pytest.mark.parametrize("what", IMPURE)
def test_an_adapter_that(what: str, adapter: Path) -> None:
    code, check, said = IMPURE[what]
    (adapter / "src/tuneport_acme/adapter.py").write_text(code)
    release_with_torch(adapter)
    checks = list(check_plugin(str(adapter), Options(times=2)))
    failed = [one for one in checks if one.problems]
    assert any(one.name == check and any(said in text for text in one.problems) for one in failed), failed
    assert len({one.name for one in failed}) <= 3, problems(checks)


def test_an_endless_loop_is_said_and_ends(adapter: Path) -> None:
    (adapter / "src/tuneport_acme/adapter.py").write_text("while True: pass\n")
    (alive,) = [one for one in check_plugin(str(adapter), Options(deadline=3)) if one.problems][:1]
    assert alive.name == "alive" and "endless loop" in alive.problems[0]


DATA = "src/tuneport_acme_manifests/acme"
FAULTS: dict[str, tuple[str, str, str, str, str]] = {
    "schema": (f"{DATA}/methods/descent.yaml", "params:", "parms:", "schema", "did you mean"),
    "no summary": (f"{DATA}/methods/descent.yaml", "summary: Finds", "# Finds", "docs", "has no summary"),
    "odd name": (f"{DATA}/methods/descent.yaml", "max_steps:", "number_of_turns:", "parameters", "canonical"),
    "odd default": (
        f"{DATA}/methods/descent.yaml", "type: integer, minimum: 1", "type: integer, minimum: 1, default: 0",
        "schema", "refuses the default 0",
    ),
    "no request": (f"{DATA}/templates/descent/config.yaml", "steps: 30", "stepz: 30", "compiles", "stepz"),
    "no README": ("README.md", "# tuneport-acme", "\x00", "readme", "README"),
    "no package": ("pyproject.toml", '"tuneport_acme_manifests"\n', '"nowhere_at_all"\n', "load", "is not there"),
}  # fmt: skip


@pytest.mark.sweep(whole=True)
@pytest.mark.parametrize("what", FAULTS)
def test_data_with_a_fault(what: str, adapter: Path) -> None:
    name, old, new, check, said = FAULTS[what]
    path = adapter / name
    text = path.read_text()
    assert old in text
    path.write_text("" if new == "\x00" else text.replace(old, new, 1))
    checks = list(check_plugin(str(adapter), Options(times=1)))
    assert any(one.name == check and said in " ".join(one.problems) for one in checks), problems(checks)


def test_golden_plans_are_compared(adapter: Path) -> None:
    written = list(check_plugin(str(adapter), Options(times=1, write_golden=True)))
    assert not problems(written)
    (golden,) = (adapter / "tests" / "plans").glob("*.json")
    same = list(check_plugin(str(adapter), Options(times=1)))
    assert not problems(same)
    assert "golden" in {one.name for one in same}
    golden.write_text(golden.read_text().replace('"--steps=30"', '"--steps=31"'))
    (failed,) = [one for one in check_plugin(str(adapter), Options(times=1)) if one.problems]
    assert failed.name == "golden"
    assert '"--steps=31" kept, "--steps=30" now' in failed.problems[0]
    golden.unlink()
    assert any(
        "is not there" in said for said in problems(list(check_plugin(str(adapter), Options(times=1))))
    )


@pytest.mark.sweep(whole=True)
def test_python_may_keep_what_it_compiles(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    assert not problems(list(check_plugin(str(policy), Options(times=1))))
    assert list(policy.glob("src/*/__pycache__/policy.*.pyc")), "the first import wrote it"


POLICIES = {
    "changes argv": ("return replace(plan, commands=())", "policy-plan"),
    "reads a file": ("open('/etc/hostname').read()\n        return plan", "open /etc/hostname"),
    "is random": (
        "import random\n        return replace(plan, labels={'a': str(random.random())})",
        "two things",
    ),
}


@pytest.mark.parametrize("what", POLICIES)
def test_a_policy_that(what: str, policy: Path) -> None:
    body, said = POLICIES[what]
    path = policy / "src/tuneport_strict/policy.py"
    text = path.read_text()
    path.write_text(text[: text.index("        return replace(plan")] + f"        {body}\n")
    (failed,) = [one for one in check_plugin(str(policy)) if one.problems]
    assert failed.name == "hooks" and said in " ".join(failed.problems)


def test_a_fleet_without_a_method(tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "f"\nversion = "1"\n[project.entry-points."tuneport.fleets"]\nf = "f_fleet:Fleet"\n'
    )
    (folder / "f_fleet.py").write_text("class Fleet:\n    def submit(self, key, request): ...\n")
    said = problems(list(check_plugin(str(folder))))
    assert any("has no method cancel" in one for one in said)
    assert any("submit takes key, request; the protocol has request, key" in one for one in said)


# --- the command


def tp(*args: str, **more: Any) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "tuneport", "plugin", *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, **more)


def test_the_command_says_it_in_words_and_in_json(policy: Path) -> None:
    done = tp("check", cwd=policy)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("ok  load          strict (policies)\n")
    (policy / "README.md").unlink()
    done = tp("check", str(policy), "--json")
    assert done.returncode == 3
    document = json.loads(done.stdout)
    assert document["ok"] is False
    assert [one["check"] for one in document["checks"] if not one["ok"]] == ["readme"]


@pytest.mark.parametrize(
    ("named", "code", "said"),
    [
        ("nothing-of-that-name", 4, "no installed plugin"),
        ("opnrlhf", 4, "did you mean"),
        ("empty", 3, "publishes nothing of Tuneport's"),
        ("broken.whl", 3, "no wheel"),
    ],
)
def test_what_cannot_be_checked(named: str, code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\n')
    (tmp_path / "broken.whl").write_bytes(b"PK not really")
    done = tp("check", named, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert said in done.stderr


def test_a_folder_of_manifests(tmp_path: Path) -> None:
    folder = tmp_path / "mine" / "trl" / "methods"
    folder.mkdir(parents=True)
    text = "method: trl/ours\ntitle: Ours\nsummary: Ours\nextends: [sft]\nidentity: {use_peft: true}\n"
    (folder / "ours.yaml").write_text(text)
    checks = list(check_plugin(str(tmp_path / "mine"), Options(times=1)))
    assert not problems(checks)
    assert {one.subject for one in checks if one.name == "parameters"} == {"trl/ours"}


@pytest.mark.parametrize(
    ("name", "kind", "more", "said"),
    [
        ("trl", "framework", (), "the framework trl"),
        ("verl", "adapter", (), "the framework verl"),
        ("trl/sft", "method", ("--extends", "dpo"), "the method trl/sft"),
        ("trl", "policy", (), "a distribution tuneport-trl"),
        ("manifests", "framework", (), "a distribution tuneport-manifests"),
        ("fleet-slurm", "policy", (), "a distribution tuneport-fleet-slurm"),
        ("stray", "policy", (), "a module tuneport_stray"),
    ],
)
def test_a_name_that_is_taken_is_refused(
    name: str, kind: str, more: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tuneport_stray.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    extends = more[1] if more else ""
    with pytest.raises(Invalid, match=f"there is {said} already") as caught:
        scaffolds.write(name, kind, tmp_path / "made", extends)
    assert caught.value.code == "plugin-name-taken" and not (tmp_path / "made").exists()


def test_the_environment_of_the_caller_counts_for_nothing(policy: Path) -> None:
    env = {**os.environ, "TUNEPORT_PLUGINS": "", "TUNEPORT_SITE_FILE": "/nowhere", "FORGE_TRACE_HOOKS": "1"}
    assert tp("check", str(policy), env=env).returncode == 0
