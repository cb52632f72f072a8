"""Every write of the job store and the local fleet has a point at which the kill suite can strike."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tuneport
from tuneport.fleets import faults

SOURCE = Path(tuneport.__file__).parent
MODULES = [
    path
    for folder in ("fleets", "jobs")
    for path in sorted((SOURCE / folder).rglob("*.py"))
    if path.name not in ("faults.py",)
]
PRIMITIVES = {"folder", "publish", "publish_json", "publish_folder", "reserve", "fill", "rename", "remove"}
"""Functions of `disk` that take the name of a point."""
METHODS = {
    "write_text",
    "write_bytes",
    "mkdir",
    "unlink",
    "rmdir",
    "rename",
    "touch",
    "chmod",
    "symlink_to",
    "hardlink_to",
}
CALLS = {
    "os": {
        "open",
        "write",
        "pwrite",
        "mkdir",
        "makedirs",
        "rename",
        "replace",
        "remove",
        "unlink",
        "link",
        "symlink",
    }
    | {"fork", "kill", "killpg", "ftruncate", "truncate", "execvpe", "posix_spawn"},
    "shutil": {"rmtree", "copy", "copyfile", "copy2", "copytree", "move"},
    "subprocess": {"run", "Popen", "call", "check_call", "check_output"},
}
ALLOWED = {
    "disk.py": {"folder", "publish", "reserve", "fill", "rename", "publish_folder", "remove", "write_all"}
    | {"sync_folder", "try_lock"}
    | {"read_bytes"},  # opens to read
    "stage.py": {"keep_source", "copy_verified", "prepare", "_reporter"},
    "role.py": {"start", "_become", "_streams", "_mark", "_say"},
    "supervisor.py": {"main", "live"},  # the forks and the answer to whoever started it
    "local.py": {"_start_supervisor"},
    "procs.py": {"send", "_signalable"},
    "cards.py": {"_listed"},  # asks nvidia-smi
    "tail.py": {"_read"},  # opens to read
    "store.py": {"_connect"},
    "settings.py": {"private_dir"},
}
"""Where a write without the name of a point may stand: inside the primitives, and between two points."""


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Each call with the innermost function that it stands in."""

    def walk(node: ast.AST, name: str) -> Iterator[tuple[str, ast.Call]]:
        for child in ast.iter_child_nodes(node):
            inside = child.name if isinstance(child, ast.FunctionDef) else name
            if isinstance(child, ast.Call):
                yield inside, child
            yield from walk(child, inside)

    yield from walk(tree, "<module>")


def writes(call: ast.Call) -> str:
    """What a call writes with; "" where it only reads."""
    target = call.func
    if isinstance(target, ast.Name) and target.id == "open":
        return _opened(call, 1)
    if not isinstance(target, ast.Attribute):
        return ""
    owner = target.value.id if isinstance(target.value, ast.Name) else ""
    if target.attr in CALLS.get(owner, ()):
        return f"{owner}.{target.attr}"
    if owner in ("disk", "os", "shutil", "dataclasses"):
        return ""
    if target.attr == "open" and owner != "os":
        return _opened(call, 0)
    if target.attr == "replace" and len(call.args) == 1:  # of a path, not of text
        return "replace"
    return target.attr if target.attr in METHODS else ""


def _opened(call: ast.Call, position: int) -> str:
    mode = call.args[position] if len(call.args) > position else None
    text = mode.value if isinstance(mode, ast.Constant) else "r"
    return f"open {text}" if set(str(text)) & set("wax+") else ""


def test_nothing_is_written_past_the_points() -> None:
    found = []
    for path in MODULES:
        for function, call in functions(ast.parse(path.read_text())):
            what = writes(call)
            if what and function not in ALLOWED.get(path.name, ()):
                found.append(f"{path.name}:{call.lineno} {function}: {what}")
    assert found == []


def test_the_database_is_only_changed_inside_write() -> None:
    tree = ast.parse((SOURCE / "jobs" / "store.py").read_text())
    changing = []
    for function, call in functions(tree):
        text = "".join(
            node.value
            for node in ast.walk(call)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        )
        if (
            isinstance(call.func, ast.Attribute)
            and call.func.attr == "execute"
            and text.lstrip().startswith(("INSERT", "UPDATE", "DELETE", "REPLACE"))
        ):
            owner = call.func.value
            assert isinstance(owner, ast.Name), function
            assert owner.id == "cursor", function  # what `_write` yields
            changing.append(function)
    assert {"add", "set_handle", "_moved"} <= set(changing)
    others = [
        path.name
        for path in MODULES
        if path.name != "store.py" and ("INSERT INTO" in path.read_text() or "sqlite3" in path.read_text())
    ]
    assert others == []


def test_points_are_used_and_listed() -> None:
    used: set[str] = set()
    for path in MODULES:
        for _, call in functions(ast.parse(path.read_text())):
            target = call.func
            name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
            owner = (
                target.value.id
                if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
                else ""
            )
            if name == "fault" or (owner == "disk" and name in PRIMITIVES) or name == "_write":
                literals = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
                passed_on = path.name in ("disk.py", "store.py") and any(
                    isinstance(arg, ast.Name) and arg.id == "point" for arg in call.args
                )
                texts = [text for text in literals if isinstance(text, str)]
                if name == "_put":
                    continue
                assert texts or passed_on or any(isinstance(arg, ast.Name) for arg in call.args), (
                    f"{path}:{call.lineno}"
                )
                used.update(text for text in texts if "-" in text)
            if name == "_put":
                used.update(arg.value for arg in call.args if isinstance(arg, ast.Constant) and arg.value)
    listed = {name for names in faults.POINTS.values() for name in names}
    assert used == listed


@pytest.mark.parametrize(
    ("armed", "code"), [("", 0), ("cli:1", -9), ("cli:2", -9), ("cli:3", 0), ("role:1", 0)]
)
def test_a_process_dies_at_the_point_it_is_told(armed: str, code: int, tmp_path: Path) -> None:
    text = "from tuneport.fleets.faults import fault; fault('stop-mark'); fault('stop-record')"
    env = {**os.environ, "TUNEPORT_TEST_FAULT": armed, "TUNEPORT_TEST_FAULT_LOG": str(tmp_path / "log")}
    assert subprocess.run([sys.executable, "-c", text], env=env, check=False).returncode == code
    assert (tmp_path / "log").exists() == (code == -signal.SIGKILL)


def test_a_point_that_is_not_listed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_armed", "cli:9999")
    with pytest.raises(AssertionError, match="'new-write' is not listed"):
        faults.fault("new-write")
