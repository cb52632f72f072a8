"""Hostile files through the real command: a clear finding, soon and in little memory, and nothing else done.

Each case runs in a process of its own (a fork of one that is warm) with an audit hook, beside a module and
a script that would leave a mark if anything in the data got them to run, and a server that would notice
being asked.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tuneport.experiment import lock as lock_module
from tuneport.testing.hostile import KEYS, YAML

from .core_support import MANIFESTS, TP, Warm, World

WATCH = """
import json, os, sys, time
began = time.process_time()
report, allowed = os.environ.pop("REPORT"), os.environ.pop("ALLOWED").split(os.pathsep)
seen, on = [], True
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
NEVER = ("subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn", "pty.", "socket.",
         "ctypes.", "urllib.", "http.", "ftplib.", "smtplib.", "pickle.", "os.kill", "os.putenv",
         "builtins.input", "webbrowser.", "sqlite3.")
CHANGES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.chown",
           "os.truncate", "os.utime", "shutil.")
def inside(path):
    return not isinstance(path, (str, bytes)) or any(
        os.fsdecode(path).startswith(folder) for folder in (*allowed, os.devnull))
def hook(event, args):
    if not on:
        return
    if event == "import":
        if "evil" in str(args[0]):
            seen.append(f"import {args[0]}")
    elif event == "open":
        path, flags = args[0], args[2]
        if "outside" in str(path) or (isinstance(flags, int) and flags & WRITES and not inside(path)):
            seen.append(f"open {path!r}")
    elif event.startswith(NEVER):
        seen.append(f"{event} {str(args)[:100]}")
    elif event.startswith(CHANGES):
        paths = [arg for arg in args if isinstance(arg, (str, bytes))]
        if not all(map(inside, paths)):
            seen.append(f"{event} {args}")
sys.addaudithook(hook)
from tuneport.cli.run import run
code = run(sys.argv[1:])
sys.stdout.flush()
on = False
with open(report, "w") as out:
    json.dump({"seen": seen, "cpu": time.process_time() - began,
               "mib": int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) / 1024}, out)
os._exit(code)
"""
FLAGS = ["--model", "m", "--train-data", "d", "--profile", "cpu:2"]


class Trap:
    """A project to put hostile files into, and everything that must not happen around it."""

    def __init__(self, world: World, server: socket.socket, warm: Warm) -> None:
        self.world, self.server, self.warm = world, server, warm
        self.folder = world.folder
        self.path = world.experiment()
        self.outside = self.folder / "outside"
        self.outside.mkdir()
        (self.outside / "secret.yaml").write_text("method: acme/secret\ntitle: the-secret\n")
        self.mark = self.folder / "it-ran"
        code = f"open({str(self.mark)!r}, 'w')\n"
        self.modules = self.folder / "modules"
        self.modules.mkdir()
        for place in (self.modules, self.path, world.root):
            (place / "evil_module.py").write_text(code)
        (self.path / "train.sh").write_text(f"touch {self.mark}\n")

    def manifests(self) -> Path:
        return self.world.own_manifests()

    def run(self, *args: str, env: dict[str, str] | None = None) -> tuple[int, Any]:
        """(exit code, the JSON document) of one command, after looking at what it did beside that."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        cache = self.folder / "cache"
        places = [self.folder / "state", cache, *([self.world.root] if args[0] == "new" else [])]
        surroundings = {
            **os.environ, "TUNEPORT_CACHE_DIR": str(cache), "PYTHONPATH": str(self.modules), **(env or {}),
            "REPORT": str(report), "ALLOWED": os.pathsep.join(map(str, places)),
        }  # fmt: skip
        done = self.warm.run([*args, "--json"], self.world.root, surroundings, WATCH)
        assert "Traceback" not in done.stderr, done.stderr
        assert report.exists(), (done.returncode, done.stderr)
        watched = json.loads(report.read_text())
        assert done.returncode in (0, 2, 3, 4, 5, 6), done.stdout[:2000]
        assert watched["seen"] == []
        # Most of it is reading every manifest for an empty cache: a second where both cores are busy.
        assert watched["cpu"] < 2.0, "seconds"
        assert watched["mib"] < 200
        assert not self.mark.exists()
        with pytest.raises(BlockingIOError):
            self.server.accept()
        return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    made = Warm(tmp_path_factory.mktemp("warm"))
    yield made
    made.close()


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: socket.socket, warm: Warm) -> Trap:
    return Trap(World(tmp_path, monkeypatch), server, warm)


