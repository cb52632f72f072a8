"""The report file: standard library only, never in the way, nothing lost that was logged."""

from __future__ import annotations

import ast
import json
import math
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuneport import report

SOURCE = Path(report.__file__)


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "report.jsonl"
    monkeypatch.setenv("TUNEPORT_REPORT_FILE", str(path))
    monkeypatch.setattr(report, "_step", 0)
    return path


def records(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_it_imports_nothing_but_the_standard_library() -> None:
    names = set()
    for node in ast.walk(ast.parse(SOURCE.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module)
    assert names <= set(sys.stdlib_module_names) | {"collections.abc"}


def test_it_runs_as_a_copied_file_without_tuneport(tmp_path: Path) -> None:
    (tmp_path / "tuneport_report.py").write_bytes(SOURCE.read_bytes())
    code = "import sys, tuneport_report as r; r.log({'a': 1.5}); assert 'tuneport' not in sys.modules"
    env = {"TUNEPORT_REPORT_FILE": str(tmp_path / "out.jsonl"), "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-S", "-c", code], env=env, check=True)
    assert records(tmp_path / "out.jsonl")[0]["values"] == {"a": 1.5}


def test_init_log_finish(target: Path) -> None:
    assert report.init(lr=1e-3, nested={"a": {"b": 1}})
    assert report.log({"train/loss": 0.5}, step=10)
    assert report.log({"train/loss": 0.4})
    assert report.log({"loss": 1, "eval/loss": 2}, step=12, prefix="eval")
    assert report.finish()
    found = records(target)
    assert [record["kind"] for record in found] == ["init", "log", "log", "log", "finish"]
    assert found[0]["values"] == {"lr": 1e-3, "nested.a.b": 1}
    assert [record.get("step") for record in found] == [None, 10, 11, 12, None]
    assert found[3]["values"] == {"eval/loss": 2}
    assert all(isinstance(record["time"], float) for record in found)


def test_odd_numbers_are_kept_as_they_are(target: Path) -> None:
    report.log(
        {"nan": math.nan, "inf": math.inf, "minus": -math.inf, "big": 10**30, "flag": True, "none": None}
    )
    values = records(target)[0]["values"]
    assert math.isnan(values["nan"])
    assert (values["inf"], values["minus"], values["big"]) == (math.inf, -math.inf, 10**30)
    assert (values["flag"], values["none"]) == (True, None)


def test_arrays_and_tensors_become_numbers(target: Path) -> None:
    import numpy

    class Tensor:
        def detach(self) -> numpy.ndarray:
            return numpy.array([[2.5]])

    report.log(
        {"scalar": numpy.float32(0.5), "array": numpy.array([1.0, 3.0]), "tensor": Tensor()},
        step=numpy.int64(4),
    )
    found = records(target)[0]
    assert found["values"] == {"scalar": 0.5, "array": 2.0, "tensor": 2.5}
    assert found["step"] == 4


class Awful:
    """Raises whatever is asked of it."""

    def __getattribute__(self, name: str) -> object:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError("str")

    __repr__ = __float__ = __int__ = __iter__ = __len__ = __str__


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.complex_numbers()
    | st.builds(Awful)
    | st.builds(object)
    | st.builds(lambda: 10**5000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=8,
)
CALLS = (
    report.init,
    report.log,
    report.finish,
    report.log_hparams,
    report.observe,
    report.validation_metric,
    report.validation_population,
    report.validation_protocol,
    report.validation_outcome,
    report.configure_observability,
)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(CALLS),
    st.lists(ANYTHING, max_size=2),
    st.dictionaries(st.sampled_from("abc"), ANYTHING, max_size=2),
)
def test_no_call_ever_raises_and_every_line_is_json(
    call: object, args: list[object], more: dict[str, object]
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "report.jsonl"
        patch.setenv("TUNEPORT_REPORT_FILE", str(path))
        assert call(*args, **more) in (True, False)
        assert not path.exists() or all(record["kind"] for record in records(path))


def test_wrong_arguments_do_not_raise_either(target: Path) -> None:
    assert report.log({"a": 1}, 1, "x", "too", "many") is False
    assert report.log_hparams({"a": 1}, no_such=1) is True


def test_it_is_silent_without_a_place_or_with_a_bad_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TUNEPORT_REPORT_FILE", raising=False)
    monkeypatch.chdir(tmp_path)
    assert not report.enabled()
    assert report.log({"a": 1}) is False
    for bad in (tmp_path, tmp_path / "none" / "x", "/dev/full"):
        monkeypatch.setenv("TUNEPORT_REPORT_FILE", str(bad))
        assert report.init(a=1) is False
        assert report.log({"a": 1}) is False
        assert report.finish() is False
    assert list(tmp_path.iterdir()) == []


def test_nothing_logged_before_a_crash_is_lost(target: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from tuneport import report\n"
        "for number in range(5000):\n"
        "    report.log({'n': number}, step=number)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert [record["values"]["n"] for record in records(target)] == list(range(5000))


def test_several_processes_append_whole_lines(target: Path) -> None:
    code = (
        "import sys\n"
        "from tuneport import report\n"
        "for number in range(2000):\n"
        "    report.log({'who': int(sys.argv[1]), 'n': number, 'pad': 'x' * (number % 3000)}, step=number)\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(who)]) for who in range(4)]
    assert [process.wait() for process in running] == [0] * 4
    found = records(target)
    for who in range(4):
        assert [r["values"]["n"] for r in found if r["values"]["who"] == who] == list(range(2000))


def test_a_torn_line_does_not_spoil_the_next(target: Path) -> None:
    # A limit on the file's size cuts a write in the middle, as a full disk does.
    code = (
        "import resource, signal\n"
        "from tuneport import report\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "report.log({'a': 1})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300, resource.RLIM_INFINITY))\n"
        "assert report.log({'text': 'x' * 1000}) is False\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "report.log({'b': 2})\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    from tuneport.jobs.metrics import collect

    found = collect([target], {})
    assert set(found.series) >= {"a"}
    assert len(found.problems) == 1


def test_a_trainer_callback(target: Path) -> None:
    class State:
        global_step = 7

    callback = report.TunePlaneCallback(monitor_hardware=True, prefix="train")
    callback.on_train_begin(None, State(), None)
    callback.on_log(None, State(), None, logs={"loss": 0.1})
    callback.on_step_end(None, State(), None, anything=1)
    callback.on_train_end(None, State(), None)
    assert [(r["kind"], r.get("step")) for r in records(target)] == [("log", 7), ("finish", None)]
    with pytest.raises(AttributeError):
        callback.no_such_thing()
