"""Dataset versions never change, appear whole, and are refused when they did change."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuneport.datasets import describe, locate, parse_reference, verify
from tuneport.datasets.files import read
from tuneport.datasets.push import push
from tuneport.datasets.store import references, root, versions
from tuneport.errors import Invalid, NotFound, TuneportError, Unavailable, Untrusted
from tuneport.experiment.site import site_document

REF = "alice/gsm8k-zh@v2"
ROOT_USER = hasattr(os, "geteuid") and os.geteuid() == 0

PUSH = """
import sys
from pathlib import Path
from tuneport.cli.run import guarded
from tuneport.datasets.push import push
def main():
    done = push(sys.argv[1], sys.argv[2], Path(sys.argv[3]), lambda name, size: print(name, flush=True))
    print("created" if done.created else "identical", flush=True)
    return 0
sys.exit(guarded(main))
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for key in list(os.environ):
        if key.startswith(("TUNEPORT_", "TUNEPLANE_", "FORGE_")):
            monkeypatch.delenv(key)
    monkeypatch.setenv("TUNEPORT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TUNEPORT_SITE_FILE", str(tmp_path / "site.yaml"))
    (tmp_path / "site.yaml").write_text("{}\n")
    site_document.cache_clear()
    return tmp_path / "state"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "sub").mkdir(parents=True)
    (folder / "train.parquet").write_bytes(b"train" * 1000)
    (folder / "sub" / "größe 測試.jsonl").write_text('{"a": 1}\n')
    (folder / "empty").touch()
    return folder