def said(document: Any) -> set[str]:
    """Every code in a document, of an error or a finding."""
    found = {finding["code"] for finding in [*document.get("findings", ()), *document.get("manifests", ())]}
    return found | ({document["error"]["code"]} if "error" in document else set())


IDS = [row[0] for row in YAML]


def test_the_watch_sees_what_it_watches_for(trap: Trap) -> None:
    for code, event in [
        ("import evil_module", "import evil_module"),
        ("os.system('true')", "os.system"),
        ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
        ("import socket; socket.socket()", "socket.__new__"),
        (f"open({str(trap.folder / 'x')!r}, 'w')", "open"),
        (f"open({str(trap.outside / 'secret.yaml')!r})", "open"),
        (f"os.mkdir({str(trap.folder / 'y')!r})", "os.mkdir"),
    ]:
        report = trap.folder / "seen.json"
        watch = WATCH.replace("code = run(sys.argv[1:])", f"code = 0\n{code}")
        env = {**os.environ, "PYTHONPATH": str(trap.modules), "REPORT": str(report), "ALLOWED": "/nowhere"}
        trap.warm.run(["methods"], trap.world.root, env, watch)
        assert [row for row in json.loads(report.read_text())["seen"] if row.startswith(event)], code


def test_a_process_that_is_not_warm_says_the_same(trap: Trap) -> None:
    write(trap.path / "config.yaml", YAML[0][1])
    _, document = trap.run("validate", "exp", *FLAGS)
    cold = subprocess.run(
        [*TP, "validate", "exp", *FLAGS, "--json"], capture_output=True, text=True, timeout=60
    )
    assert json.loads(cold.stdout) == document


def write(path: Path, content: str | bytes) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize(("what", "content", "code"), YAML, ids=IDS)
def test_configs(trap: Trap, what: str, content: str | bytes, code: str) -> None:
    write(trap.path / "config.yaml", content)
    exit_code, document = trap.run("validate", "exp", *FLAGS)
    assert exit_code == 3
    assert code in said(document)
    finding = next(f for f in document["findings"] if f["code"] == code)
    assert finding["file"].endswith("config.yaml")
    assert len(finding["message"]) < 1000


PLACES = ["job", "facts", "resources", "project", "site", "method", "rules", "vocabulary"]


@pytest.mark.parametrize("number", range(16), ids=[f"{PLACES[n % 8]}-{IDS[n * 3 % 16]}" for n in range(16)])
def test_every_other_yaml_file(trap: Trap, number: int) -> None:
    place, (_, content, code) = PLACES[number % 8], YAML[number * 3 % 16]
    extra: list[str] = []
    env: dict[str, str] = {}
    target = trap.folder / f"{place}.yaml"
    if place == "job":
        target = trap.path / "job.yaml"
    elif place in ("facts", "resources"):
        extra = [f"--{place}", str(target)]
    elif place == "project":
        target = trap.world.root / "tuneport.yaml"
    elif place == "site":
        env = {"TUNEPORT_SITE_FILE": str(target)}
    else:
        names = {
            "method": "methods/tune.yaml",
            "rules": "rules/common.yaml",
            "vocabulary": "../vocabulary.yaml",
        }
        target = trap.manifests() / names[place]
    write(target, content)
    if place == "vocabulary":
        exit_code, document = trap.run("methods", "acme/tune", env=env)
        assert exit_code == 0, "broken words cost nobody the parameters"
        return
    exit_code, document = trap.run("validate", "exp", *FLAGS, *extra, env=env)
    assert exit_code == 3
    if place in ("method", "rules"):
        assert said(document) & {"manifest-broken", "lock-manifest-broken"}
        _, document = trap.run("plugins", "--no-load")
    assert code in said(document), document


# --- configurations that are sound YAML


