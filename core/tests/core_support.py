"""An invented framework, `acme`, and a project on it: what the tests of the core stand on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck
from tuneport import api, workflow
from tuneport.compiler.plan import plan_to_json
from tuneport.experiment import create, project
from tuneport.types import Finding, LaunchPlan, Method
from tuneport.workflow import Report

DATA = Path(__file__).parent / "data"
MANIFESTS = DATA / "manifests"
SCHEMAS = Path(__file__).parents[2] / "schemas" / "tuneport_schemas"
TP = [sys.executable, "-m", "tuneport"]
SLOW = [HealthCheck.too_slow]
"""What hypothesis may not complain of: the machines that run this are shared."""
GIVEN = {"model": "org/model", "train_data": "org/data", "profile": "cpu:2"}
"""A request that acme/tune and acme/align have nothing to say against."""


def forget() -> None:
    """Make this process look at the environment and the disk again, as a new command would."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("tuneport.registry.", "tuneport.experiment.")):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear") and getattr(value, "__module__", "") == name:
                    value.cache_clear()
    from tuneport.registry import scan, sources

    scan._memory = None
    sources._listing.clear()


class World:
    """A project of its own in `root`, with the manifests of `MANIFESTS` or a private copy of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.folder = folder
        self.manifests = MANIFESTS
        for name in list(os.environ):
            if name.startswith(("TUNEPORT_", "TUNEPLANE_", "FORGE_", "_TP_")):
                monkeypatch.delenv(name)
        site = folder / "site.yaml"
        site.write_text("")
        self.env("TUNEPORT_MANIFEST_PATH", str(MANIFESTS))
        self.env("TUNEPORT_SITE_FILE", str(site))
        self.env("TUNEPORT_STATE_DIR", str(folder / "state"))
        # One cache for all tests of a run: it is keyed by what it was made from.
        self.env("TUNEPORT_CACHE_DIR", str(folder.parent / "shared-cache"))
        self.env("HOME", str(folder))
        self.root = create.new_project(folder / "project")
        monkeypatch.chdir(self.root)
        forget()

    def env(self, name: str, value: str) -> None:
        self.monkeypatch.setenv(name, value)

    def own_manifests(self) -> Path:
        """A copy of the manifests that a test may change; call `forget` afterwards."""
        self.manifests = self.folder / "manifests"
        shutil.copytree(MANIFESTS, self.manifests)
        self.env("TUNEPORT_MANIFEST_PATH", str(self.manifests))
        forget()
        return self.manifests / "acme"

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace text in a file of the private copy of acme's manifests."""
        path = self.manifests / "acme" / name
        text = path.read_text("utf-8")
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {name}"
        path.write_text(text.replace(old, new), "utf-8")
        forget()

    def experiment(
        self,
        method: str = "acme/tune",
        config: str | None = None,
        job: str | None = None,
        *,
        name: str = "exp",
        version: str = "",
        files: Mapping[str, str] | None = None,
    ) -> Path:
        """An experiment, written over where it exists."""
        found = project.find_project(self.root)
        assert found is not None
        shutil.rmtree(self.root / "experiments" / name, ignore_errors=True)
        path, _ = create.new_experiment(found, name, method, version)
        written = {**(files or {})}
        if config is not None:
            written["config.yaml"] = config
        if job is not None:
            written["job.yaml"] = job
        for file, text in written.items():
            (path / file).write_text(text, "utf-8")
        return path

    def validate(self, name: str = "exp", *sets: str, **request: Any) -> Report:
        """The report on `GIVEN` with these changes; `sets` are `--set` as typed."""
        given = api.flags(**{**GIVEN, **request})
        return workflow.validate(name, given._replace(sets=sets) if sets else given)

    def plan(self, name: str = "exp", **request: Any) -> LaunchPlan:
        return workflow.plan(name, api.flags(**{**GIVEN, **request}))[0]

    def plan_json(self, name: str = "exp", **request: Any) -> dict[str, Any]:
        return plan_to_json(self.plan(name, **request))

    def method(self, method_id: str = "acme/tune", version: str = "") -> Method:
        from tuneport.registry import catalog

        return catalog.method(method_id, version)


def codes(findings: Iterable[Finding], *severities: str) -> list[str]:
    """The codes of the findings of some severities; of errors where none is named."""
    return [finding.code for finding in findings if finding.severity in (severities or ("error",))]


