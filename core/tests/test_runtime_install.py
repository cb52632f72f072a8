"""Real pip, tiny wheels: environments are built once, completely or not at all."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tuneport.errors import Unavailable
from tuneport.runtimes import venvs
from tuneport.runtimes.install import install, remove
from tuneport.runtimes.locks import held, is_held
from tuneport.runtimes.variants import Variant, digest, pick

Spec = dict[str, object]

INSTALL = """
import json, sys
from tuneport.cli.run import guarded
from tuneport.runtimes.install import install
from tuneport.runtimes.variants import pick
def main():
    variant = pick(json.loads(sys.argv[1]), "tiny", "cpu")
    built = install(variant, lambda text: print(text, file=sys.stderr, flush=True))
    print(built.path, flush=True)
    return 0
sys.exit(guarded(main))
"""


def wheel(folder: Path, name: str, version: str, code: str = "", requires: str = "", pad: int = 0) -> None:
    """A minimal wheel; `pad` bytes that do not compress make it large."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{name}.py": code.encode() or f"VERSION = {version!r}\n".encode(),
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if pad:
        files[f"{name}_data/blob.bin"] = os.urandom(pad)
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b'=').decode()},{len(body)}\n"
        for path, body in files.items()
    )
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for path, body in files.items():
            archive.writestr(path, body)


def slow_project(folder: Path, seconds: float) -> None:
    """A source project whose build takes a while, so that there is a middle to be killed in."""
    root = folder / "slowpoke"
    root.mkdir()
    (root / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "slowpoke"\nversion = "1.0"\n'
    )
    (root / "backend.py").write_text(
        "import pathlib, shutil, time\n"
        "def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):\n"
        f"    time.sleep({seconds})\n"
        f"    shutil.copy({str(folder / 'made' / 'slowpoke-1.0-py3-none-any.whl')!r}, wheel_directory)\n"
        "    return 'slowpoke-1.0-py3-none-any.whl'\n"
    )
    (folder / "made").mkdir()
    wheel(folder / "made", "slowpoke", "1.0")
    shutil.make_archive(
        str(folder / "slowpoke-1.0"), "gztar", root_dir=folder, base_dir=_renamed(root, "slowpoke-1.0")
    )


def _renamed(root: Path, name: str) -> str:
    root.rename(root.with_name(name))
    return name


def spec(*requirements: str, **more: object) -> Spec:
    variant = {"series": ["cpu"], "requirements": list(requirements), **more}
    return {"release": "1.0", "runtime": {"id": "tiny-1.0", "venv": {"variants": {"cpu": variant}}}}