@pytest.mark.parametrize(("what", "config", "code"), KEYS, ids=[row[0] for row in KEYS])
def test_sound_yaml_with_ill_intent(trap: Trap, what: str, config: str, code: str) -> None:
    write(trap.path / "config.yaml", config)
    exit_code, document = trap.run("plan", "exp", *FLAGS)
    assert exit_code == (3 if code else 0), said(document)
    if code:
        assert code in said(document)
    else:
        words = json.dumps(document["commands"])
        assert "/root" not in words and "uid=" not in words


JOBS = [
    (
        "params: {_component_: os.system, " + ", ".join(f"p{i}: 1" for i in range(5_000)) + "}\n",
        "param-unknown",
    ),
    ("{" + ", ".join(f"p{i}: 1" for i in range(5_000)) + "}\n", "job-schema"),
    ("model: ../../../../etc/passwd\nimage: '--privileged'\nfleet: ../../evil\n", ""),
    ("data: {train: {dataset: ../../outside@v1}}\nenv: {LD_PRELOAD: /tmp/evil.so, 'A=B': x}\n", "env-name"),
    ("resources: {pools: [{name: ../x, series: s, nodes: 1, gpus_per_node: 1}]}\n", "job-schema"),
    (f"resources: {{pools: [{{name: x, series: s, nodes: {'9' * 30}, gpus_per_node: 1}}]}}\n", ""),
]


@pytest.mark.parametrize(("job", "code"), JOBS, ids=range(len(JOBS)))
def test_job_files_with_ill_intent(trap: Trap, job: str, code: str) -> None:
    write(trap.path / "job.yaml", job)
    exit_code, document = trap.run("validate", "exp", *(FLAGS[:4] if "resources" in job else FLAGS))
    if code:
        assert exit_code == 3
        assert code in said(document)


def locks(original: dict[str, Any]) -> Iterator[str | bytes]:
    yield '{"recipe":' * 5_000
    for name in ("../../outside/secret", "acme/../../outside/secret"):
        yield json.dumps({**original, "recipe": {**original["recipe"], "name": name}})
    yield json.dumps(
        {**original, "framework": {**original["framework"], "version": "../../../outside/secret"}}
    )
    yield json.dumps({f"k{i}": i for i in range(4_000)})
    yield '"\\u0000\\ud800"'
    yield b"\xff\xfe" + json.dumps(original).encode("utf-16-le")
    yield "9" * (10 << 20)


def test_locks_with_ill_intent(trap: Trap) -> None:
    original = json.loads((trap.path / lock_module.NAME).read_text())
    for content in locks(original):
        write(trap.path / lock_module.NAME, content)
        exit_code, document = trap.run("validate", "exp", *FLAGS)
        assert exit_code == 3
        assert all(code.startswith("lock-") for code in said(document)), said(document)


def test_links_and_special_files(trap: Trap) -> None:
    config = trap.path / "config.yaml"
    for target in (Path("/dev/zero"), trap.outside, config, trap.folder / "gone", None):
        config.unlink()
        if target is None:
            os.mkfifo(config)  # nobody waits for the other end
        else:
            config.symlink_to(target)
        exit_code, document = trap.run("validate", "exp", *FLAGS)
        assert exit_code == 3 and "not-a-file" in said(document), target
    config.unlink()
    config.write_text("")
    (trap.path / "linked").symlink_to(trap.outside)
    exit_code, document = trap.run("validate", "exp", *FLAGS)
    assert exit_code == 3 and said(document) == {"source-link"}


def test_scripts_are_read_and_never_run(trap: Trap) -> None:
    trap.world.experiment("acme/script", name="own", files={
        "train.py": f"import evil_module, os\nos.system('touch {trap.mark}')\nimport argparse\n"
        "p = argparse.ArgumentParser()\np.add_argument('--epochs', type=evil_module.x)\n",
    })  # fmt: skip
    exit_code, document = trap.run("validate", "own", "--profile", "cpu:1")
    assert exit_code == 0, said(document)