def one(findings: Iterable[Finding], code: str) -> Finding:
    """The one finding with this code."""
    found = [finding for finding in findings if finding.code == code]
    assert len(found) == 1, f"{len(found)} findings are {code}: {list(findings)}"
    return found[0]


def tp(*args: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """The real command in a process of its own."""
    return subprocess.run(
        [*TP, *args],
        **{"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, "timeout": 60, **more},
    )


def tp_json(*args: str, **more: Any) -> tuple[int, Any]:
    """(exit code, the one JSON document on stdout)."""
    done = tp(*args, "--json", **more)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


_WARM = """
import importlib, json, os, pkgutil, signal, sys, time
import click, jsonschema_rs, pluggy, rfc8785, yaml
import tuneport.checks, tuneport.cli, tuneport.compiler, tuneport.experiment, tuneport.registry
for package in (tuneport.checks, tuneport.cli, tuneport.compiler, tuneport.experiment, tuneport.registry):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
from tuneport.checks.cel import _engine
_engine()
for line in sys.stdin:
    task = json.loads(line)
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        for number, name in enumerate((os.devnull, task["out"], task["err"])):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT, 0o600), number)
        os.chdir(task["cwd"])
        os.environ.clear()
        os.environ.update(task["env"])
        sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        sys.argv = ["tp", *task["args"]]
        exec(task["code"])
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
_RUN = """
from tuneport.cli.run import run
code = run(sys.argv[1:])
sys.stdout.flush()
os._exit(code)
"""


class Warm:
    """Runs commands in forks of a process that has imported everything and looked at nothing: as good as a
    process each where it is not the start that is tested, at a tenth of the time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WARM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(
        self, args: Iterable[str], cwd: Path, env: Mapping[str, str], code: str = _RUN
    ) -> subprocess.CompletedProcess[str]:
        out, err = self.folder / "out", self.folder / "err"
        for path in (out, err):
            path.unlink(missing_ok=True)
        task = {"args": list(args), "cwd": str(cwd), "env": dict(env), "code": code}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({**task, "out": str(out), "err": str(err)}) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        texts = [path.read_text("utf-8", "surrogateescape") for path in (out, err)]
        return subprocess.CompletedProcess(list(args), status, *texts)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()


def install(
    site: Path, dist: str, entry_points: str, modules: Mapping[str, str], version: str = "1.0"
) -> Path:
    """A distribution in a folder for PYTHONPATH, laid out as an installer would."""
    info = site / f"{dist.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entry_points)
    for name, text in modules.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return site


FLAGS = ["--model", "m", "--train-data", "d", "--profile", "cpu:2"]
"""A request that the made-up methods take."""


class Shop:
    """A project with experiments in all states, and the environment that commands run in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "shop"
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("TUNEPORT_", "TUNEPLANE_", "FORGE_", "_TP"))
        }
        (folder / "site.yaml").write_text("")
        self.env = {
            **kept,
            "HOME": str(folder),
            "TUNEPORT_MANIFEST_PATH": str(MANIFESTS),
            "TUNEPORT_SITE_FILE": str(folder / "site.yaml"),
            "TUNEPORT_STATE_DIR": str(folder / "state"),
            "TUNEPORT_CACHE_DIR": str(folder / "cache"),
        }

    def run(self, *args: str, cwd: Path | None = None, env: dict[str, str] | None = None, **more: Any) -> Any:
        settings: dict[str, Any] = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, **more}
        surroundings = {**self.env, **(env or {})}
        return subprocess.run([*TP, *args], cwd=cwd or self.root, env=surroundings, timeout=60, **settings)

    def json(self, *args: str, **more: Any) -> tuple[int, Any]:
        done = self.run(*args, "--json", **more)
        assert "Traceback" not in done.stderr
        return done.returncode, json.loads(done.stdout)


def open_shop(folder: Path) -> Shop:
    """A shop with a good experiment, and a bad, a tampered and a stale copy of it."""
    made = Shop(folder)
    assert made.run("init", "shop", cwd=made.folder).returncode == 0
    assert made.run("new", "good", "--method", "acme/tune").returncode == 0
    experiments = made.root / "experiments"
    for name in ("bad", "tampered", "stale"):
        shutil.copytree(experiments / "good", experiments / name)
    (experiments / "bad" / "config.yaml").write_text("optim:\n  lrr: 1\n  name: \x00\n".replace("\x00", "é"))
    lock = (experiments / "tampered" / "recipe.lock.json").read_text()
    (experiments / "tampered" / "recipe.lock.json").write_text(lock.replace('"1.0.0"', '"2.0.0"'))
    return made
