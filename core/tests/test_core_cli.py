"""The command itself, as a process: one JSON document, documented exit codes, quiet about everything else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from tuneport.cli.group import tp as root_command
from tuneport.cli.main import COMMANDS, help_text
from tuneport.registry import schemas

from .core_support import FLAGS, TP, Shop, Warm, install, open_shop


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return open_shop(tmp_path_factory.mktemp("cli"))


# (arguments, exit code); every one is run with --json and gives exactly one document
OK: list[list[str]] = [
    ["ls"],
    ["methods"],
    ["methods", "acme"],
    ["methods", "tune"],
    ["methods", "acme/tune"],
    ["methods", "acme/tune", "--framework-version", "2.0.0"],
    ["plugins"],
    ["plugins", "--no-load"],
    ["schema"],
    ["schema", "job"],
    ["schema", "acme/tune"],
    ["validate", "good", *FLAGS],
    ["plan", "good", *FLAGS],
    ["explain", "good", *FLAGS],
    ["explain", "good", "learning_rate", *FLAGS],
    ["explain", "acme/tune"],
    ["explain", "acme/tune", "learning_rate"],
    ["recipe", "status", "good"],
    ["recipe", "upgrade", "good"],
    ["runtime", "ls"],
    ["runtime", "show", "acme@1.0.0"],
    ["fleet", "ls"],
    ["dataset", "ls"],
    ["job", "ls"],
    ["completion", "bash"],
]
FAILS: list[tuple[int, list[str]]] = [
    (3, ["init"]),
    (3, ["new", "good", "--method", "acme/tune"]),
    (3, ["new", "../evil", "--method", "acme/tune"]),
    (3, ["new", "bad\nname", "--method", "acme/tune"]),
    (4, ["new", "fresh", "--method", "acme/tine"]),
    (4, ["new", "fresh", "--method", "acme/tune", "--framework-version", "9"]),
    (2, ["new", "fresh"]),
    (2, ["new", "fresh", "--method", "acme/tune", "--from", "good"]),
    (4, ["new", "fresh", "--from", "gone"]),
    (4, ["methods", "acme/tine"]),
    (4, ["methods", "amce"]),
    (4, ["schema", "jobb"]),
    (4, ["schema", "../../etc/passwd"]),
    (3, ["validate", "bad", *FLAGS]),
    (3, ["validate", "good"]),
    (3, ["validate", "tampered", *FLAGS]),
    (4, ["validate", "gone"]),
    (4, ["validate", "good", "--facts", "gone.yaml"]),
    (2, ["validate", "good", "--set", "novalue"]),
    (2, ["validate", "good", "--nosuch"]),
    (2, ["validate"]),
    (3, ["plan", "bad", *FLAGS]),
    (3, ["plan", "good", "--model", "m", "--train-data", "d"]),
    (3, ["submit", "bad", *FLAGS]),
    (4, ["explain", "good", "optim.lrr"]),
    (4, ["explain", "acme/tine"]),
    (4, ["explain", "acme/tune", "learning_rat"]),
    (3, ["recipe", "status", "tampered"]),
    (3, ["recipe", "upgrade", "tampered"]),
    (4, ["runtime", "show", "nowhere@1"]),
    (4, ["job", "status", "gone-123456"]),
    (4, ["export", "good", "--checkpoint", "gone", *FLAGS]),
    (4, ["export", "good", "--checkpoint", "", *FLAGS]),
    (4, ["eval", "good", "--run-id", "", *FLAGS]),
    (4, ["export", "good", "--checkpoint", "long" * 2000, *FLAGS]),
    (4, ["export", "good", "--checkpoint", "no/such/file.pt", *FLAGS]),
    (2, ["export", "good"]),
    (2, ["validte", "good"]),
    (2, ["completion", "tcsh"]),
    (2, ["job", "nosuch"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    made = Warm(tmp_path_factory.mktemp("warm"))
    yield made
    made.close()


@pytest.mark.parametrize("args", OK, ids=lambda args: " ".join(args[:3]))
def test_success_is_one_json_document(shop: Shop, warm: Warm, args: list[str]) -> None:
    done = warm.run([*args, "--json"], shop.root, shop.env)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    assert document.get("ok", True) is True


@pytest.mark.parametrize(
    ("code", "args"), FAILS, ids=lambda value: " ".join(value[:3]) if isinstance(value, list) else None
)
def test_failure_is_one_json_document_with_the_documented_exit_code(
    shop: Shop, warm: Warm, code: int, args: list[str]
) -> None:
    done = warm.run([*args, "--json"], shop.root, shop.env)
    document = json.loads(done.stdout)
    assert done.returncode == code, document
    assert document["ok"] is False
    assert "Traceback" not in done.stderr
    if "error" in document:
        error = document["error"]
        assert set(error) == {"code", "message", "hint"}
        assert error["code"] == error["code"].lower() and " " not in error["code"]
        assert error["message"]
    else:
        assert any(f["severity"] == "error" for f in document["findings"])
    assert not (shop.root / "experiments" / "fresh").exists()


def test_failures_for_people_go_to_stderr_with_a_hint(shop: Shop) -> None:
    done = shop.run("methods", "acme/tine")
    assert done.stdout == ""
    assert done.stderr == "tp: no method named 'acme/tine'\n  hint: did you mean 'acme/tune'?\n"
    done = shop.run("validte", "good")
    assert done.stderr.startswith("tp: no command named 'validte'; did you mean 'validate'?\n")
    done = shop.run("plan", "bad", *FLAGS)
    assert done.stdout == ""
    assert "experiments/bad/config.yaml:2: error[key-unknown]" in done.stderr
    assert "hint: did you mean `optim.lr`?" in done.stderr


def test_validate_is_data_on_stdout(shop: Shop) -> None:
    done = shop.run("validate", "bad", *FLAGS)
    assert done.returncode == 3 and done.stderr == ""
    assert "error[key-choice]" in done.stdout and "'é'" in done.stdout
    assert done.stdout.endswith("bad: 2 errors\n")
    done = shop.run("validate", "good", *FLAGS)
    assert (done.returncode, done.stdout) == (0, "good: nothing to say against it\n")


def test_documents_with_a_schema_keep_to_it(shop: Shop) -> None:
    for name in ("good", "bad", "tampered"):
        _, document = shop.json("validate", name, *FLAGS)
        assert not list(schemas.problems(document, schemas.schema("findings")))
    _, plan = shop.json("plan", "good", *FLAGS, "--profile", "h200:16")
    assert not list(schemas.problems(plan, schemas.schema("plan")))
    _, made = shop.json("new", "locked", "--method", "acme/align", "--framework-version", "2.0.0")
    assert not list(schemas.problems(made["lock"], schemas.schema("lock")))
    _, printed = shop.json("schema", "job")
    assert printed == schemas.schema("job")


def test_the_schema_of_a_methods_config_agrees_with_validate(shop: Shop) -> None:
    _, schema = shop.json("schema", "acme/tune")
    good = {"optim": {"lr": 0.1, "name": "sgd"}, "train": {"seed": None, "mixed": "x"}, "extra": {"a": 1}}
    assert not list(schemas.problems(good, schema))
    for bad in ({"optim": {"name": "adamm"}}, {"train": {"batch": "x"}}, {"nosuch": 1}):
        assert list(schemas.problems(bad, schema)), bad
    assert "model" not in schema["properties"], "what the platform writes is not offered"


def test_plan_out_writes_what_it_prints(shop: Shop, tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    _, plan = shop.json("plan", "good", *FLAGS, "--out", str(target))
    assert json.loads(target.read_text()) == plan
    done = shop.run("plan", "good", *FLAGS)
    assert plan["digest"] in done.stdout
    assert "<output_dir>/checkpoints" in done.stdout
    done = shop.run("plan", "good", *FLAGS, "--out", str(tmp_path / "no" / "where.json"), "--json")
    assert done.returncode == 6
    assert json.loads(done.stdout)["error"]["code"] == "io"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["acme/tune", "--framework-version", "9"], 4, "no release '9'"),
        (["acme/tune", "learning_rate", "--set", "a=b"], 2, "--set belongs to an experiment"),
        (["acme/tune", "--model", "m"], 2, "--model belongs to an experiment"),
        (["acme/tune", ""], 2, "KEY is empty"),
        (["good", ""], 2, "KEY is empty"),
        (["acme"], 4, "methods are named FRAMEWORK/METHOD: acme/"),
        (["tune"], 4, "methods are named FRAMEWORK/METHOD: acme/tune"),
        (["acme/tune", "optim.lr"], 4, "tp explain acme/tune learning_rate"),
    ],
)
def test_explain_refuses_with_the_way_out(shop: Shop, words: list[str], code: int, says: str) -> None:
    done = shop.run("explain", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr


def test_a_parameter_by_the_last_name_of_its_key(shop: Shop) -> None:
    done = shop.run("validate", "good", *FLAGS, "--set", "lr=1")
    assert "did you mean `learning_rate`?" in done.stdout + done.stderr


def test_a_draft_is_no_experiment_and_a_dead_one_goes(shop: Shop) -> None:
    experiments = shop.root / "experiments"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for pid in (gone.pid, os.getppid()):
        shutil.copytree(experiments / "good", experiments / f".fresh.{pid}")
    try:
        names = [row["experiment"] for row in shop.json("ls")[1]["experiments"]]
        assert "good" in names and not [name for name in names if name.startswith(".")]
        assert ".fresh" not in shop.run("validate", "nothing-like-it").stderr
        assert shop.run("new", "fresh", "--method", "acme/tune").returncode == 0
        assert not (experiments / f".fresh.{gone.pid}").exists()
        assert (experiments / f".fresh.{os.getppid()}").exists()  # that one is still at work
    finally:
        for path in (*experiments.glob(".fresh.*"), experiments / "fresh"):
            shutil.rmtree(path)


def test_a_name_that_is_too_long_is_told_the_limit(shop: Shop) -> None:
    done = shop.run("new", "a" * 129, "--method", "acme/tune")
    assert done.returncode == 3 and "at most 128" in done.stderr


def test_of_a_broken_config_nothing_is_made_up(shop: Shop) -> None:
    """Notes and warnings about a file that could not be read would be about the defaults."""
    folder = shop.root / "experiments" / "unread"
    shutil.copytree(shop.root / "experiments" / "good", folder)
    (folder / "config.yaml").write_text("optim: [\n")
    try:
        code, report = shop.json("validate", "unread", "--train-data", "/nowhere/d.jsonl")
    finally:
        shutil.rmtree(folder)
    found = {finding["code"] for finding in report["findings"]}
    assert code == 3 and {"yaml-syntax", "request-missing"} == found


def test_ctrl_c_during_the_imports(shop: Shop) -> None:
    code = (
        "import builtins, sys\nreal = builtins.__import__\n"
        "def fake(name, *rest):\n"
        "    if name == 'tuneport.cli.run': raise KeyboardInterrupt\n"
        "    return real(name, *rest)\n"
        "from tuneport.cli.main import main\nbuiltins.__import__ = fake\nsys.argv = ['tp', 'ls']\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=shop.root)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "tp: interrupted\n")


def test_explain_shows_the_chain_with_places(shop: Shop) -> None:
    done = shop.run("explain", "good", "optim.lr", *FLAGS)
    place = os.path.join("experiments", "good", "config.yaml")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0] == ["optim.lr"]
    assert rows[1][:3] == ["=", "0.0003", "config.yaml"] and rows[1][3].endswith(f"{place}:3")
    assert rows[2] == ["0.001", "release", "defaults", "acme/config.py:10"]
    _, document = shop.json("explain", "good", "out.dir", *FLAGS)
    assert [row["layer"] for row in document["keys"]["out.dir"]] == ["release defaults", "platform"]
    by_path = shop.run("explain", "experiments/good", "optim.lr", *FLAGS)
    assert by_path.stdout == done.stdout  # a folder, though `experiments/good` reads like a method


def test_explain_tells_what_a_parameter_is(shop: Shop) -> None:
    code, document = shop.json("explain", "acme/tune", "learning_rate")
    assert code == 0
    assert (document["keys"], document["options"]) == (["optim.lr"], {})
    assert "native key: optim.lr" in shop.run("explain", "acme/tune", "learning_rate").stdout
    code, document = shop.json("explain", "acme/tune", "learning_rat")
    assert (code, document["error"]["code"]) == (4, "param-unknown")
    assert "learning_rate" in document["error"]["hint"]


def test_values_that_json_has_no_word_for_are_null(shop: Shop) -> None:
    folder = shop.root / "experiments" / "odd"
    shutil.copytree(shop.root / "experiments" / "good", folder)
    (folder / "config.yaml").write_text("optim: {lr: .inf}\nout: {label: 'é\\e[31m'}\nextra: {a: [.nan]}\n")
    code, document = shop.json("explain", "odd", "optim.lr", *FLAGS)
    assert (code, document["keys"]["optim.lr"][-1]["value"]) == (0, None)
    code, document = shop.json("validate", "odd", *FLAGS)
    assert code == 3
    shutil.rmtree(folder)


# --- surroundings


def test_help_needs_nothing_and_names_every_command(shop: Shop) -> None:
    for args in ([], ["--help"], ["-h"], ["help"]):
        done = shop.run(*args, cwd=Path("/"), env={"HOME": "/nonexistent"})
        assert (done.returncode, done.stderr, done.stdout) == (0, "", help_text())
    assert shop.run("--version").stdout.startswith("tp ")


def commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def test_every_verb_takes_json_and_help_and_says_what_it_does() -> None:
    found = dict(commands(root_command))
    assert {path[0] for path in found} == set(COMMANDS)
    for path, command in found.items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--json" in options or path[0] in ("completion",), path
        text = command.get_help(click.Context(command, info_name="tp " + " ".join(path)))
        assert command.help and command.help[0].isupper(), path
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (path, parameter.name)
                assert parameter.opts[0] in text


@pytest.mark.parametrize(
    "args", [["--help"], ["methods"], ["methods", "--json"], ["validate", "bad"], ["schema", "method"]]
)
def test_a_reader_that_leaves_is_no_error(shop: Shop, args: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = shop.run(*args, capture_output=False, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize("args", [["--help"], ["methods"], ["methods", "--json"], ["plan", "bad", "--json"]])
def test_a_full_disk_is_one_message_and_exit_6(shop: Shop, args: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = shop.run(*args, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == (3 if "plan" in args else 6), "the first thing that went wrong"
    assert done.stderr.count("tp: ") == 1
    assert "Traceback" not in done.stderr


def redirected(shop: Shop, redirect: str, *args: str) -> Any:
    script = f'exec "$@" {redirect}'
    return subprocess.run(
        ["sh", "-c", script, "sh", *TP, *args],
        cwd=shop.root,
        env=shop.env,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_closed_streams_are_said_or_ignored(shop: Shop) -> None:
    for args in (["--help"], ["methods"], ["methods", "--json"]):
        done = redirected(shop, ">&-", *args)
        assert (done.returncode, done.stderr) == (6, "tp: standard output is closed\n")
        done = redirected(shop, "2>&-", *args)
        assert (done.returncode, bool(done.stdout)) == (0, True)
    assert redirected(shop, "2>&-", "methods", "acme/tine").returncode == 4
    assert redirected(shop, ">&- 2>&-", "methods").returncode == 6
    assert redirected(shop, "<&-", "methods", "acme").returncode == 0


def test_terminals_of_every_kind(shop: Shop) -> None:
    for env in ({"TERM": ""}, {"TERM": "dumb", "NO_COLOR": "1"}, {"LC_ALL": "C"}, {"COLUMNS": "1"}):
        assert shop.run("methods", "acme", env=env).returncode == 0
    done = shop.run("validate", "bad", *FLAGS, env={"PYTHONIOENCODING": "ascii"})
    assert "'\\xe9'" in done.stdout
    done = shop.run("validate", "bad", *FLAGS, "--json", env={"PYTHONIOENCODING": "ascii"})
    assert "'é'" in json.dumps(json.loads(done.stdout), ensure_ascii=False)
    done = shop.run("validate", "good", *FLAGS, "--set", b"acme_label=\xff", "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["findings"][0]["code"] == "param-value"
    kept = {k: v for k, v in shop.env.items() if k != "TERM"}
    done = subprocess.run(
        [*TP, "methods", "acme"], env=kept, cwd=shop.root, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and "\x1b" not in done.stdout


def test_control_characters_of_strangers_are_shown_and_not_obeyed(shop: Shop) -> None:
    folder = shop.root / "experiments" / "rude"
    shutil.copytree(shop.root / "experiments" / "good", folder)
    (folder / "config.yaml").write_text('"a\\e]0;title\\a\\e[2J\\u202E": 1\n')
    done = shop.run("validate", "rude", *FLAGS)
    assert done.returncode == 3
    assert "\x1b" not in done.stdout + done.stderr and "\u202e" not in done.stdout
    done = shop.run("explain", "rude", *FLAGS)
    assert "\x1b" not in done.stdout + done.stderr
    done = shop.run("methods", "acme/\x1b[31mtune")
    assert "\x1b" not in done.stderr
    shutil.rmtree(folder)


NO_HOME = """
import pwd, sys
def gone(uid): raise KeyError(uid)
pwd.getpwuid = gone
sys.argv[0] = "tp"
from tuneport.cli.main import main
main()
"""


def test_without_a_home_what_needs_none_works_and_the_rest_says_what_to_set(shop: Shop) -> None:
    env = {k: v for k, v in shop.env.items() if k not in ("HOME", "TUNEPORT_STATE_DIR", "TUNEPORT_CACHE_DIR")}
    for home in (None, "/proc/nowhere", "/dev/null/x"):
        here = env if home is None else {**env, "HOME": home}

        def run(*args: str, here: dict[str, str] = here) -> Any:
            return subprocess.run(
                [sys.executable, "-c", NO_HOME, *args], env=here, cwd=shop.root, capture_output=True,
                text=True, timeout=60,
            )  # fmt: skip

        assert run("methods", "acme").returncode == 0
        assert run("validate", "good", *FLAGS).returncode == 0
        done = run("job", "ls", "--json")
        assert done.returncode == 6, (home, done.stdout)
        error = json.loads(done.stdout)["error"]
        assert error["code"] in ("no-home", "folder-not-writable")
        assert "TUNEPORT_STATE_DIR" in error["hint"]


def test_ctrl_c_is_one_word_and_130(shop: Shop, tmp_path: Path) -> None:
    slow = "import sys, time\nsys.stderr.write('waiting\\n'); sys.stderr.flush()\ntime.sleep(60)\n"
    install(tmp_path, "acme-slow", "[tuneport.frameworks]\nacme = fake_slow:A\n", {"fake_slow.py": slow})
    for extra, said in (([], "tp: interrupted\n"), (["--json"], "")):
        child = subprocess.Popen(
            [*TP, "validate", "good", *FLAGS, *extra], cwd=shop.root,
            env={**shop.env, "PYTHONPATH": str(tmp_path)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert child.stderr is not None
        assert child.stderr.readline() == "waiting\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
        assert child.returncode == 130
        assert err.strip() == said.strip()
        if extra:
            assert json.loads(out)["error"]["code"] == "interrupted"


def test_several_at_once_make_one_of_each(shop: Shop, tmp_path: Path) -> None:
    env = {**shop.env, "TUNEPORT_CACHE_DIR": str(tmp_path / "cold")}
    start = [
        subprocess.Popen(
            [*TP, "new", "same", "--method", "acme/tune"], cwd=shop.root, env=env, stderr=subprocess.PIPE
        )
        for _ in range(4)
    ]
    codes = sorted(child.wait(timeout=60) for child in start)
    for child in start:
        assert child.stderr is not None
        child.stderr.close()
    assert codes == [0, 3, 3, 3]
    names = sorted(path.name for path in (shop.root / "experiments" / "same").iterdir())
    assert names == ["config.yaml", "eval.py", "recipe.lock.json"]
    assert not [p for p in (shop.root / "experiments").iterdir() if p.name.startswith(".")]
    assert shop.run("validate", "same", *FLAGS, env=env).returncode == 0
    left = [path.name for path in (tmp_path / "cold" / "index").iterdir() if not path.name.endswith(".json")]
    assert not left, "no half-written cache files"


def test_a_crash_is_70_with_a_way_to_see_more(shop: Shop) -> None:
    code = (
        "import tuneport.registry.catalog as c\n"
        "def broken(*_): raise RuntimeError('oops')\nc.methods = broken\n"
        "from tuneport.cli.run import run\nraise SystemExit(run(['methods'{}]))"
    )
    for extra in ("", ", '--json'"):
        done = subprocess.run(
            [sys.executable, "-c", code.format(extra)], env=shop.env, cwd=shop.root, capture_output=True,
            text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 70
        assert "RuntimeError: oops" in done.stderr + done.stdout
        assert "Traceback" not in done.stderr
        assert "TUNEPORT_TRACEBACK" in done.stderr + done.stdout


def test_a_working_directory_that_is_gone(shop: Shop, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f'cd {gone} && rmdir {gone} && exec "$@"'
    for args, code in ((["ls"], 4), (["methods", "acme"], 0), (["validate", "x"], 4)):
        done = subprocess.run(
            ["sh", "-c", script, "sh", os.path.join(os.path.dirname(sys.executable), "tp"), *args],
            env=shop.env, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        gone.mkdir()
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