def test_data_and_models_are_looked_at_within_bounds(trap: Trap) -> None:
    files = {
        "deep.jsonl": "[" * 1_000_000, "long.jsonl": '{"a": "' + "x" * (8 << 20) + '"}\n',
        "odd.jsonl": '{"\\ud800": 1}\n', "wide.csv": "a," * 200_000 + "\n" + "x" * 500_000,
        "bin.jsonl": "\x00" * 1000,
    }  # fmt: skip
    models = ("[" * 1_000_000, '{"a": ' * 50_000, "x" * (8 << 20), '{"a": 1e999, "b": "\\ud800"}', "{}")
    model = trap.folder / "model"
    model.mkdir()
    for (name, content), config in zip(files.items(), models, strict=True):
        write(trap.folder / name, content)
        write(model / "config.json", config)
        place = ["--train-data", str(trap.folder / name), "--model", str(model)]
        exit_code, document = trap.run("validate", "exp", *FLAGS, *place)
        assert exit_code == 0 or said(document) == {"acme-columns"}


# --- manifests


OUTSIDE = [
    "templates: ../../../outside\n",
    "surface: {script: ../../outside/secret.yaml}\n",
    "extends: [../../outside/secret]\n",
    "rules: [../../outside/secret]\n",
    "launch: {run: {file: ../../outside/run.py}}\n",
    "launch: {run: {module: os.system; evil}}\n",
    "lifecycle: {eval: {file: /etc/passwd}}\n",
    "launch: {dialect: {name: ../../evil_module}}\n",
]


def test_manifests_that_point_outside(trap: Trap) -> None:
    folder = trap.manifests() / "methods"
    for number, text in enumerate(OUTSIDE):
        (folder / f"x{number}.yaml").write_text(f"method: acme/x{number}\ntitle: X\n{text}")
    _, document = trap.run("plugins", "--no-load")
    broken = {Path(f["file"]).stem for f in document["manifests"] if f["code"] == "manifest-schema"}
    assert broken == {f"x{number}" for number in range(len(OUTSIDE))}


def test_manifest_folders_that_lead_outside(trap: Trap) -> None:
    acme = trap.manifests()
    for name in ("methods", "templates"):
        (acme / name).rename(acme / f"{name}.kept")
        (acme / name).symlink_to(trap.outside)
    _, document = trap.run("methods", "acme")
    assert "acme/secret" not in json.dumps(document)


def test_manifests_that_fetch(trap: Trap) -> None:
    acme = trap.manifests()
    port = trap.server.getsockname()[1]
    for target, place in (
        (f"http://127.0.0.1:{port}/schema", "items"), ("file:///etc/passwd", "additionalProperties"),
        ("evil_module", "anyOf"), ("#/nosuch", "items"),
    ):  # fmt: skip
        value: Any = {"$ref": target}
        param = {"key": "optim.lr", place: [value] if place == "anyOf" else value}
        text = json.dumps({"method": "acme/align", "title": "A", "params": {"x": param}})
        (acme / "methods" / "align.yaml").write_text(text)
        exit_code, document = trap.run("methods", "acme/align")
        assert exit_code == 3 and "manifest-schema" in said(document)


def rule(source: str) -> dict[str, str]:
    return {"code": "acme-x", "require": source, "severity": "error", "say": "s", "source": "s"}


REFUSED_RULES = [
    ("(" * 100_000, "rule-expression"),
    ("true || " * 200_000 + "true", "yaml-too-large"),
    ("true || " * 20_000 + "true", "rule-expression"),
    ("cfg.evil_module.run('x')", "rule-expression"),
]
OWN = "own + own + own + own + own + own + own"
SLOW_RULES = [
    "(" * 32 + "1" + ")" * 32 + " == 1",
    "!" * 128 + "true",
    "cfg" + ".a" * 1_000 + " == 1",
    f"({OWN}).all(a, ({OWN}).all(b, ({OWN}).all(c, ({OWN}).all(d, true))))",
    "own . all(a, own . all(b, own . all(c, own . all(d, own . all(e, true)))))",
    "cfg.optim.name.matches('(a{1,1000}){1,1000}')",
    *[f"cfg.train.steps != -{number}" for number in range(1_500)],
]