@pytest.fixture
def pushed(source: Path) -> Path:
    return push("alice/gsm8k-zh", "v2", source).version.data


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("alice/gsm8k-zh@v2", ("alice", "gsm8k-zh", "v2")),
        ("a/b@1", ("a", "b", "1")),
        ("Org_1/x.y-z@2026.11+b", ("Org_1", "x.y-z", "2026.11+b")),
    ],
)
def test_references_parse(text: str, parts: tuple[str, str, str]) -> None:
    assert parse_reference(text) == parts


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("gsm8k", "dataset-reference"),
        ("", "dataset-reference"),
        ("@v1", "dataset-reference"),
        ("a/b/c@v1", "dataset-reference"),
        ("../b@v1", "dataset-reference"),
        ("a/..@v1", "dataset-reference"),
        ("/etc@v1", "dataset-reference"),
        ("a/b\n@v1", "dataset-reference"),
        ("a/\x00@v1", "dataset-reference"),
        (" a/b@v1", "dataset-reference"),
        ("-a/b@v1", "dataset-reference"),
        ("a/b", "dataset-version-missing"),
        ("a/b@", "dataset-version-missing"),
        ("a/b@..", "dataset-version"),
        ("a/b@v1/..", "dataset-version"),
        ("a/b@v1@v2", "dataset-version"),
        ("a/b@v1\n", "dataset-version"),
        ("a/b@.push-x", "dataset-version"),
    ],
)
def test_what_is_no_reference_is_refused_with_a_code(text: str, code: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_reference(text)
    assert caught.value.code == code
    assert caught.value.hint


@given(st.text())
def test_no_text_leaves_the_store(text: str) -> None:
    try:
        owner, name, version = parse_reference(text)
    except Invalid:
        return
    base = Path("/store")
    assert Path(os.path.normpath(base / owner / name / version)).parts == ("/", "store", owner, name, version)


def test_a_push_keeps_every_byte(source: Path, pushed: Path, state: Path) -> None:
    found = describe(REF)
    assert locate(REF) == pushed == state / "datasets/alice/gsm8k-zh/v2/data"
    assert sorted(found.files) == ["empty", "sub/größe 測試.jsonl", "train.parquet"]
    assert found.size == 5000 + 9
    assert found.digest.startswith("sha256:")
    for name in found.files:
        assert (pushed / name).read_bytes() == (source / name).read_bytes()
        assert not (pushed / name).stat().st_mode & 0o222
    assert state.stat().st_mode & 0o077 == 0
    assert verify(REF) == found
    assert [path.name for path in pushed.parent.parent.iterdir()] == ["v2"]


def test_the_digest_is_of_names_and_content_only(source: Path, pushed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(source, other)
    os.utime(other / "train.parquet", (1, 1))
    assert push("bob/copy", "v1", other).version.digest == describe(REF).digest
    (other / "empty").rename(other / "empty2")
    assert push("bob/copy", "v2", other).version.digest != describe(REF).digest


def test_pushing_the_same_again_does_nothing_and_another_content_is_refused(
    source: Path, pushed: Path
) -> None:
    again = push("alice/gsm8k-zh", "v2", source)
    assert not again.created
    assert again.version == describe(REF)
    (source / "train.parquet").write_bytes(b"other")
    with pytest.raises(Invalid) as caught:
        push("alice/gsm8k-zh", "v2", source)
    assert caught.value.code == "dataset-version-exists"
    assert verify(REF) == again.version
    assert push("alice/gsm8k-zh", "v3", source).created


def _flip(data: Path) -> str:
    path = data / "train.parquet"
    path.chmod(0o644)
    path.write_bytes(b"Train" + path.read_bytes()[5:])
    return "train.parquet was changed"


def _truncate(data: Path) -> str:
    (data / "train.parquet").chmod(0o644)
    os.truncate(data / "train.parquet", 10)
    return "train.parquet was changed"


def _delete(data: Path) -> str:
    (data / "sub" / "größe 測試.jsonl").unlink()
    return "sub/größe 測試.jsonl is missing"


def _add(data: Path) -> str:
    (data / "sub" / "more").touch()
    return "sub/more was added"


def _link(data: Path) -> str:
    twin = data.parent.parent / "twin"
    (data / "train.parquet").rename(twin)
    (data / "train.parquet").symlink_to(twin)
    return "train.parquet was changed"


def _drop_all(data: Path) -> str:
    shutil.rmtree(data)
    return "empty is missing"


@pytest.mark.parametrize("tamper", [_flip, _truncate, _delete, _add, _link, _drop_all])
@pytest.mark.parametrize("full", [False, True])
def test_what_changed_is_named(pushed: Path, tamper: Callable[[Path], str], full: bool) -> None:
    says = tamper(pushed)
    with pytest.raises(Untrusted) as caught:
        locate(REF, full=full)
    assert says in caught.value.message
    assert REF in caught.value.message
    assert caught.value.exit_code == 5
    with pytest.raises(Untrusted):
        verify(REF)


def test_a_change_that_hides_its_time_is_found_by_reading_all(pushed: Path) -> None:
    path = pushed / "train.parquet"
    before = path.stat()
    _flip(pushed)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert locate(REF) == pushed, "the cheap check cannot see this, and its docstring says so"
    with pytest.raises(Untrusted, match=r"train\.parquet was changed"):
        locate(REF, full=True)


def test_another_time_alone_is_no_change(pushed: Path) -> None:
    os.utime(pushed / "train.parquet", (1, 1))
    assert locate(REF) == pushed


@pytest.mark.parametrize("damage", ["", "{}", "[]", '{"format": 2}', "nonsense"])
def test_a_damaged_manifest_is_not_trusted(pushed: Path, damage: str) -> None:
    place = pushed.parent / "manifest.json"
    place.chmod(0o644)
    place.write_text(damage)
    with pytest.raises(Untrusted, match="cannot be trusted"):
        locate(REF)


def test_an_edited_manifest_is_not_trusted(pushed: Path) -> None:
    place = pushed.parent / "manifest.json"
    place.chmod(0o644)
    note = json.loads(place.read_text())
    note["files"]["../../escape"] = note["files"]["empty"]
    place.write_text(json.dumps(note))
    with pytest.raises(Untrusted, match="does not match its own digest"):
        locate(REF)
    shutil.copytree(pushed.parent, pushed.parent.parent / "v9")
    with pytest.raises(Untrusted):
        locate("alice/gsm8k-zh@v9")


def test_what_is_missing_names_what_exists(source: Path, pushed: Path) -> None:
    for version in ("v10", "v1"):
        push("alice/gsm8k-zh", version, source)
    with pytest.raises(NotFound, match="no version 'v3'; it has v1, v2, v10"):
        locate("alice/gsm8k-zh@v3")
    with pytest.raises(NotFound) as caught:
        locate("alice/gsm8k-hz@v2")
    assert caught.value.hint == "did you mean alice/gsm8k-zh?"
    with pytest.raises(NotFound) as caught:
        locate("somebody/else@v2")
    assert "tp dataset push somebody/else v2" in caught.value.hint
    assert list(references()) == [f"alice/gsm8k-zh@{version}" for version in ("v1", "v2", "v10")]


def test_all_unfit_files_are_named_at_once(source: Path) -> None:
    (source / "link").symlink_to("train.parquet")
    (source / "sub" / "dangling").symlink_to("/nowhere")
    (source / "folder-link").symlink_to("sub")
    os.mkfifo(source / "pipe")
    (source / "new\nline").touch()
    Path(os.fsdecode(os.fsencode(source) + b"/\xff")).touch()
    with socket.socket(socket.AF_UNIX) as bound:
        previous = Path.cwd()
        os.chdir(source)
        bound.bind("sock")
        os.chdir(previous)
        with pytest.raises(Invalid) as caught:
            push("alice/x", "v1", source)
    found = {(finding.code, finding.file) for finding in caught.value.findings}
    assert found == {
        ("dataset-symlink", "link"),
        ("dataset-symlink", "sub/dangling"),
        ("dataset-symlink", "folder-link"),
        ("dataset-special-file", "pipe"),
        ("dataset-special-file", "sock"),
        ("dataset-file-name", "new\\nline"),
        ("dataset-file-name", "\\udcff"),
    }
    assert not root().exists()


@pytest.mark.skipif(ROOT_USER, reason="root reads everything")
def test_an_unreadable_file_is_named(source: Path) -> None:
    (source / "secret").touch(mode=0o000)
    with pytest.raises(Invalid) as caught:
        push("alice/x", "v1", source)
    assert [finding.code for finding in caught.value.findings] == ["dataset-unreadable"]


def test_a_folder_is_needed_and_it_must_hold_something(source: Path, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    for folder, code in [
        (tmp_path / "absent", "dataset-folder"),
        (source / "train.parquet", "dataset-folder"),
        (tmp_path / "nothing", "dataset-empty"),
    ]:
        with pytest.raises(Invalid) as caught:
            push("alice/x", "v1", folder)
        assert caught.value.code == code
    for name, version in [("alice", "v1"), ("../x", "v1"), ("alice/x", "../v1"), ("alice/x", "")]:
        with pytest.raises(Invalid):
            push(name, version, source)
    assert not root().exists()


def test_the_site_file_names_a_shared_place(source: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (tmp_path / "site.yaml").write_text(json.dumps({"datasets": {"path": str(shared)}}))
    site_document.cache_clear()
    push("alice/gsm8k-zh", "v2", source)
    assert locate(REF) == shared / "alice/gsm8k-zh/v2/data"
    (tmp_path / "site.yaml").write_text("datasets: {path: relative}")
    site_document.cache_clear()
    with pytest.raises(Invalid, match="relative"):
        locate(REF)


def _push(name: str, version: str, folder: Path) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", PUSH, name, version, str(folder)]
    return subprocess.Popen(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_of_many_pushes_one_wins(source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(source, other)
    (other / "train.parquet").write_bytes(b"x" * 5000)
    children = [_push("alice/gsm8k-zh", "v2", folder) for folder in (source, other) * 4]
    outs = [child.communicate(timeout=60) for child in children]
    created = [out for out, _ in outs if out.endswith("created\n")]
    codes = sorted(child.returncode for child in children)
    assert len(created) == 1, outs
    assert codes == [0] * 4 + [3] * 4, outs
    refused = [talk for _, talk in outs if talk]
    assert all("exists with another content" in talk and "Traceback" not in talk for talk in refused)
    assert len(refused) == 4
    verify(REF)
    assert [path.name for path in locate(REF).parent.parent.iterdir()] == ["v2"]


def test_a_killed_push_leaves_no_version_and_the_next_one_tidies_up(source: Path) -> None:
    for number in range(300):
        (source / f"part-{number:04}").write_bytes(os.urandom(20_000))
    for pieces in (1, 50, 250):
        child = _push("alice/gsm8k-zh", "v2", source)
        assert child.stdout is not None
        for _ in range(pieces):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert versions("alice", "gsm8k-zh") == []
        with pytest.raises(NotFound):
            locate(REF)
    assert push("alice/gsm8k-zh", "v2", source).created
    verify(REF)
    assert [path.name for path in locate(REF).parent.parent.iterdir()] == ["v2"]


def test_ctrl_c_leaves_nothing(source: Path) -> None:
    for number in range(2000):
        (source / f"part-{number:04}").write_bytes(b"x")
    child = _push("alice/gsm8k-zh", "v2", source)
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    _, talk = child.communicate(timeout=30)
    assert child.returncode == 130
    assert talk == "tp: interrupted\n"
    assert list((root() / "alice/gsm8k-zh").iterdir()) == []


def test_a_file_that_changes_while_it_is_read_is_refused(source: Path) -> None:
    path = source / "train.parquet"
    with pytest.raises(Invalid) as caught:
        read(path, lambda _: os.utime(path, (1, 1)))
    assert caught.value.code == "dataset-changing"


def test_a_full_disk_is_said(source: Path, tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("needs user namespaces to mount a small disk")
    (source / "large").write_bytes(os.urandom(3_000_000))
    disk = tmp_path / "disk"
    disk.mkdir()
    script = (
        'mount -t tmpfs -o size=1M none "$1" || exit 99; "$2" -c "$3" alice/x v1 "$4"; '
        'echo $?; find "$1" -type f'
    )
    argv = ["unshare", "-rm", "sh", "-c", script, "sh", str(disk), sys.executable, PUSH, str(source)]
    environ = os.environ | {"TUNEPORT_STATE_DIR": str(disk)}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True)
    if done.returncode in (1, 99):
        pytest.skip("needs user namespaces to mount a small disk")
    assert done.stdout.splitlines()[-1] == "6", done
    assert "No space left on device" in done.stderr
    assert "hint: free some space" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(ROOT_USER, reason="root writes everywhere")
def test_a_store_that_cannot_be_written_is_said(source: Path, state: Path) -> None:
    state.mkdir(mode=0o500)
    with pytest.raises(Unavailable):
        push("alice/x", "v1", source)


def test_ten_thousand_files_are_found_quickly(tmp_path: Path) -> None:
    many = tmp_path / "many"
    many.mkdir()
    for number in range(5000):
        (many / f"{number}.json").write_bytes(b"{}")
    push("alice/many", "v1", many)
    start = time.process_time()
    locate("alice/many@v1")
    assert time.process_time() - start < 5


def test_errors_are_of_the_documented_kinds() -> None:
    for call in (locate, verify, describe):
        for text in ("nonsense", "a/b@c"):
            with pytest.raises(TuneportError) as caught:
                call(text)
            assert caught.value.exit_code in (3, 4)