def variant_of(*requirements: str, **more: object) -> Variant:
    return pick(spec(*requirements, **more), "tiny", "cpu")


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all pip knows, and a cache of its own."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    for key in [key for key in os.environ if key.startswith("PIP_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("TUNEPORT_CACHE_DIR", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def started() -> Iterator[Callable[[Spec], subprocess.Popen[str]]]:
    """Starts installers as processes and leaves none behind."""
    children: list[subprocess.Popen[str]] = []

    def start(what: Spec) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", INSTALL, json.dumps(what)]
        children.append(subprocess.Popen(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.communicate()


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def the_folder(what: Spec) -> Path:
    found = [path for path in venvs.root().iterdir() if path.is_dir()]
    assert len(found) == 1, found
    return found[0]


def test_it_installs_once_and_records_what_came(shelf: Path) -> None:
    wheel(shelf, "alpha", "1.0", requires="beta>=1")
    wheel(shelf, "beta", "1.5")
    talk: list[str] = []
    variant = variant_of("alpha==1.0", check=["alpha", "beta"], download_mb=2, note="small")
    built = install(variant, talk.append)
    assert built.state == "ready"
    assert built.packages["alpha"] == "1.0"
    assert built.packages["beta"] == "1.5"
    assert built.size > 100_000
    assert venvs.inspect(built.path) == built
    code = "import alpha, beta, sys; print(alpha.VERSION, sys.prefix)"
    said = subprocess.run([built.interpreter, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["1.0", str(built.path)]
    assert any("about 2 MB" in line for line in talk)
    assert any("small" in line for line in talk)

    before = len(talk)
    stamp = (built.path / venvs.MARKER).stat().st_mtime_ns
    assert install(variant, talk.append) == built
    assert len(talk) == before, "nothing is said, because nothing is done"
    assert (built.path / venvs.MARKER).stat().st_mtime_ns == stamp


def test_the_digest_sees_python_and_set_but_not_order() -> None:
    tag = "cpython-311-linux-x86_64"
    assert digest(variant_of("a==1", "b==2"), tag) == digest(variant_of("b==2", "a==1"), tag)
    others = {
        digest(variant_of("a==1"), tag),
        digest(variant_of("a==2"), tag),
        digest(variant_of("a==1"), "cpython-312-linux-x86_64"),
        digest(variant_of("a==1", pip_args=["--no-deps"]), tag),
    }
    assert len(others) == 4


def test_two_installers_build_once(shelf: Path, started: Callable[[Spec], subprocess.Popen[str]]) -> None:
    slow_project(shelf, 2.0)
    what = spec("slowpoke==1.0")
    first = started(what)
    until(lambda: venvs.root().is_dir() and any(map(is_held, venvs.root().glob("*.lock"))))
    second = started(what)
    outs = [child.communicate(timeout=120) for child in (first, second)]
    assert [child.returncode for child in (first, second)] == [0, 0], outs
    assert outs[0][0] == outs[1][0]
    assert "installed tiny-1.0 (cpu)" in outs[0][1]
    assert f"waiting: process {first.pid} on" in outs[1][1]
    assert "installing tiny-1.0 (cpu) since" in outs[1][1]
    assert "installed tiny-1.0" not in outs[1][1], "the second one used what the first one built"


@pytest.mark.sweep
@pytest.mark.parametrize("after", [3.0, 0.5])
def test_killed_in_the_middle_the_next_one_rebuilds(
    shelf: Path, started: Callable[[Spec], subprocess.Popen[str]], after: float
) -> None:
    slow_project(shelf, 2.0)
    what = spec("slowpoke==1.0")
    first = started(what)
    until(lambda: venvs.root().is_dir() and any(map(is_held, venvs.root().glob("*.lock"))))
    time.sleep(after)
    first.send_signal(signal.SIGKILL)
    first.wait()
    variant = pick(what, "tiny", "cpu")
    assert venvs.find_built(variant) is None, "half-built ones are never used"
    second = started(what)
    out, talk = second.communicate(timeout=120)
    assert second.returncode == 0, talk
    built = venvs.find_built(variant)
    assert built is not None
    assert out.strip() == str(built.path)
    assert not any(path.name != built.path.name for path in venvs.root().iterdir() if path.is_dir())


@pytest.mark.sweep(whole=True)
def test_ctrl_c_leaves_nothing_half_built(
    shelf: Path, started: Callable[[Spec], subprocess.Popen[str]]
) -> None:
    slow_project(shelf, 60.0)
    first = started(spec("slowpoke==1.0"))
    until(
        lambda: any("slowpoke" in path.read_text("utf-8", "replace") for path in venvs.root().glob("*.log"))
    )
    first.send_signal(signal.SIGINT)
    out, talk = first.communicate(timeout=30)
    assert first.returncode == 130
    assert talk.rstrip().endswith("tp: interrupted")
    assert "Traceback" not in talk
    assert out == ""
    assert not [path for path in venvs.root().iterdir() if path.is_dir()]
    assert not venvs.users_of(venvs.root()), "pip is gone too"


@pytest.mark.sweep(whole=True)
def test_a_missing_pin_is_said_with_pips_own_words(shelf: Path) -> None:
    wheel(shelf, "alpha", "1.0")
    with pytest.raises(Unavailable) as caught:
        install(variant_of("alpha==9.9"), print)
    assert caught.value.code == "runtime-install-failed"
    assert "a pinned package is not to be had" in caught.value.message
    assert "alpha==9.9" in caught.value.message
    log = Path(re.search(r"the whole log is (\S+)", caught.value.hint)[1])  # type: ignore[index]
    assert "alpha==9.9" in log.read_text()
    assert not [path for path in venvs.root().iterdir() if path.is_dir()]


def test_no_network_is_said(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(Unavailable) as caught:
        install(variant_of("alpha==1.0"), print)
    assert "the package index cannot be reached" in caught.value.message


def test_a_module_that_does_not_import_fails_the_installation(shelf: Path) -> None:
    wheel(shelf, "alpha", "1.0", code="import there_is_no_such_module\n")
    with pytest.raises(Unavailable) as caught:
        install(variant_of("alpha==1.0", check=["alpha"]), print)
    assert "does not import" in caught.value.message
    assert "there_is_no_such_module" in caught.value.message
    assert venvs.find_built(variant_of("alpha==1.0")) is None


@pytest.mark.sweep(whole=True)
def test_pip_settings_that_would_install_elsewhere_do_not(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(shelf, "alpha", "1.0")
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    built = install(variant_of("alpha==1.0", check=["alpha"]), print)
    assert built.packages["alpha"] == "1.0"
    assert not (tmp_path / "elsewhere").exists()


def stand_in(variant: Variant) -> venvs.Built:
    """An environment that cost nothing: this Python under the name that a real one would have."""
    tag = "cpython-311-test"
    path = venvs.folder(variant, digest(variant, tag))
    (path / "bin").mkdir(parents=True)
    venvs.interpreter(path).symlink_to(sys.executable)
    built = venvs.Built(
        path,
        "ready",
        variant.runtime_id,
        variant.name,
        variant.release,
        "3.11.0",
        tag,
        variant.requirements,
        5,
        1.0,
    )
    venvs.write_marker(built)
    return venvs.inspect(path)


def test_another_set_is_another_environment(shelf: Path) -> None:
    one, two = (
        stand_in(variant_of("alpha==1.0", "beta==1.0")),
        stand_in(variant_of("alpha==2.0", "beta==1.0")),
    )
    assert one.path != two.path
    assert venvs.find_built(variant_of("beta==1.0", "alpha==1.0")) == one
    assert venvs.find_built(variant_of("alpha==2.0")) is None


def test_an_environment_whose_python_is_gone_is_not_used(shelf: Path) -> None:
    variant = variant_of("alpha==1.0")
    built = stand_in(variant)
    built.interpreter.unlink()
    built.interpreter.symlink_to("/nowhere/python")
    assert venvs.inspect(built.path).state == "broken"
    assert venvs.find_built(variant) is None


def test_removal_waits_for_nobody_and_spares_what_is_used(shelf: Path) -> None:
    variant = variant_of("alpha==1.0")
    built = stand_in(variant)
    with (
        held(venvs.lock_of(built.path), "installing it", print),
        pytest.raises(Unavailable, match=f"process {os.getpid()} on .* is installing it") as caught,
    ):
        remove(built.path, print)
    assert caught.value.code == "runtime-busy"
    user = subprocess.Popen([built.interpreter, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        if Path("/proc/self/cmdline").exists():
            until(lambda: venvs.users_of(built.path))
            with pytest.raises(Unavailable, match=f"in use by process {user.pid}"):
                remove(built.path, print)
            assert venvs.find_built(variant) == built
    finally:
        user.communicate(b"\n")
    assert remove(built.path, print) == 5
    assert list(venvs.built()) == []


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]", b"\xff", b'{"format": 99}'])
def test_a_damaged_marker_is_no_marker(shelf: Path, damage: bytes) -> None:
    folder = venvs.folder(variant_of("alpha==1.0"), "0" * 64)
    (folder / "bin").mkdir(parents=True)
    (folder / venvs.MARKER).write_bytes(damage)
    assert venvs.inspect(folder).state == "half-built"
    assert venvs.find_built(variant_of("alpha==1.0")) is None


def test_no_fitting_python_names_what_was_looked_for(shelf: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        install(variant_of("alpha==1.0", python=">=3.39,<3.40"), print)
    assert caught.value.code == "runtime-python"
    running = ".".join(map(str, sys.version_info[:3]))
    assert f"tiny-1.0 (cpu) needs Python >=3.39,<3.40: this one is {running}" in caught.value.message
    assert "python3.39" in caught.value.message
    assert not venvs.root().exists()


@pytest.mark.sweep(whole=True)
def test_another_python_on_path_is_taken(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = sorted(Path("~/.pyenv/versions").expanduser().glob("3.*/bin"))
    monkeypatch.setenv("PATH", os.pathsep.join([*map(str, places), os.environ["PATH"]]))
    names = [f"3.{minor}" for minor in range(10, 20) if minor != sys.version_info.minor]
    other = next(filter(_runs, names), None)
    if other is None:
        pytest.skip("no second Python here")
    wheel(shelf, "alpha", "1.0")
    built = install(variant_of("alpha==1.0", python=f"=={other}.*"), print)
    assert built.python.startswith(f"{other}.")
    said = subprocess.run([built.interpreter, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.split()[1] == built.python


def _runs(version: str) -> bool:
    path = shutil.which(f"python{version}")
    return (
        path is not None
        and subprocess.run([path, "-c", "import ensurepip"], capture_output=True).returncode == 0
    )


def test_a_full_disk_is_one_message_and_the_next_one_works(shelf: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    wheel(shelf, "alpha", "1.0", pad=1_000_000)
    script = (
        f"mount -t tmpfs -o size=12M none {small} || exit 99; export TUNEPORT_CACHE_DIR={small}; "
        'dd if=/dev/zero of="$TUNEPORT_CACHE_DIR/ballast" bs=1M count=$1 2>/dev/null; '
        '"$2" -c "$3" "$4" 2>"$5"; echo $?; ls "$TUNEPORT_CACHE_DIR/runtimes"; '
        'rm "$TUNEPORT_CACHE_DIR/ballast"; mount -o remount,size=200M "$TUNEPORT_CACHE_DIR"; '
        '"$2" -c "$3" "$4" 2>>"$5"'
    )
    talk = tmp_path / "talk"
    argv = [
        "unshare",
        "-rm",
        "sh",
        "-c",
        script,
        "sh",
        "8",
        sys.executable,
        INSTALL,
        json.dumps(spec("alpha==1.0")),
    ]
    if shutil.which("unshare") is None:
        pytest.skip("needs user namespaces to mount a small disk")
    done = subprocess.run([*argv, str(talk)], capture_output=True, text=True)
    if done.returncode in (1, 99) and not talk.exists():
        pytest.skip("needs user namespaces to mount a small disk")
    code, *names, path = done.stdout.split()
    assert code == "6", talk.read_text()
    assert not [name for name in names if not name.endswith((".lock", ".log"))]
    words = talk.read_text()
    assert "no space left under" in words
    assert "hint: free some space" in words
    assert "Traceback" not in words
    assert "tiny-1.0-cpu-" in path