def test_rules_that_are_huge_deep_or_never_end(trap: Trap) -> None:
    acme = trap.manifests()
    for source, code in REFUSED_RULES:
        (acme / "rules" / "align.yaml").write_text(json.dumps({"rules": [rule(source)]}))
        _, document = trap.run("plugins", "--no-load")
        assert said(document) == {code}, source[:40]
    (acme / "rules" / "align.yaml").write_text(json.dumps({"rules": list(map(rule, SLOW_RULES))}))
    _, document = trap.run("new", "ruled", "--method", "acme/align")
    exit_code, document = trap.run("validate", "ruled", *FLAGS)
    assert exit_code == 0, said(document)
    assert len(document["facts"]["undecided"]) >= 3


def test_surfaces_that_are_no_surfaces(trap: Trap) -> None:
    acme = trap.manifests()
    wide = {
        "entries": {"acme.tune": {"keys": {f"k{i}": {"types": ["int"], "default": 1} for i in range(30_000)}}}
    }
    for content in (
        "[" * 1_000_000,
        " " * (20 << 20),
        '{"entries": {"acme.tune": {"keys": {"a": 1}}}}',
        "\x00",
        json.dumps(wide),
    ):
        write(acme / "surfaces" / "1.0.0.json", content)
        trap.world.experiment()
        exit_code, document = trap.run("validate", "exp", *FLAGS)
        assert exit_code == 3
        assert said(document)


def test_many_manifests_in_circles_and_diamonds(trap: Trap) -> None:
    folder = trap.manifests() / "methods"
    for number in range(200):
        text = f"method: acme/m{number}\ntitle: M\nextends: [m{(number + 1) % 200}]\n"
        (folder / f"m{number}.yaml").write_text(text)
    for level in range(40):  # 2**40 ways from the top to the bottom
        below = f"extends: [_a{level + 1}, _b{level + 1}]\n" if level < 39 else ""
        for side in "ab":
            (folder / f"_{side}{level}.yaml").write_text(f"{below}defaults: {{k{level}: 1}}\n")
    (folder / "diamond.yaml").write_text(
        "method: acme/diamond\ntitle: D\nextends: [_a0, _b0]\nlaunch: {run: {argv: [sh]}}\n"
    )
    exit_code, document = trap.run("methods", "acme/m0")
    assert exit_code == 3 and "manifest-circle" in said(document)
    assert len(document["error"]["message"]) < 300
    exit_code, document = trap.run("methods", "acme/diamond")
    assert exit_code == 0, document


NAMES = [
    ["validate", "exp/../../../outside"],
    ["validate", ""],
    ["validate", "exp", "--facts", "/dev/zero"],
    ["validate", "exp", "--framework-version", "../../outside/secret", *FLAGS],
    ["methods", "acme/../../outside/secret"],
    ["methods", "acme/" + "x" * 100_000],
    ["schema", "../../../etc/passwd"],
    ["validate", "exp", "--set", "learning_rate=" + "9" * 100_000, *FLAGS],
    ["validate", "exp", "--set", "targets=" + "[" * 100_000, *FLAGS],
    ["validate", "exp", "--set", "mixed={a: !!python/object/apply:os.system [x]}", *FLAGS],
    ["validate", "exp", "--profile", "9" * 100_000],
    ["runtime", "show", "../../outside@secret"],
]


@pytest.mark.parametrize("args", NAMES, ids=[" ".join(args[:4])[:40] for args in NAMES])
def test_names_on_the_command_line(trap: Trap, args: list[str]) -> None:
    exit_code, document = trap.run(*args)
    assert "the-secret" not in json.dumps(document)
    assert exit_code or "--set" in args


def test_everything_here_is_as_it_was(trap: Trap) -> None:
    """Looking at the trap from all sides changes nothing in it."""

    def listing() -> dict[str, bytes]:
        places = [trap.world.root, trap.outside, MANIFESTS]
        return {str(p): p.read_bytes() for place in places for p in sorted(place.rglob("*")) if p.is_file()}

    before = listing()
    for args in (
        ["plan", "exp", *FLAGS],
        ["explain", "exp", *FLAGS],
        ["plugins"],
        ["recipe", "status", "exp"],
    ):
        trap.run(*args)
    assert listing() == before
