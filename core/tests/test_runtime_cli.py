"""`tp runtime` from the outside, on a framework that exists only in this test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tuneport.errors import NotFound, Unavailable
from tuneport.runtimes import resolve_image, resolve_python
from tuneport.types import RuntimeNeed

FRAMEWORK = "framework: tiny-frame\ntitle: Tiny\ndefault_release: 1.0.0\n"
RELEASE = """\
release: {version}
runtime:
  id: tiny-frame-{version}
  venv:
    variants:
      cpu: {{series: [cpu], python: ">=3.11", requirements: [tinypkg=={version}], download_mb: 1}}
      cuda: {{series: ["*"], requirements: [tinypkg=={version}, tinycuda==1.0], note: needs a card}}
  oci: {{}}
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Manifests of `tiny-frame` and a shelf with its one wheel; every setting points below tmp_path."""
    for key in list(os.environ):
        if key.startswith(("TUNEPORT_", "TUNEPLANE_", "FORGE_", "PIP_")):
            monkeypatch.delenv(key)
    frame = tmp_path / "manifests" / "tiny-frame"
    (frame / "releases").mkdir(parents=True)
    (frame / "framework.yaml").write_text(FRAMEWORK)
    for version in ("1.0.0", "2.0.0"):
        (frame / "releases" / f"{version}.yaml").write_text(RELEASE.format(version=version))
    info = "tinypkg-1.0.0.dist-info"
    with zipfile.ZipFile(tmp_path / "tinypkg-1.0.0-py3-none-any.whl", "w") as archive:
        archive.writestr("tinypkg.py", "")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tinypkg\nVersion: 1.0.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    for name, value in {
        "TUNEPORT_MANIFEST_PATH": tmp_path / "manifests",
        "TUNEPORT_CACHE_DIR": tmp_path / "cache",
        "TUNEPORT_STATE_DIR": tmp_path / "state",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": tmp_path,
        "HOME": tmp_path,
    }.items():
        monkeypatch.setenv(name, str(value))
    return tmp_path


def tp(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tuneport", *args], capture_output=True, text=True)


def answer(*args: str, code: int = 0) -> Any:
    done = tp(*args, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def states() -> dict[tuple[str, str], str]:
    rows = answer("runtime", "ls")["runtimes"]
    return {
        (row["runtime"], row["variant"] or row["form"]): row["state"]
        for row in rows
        if row["runtime"].startswith("tiny-frame")
    }


def test_a_runtime_from_declared_to_removed(tiny: Path) -> None:
    declared = {
        (f"tiny-frame-{v}", kind): "not installed" for v in ("1.0.0", "2.0.0") for kind in ("cpu", "cuda")
    }
    assert states() == declared
    with pytest.raises(Unavailable) as caught:
        resolve_python(RuntimeNeed("tiny-frame-1.0.0", variant="cpu"))
    assert caught.value.hint.startswith("tp runtime install tiny-frame@1.0.0 --variant cpu; ")
    assert "TUNEPORT_IMAGE_TINY_FRAME" in caught.value.hint

    done = tp("runtime", "install", "tiny-frame@1.0.0", "--variant", "cpu")
    assert done.returncode == 0, done.stderr
    assert "about 1 MB" in done.stderr
    assert done.stdout.startswith("tiny-frame-1.0.0 (cpu): ")
    assert states() == declared | {("tiny-frame-1.0.0", "cpu"): "installed"}
    python = resolve_python(RuntimeNeed("tiny-frame-1.0.0", variant="cpu"))
    subprocess.run([python, "-c", "import tinypkg"], check=True)

    again = answer("runtime", "install", "tiny-frame-1.0.0", "--variant", "cpu")
    assert (again["installed"], again["interpreter"]) == (False, str(python))
    shown = answer("runtime", "show", "tiny-frame@1.0.0")
    assert shown["variants"][0]["packages"]["tinypkg"] == "1.0.0"
    assert shown["variants"][0]["requirements"] == ["tinypkg==1.0.0"]
    assert "tinypkg==1.0.0" in tp("runtime", "show", "tiny-frame").stdout
    assert shown["host"] == ""

    assert answer("runtime", "rm", "tiny-frame@1.0.0")["removed"] == [str(python.parent.parent)]
    assert states() == declared
    assert tp("runtime", "rm", "tiny-frame@1.0.0").returncode == 4


def test_the_variant_that_fits_is_chosen_and_said(tiny: Path) -> None:
    done = tp("runtime", "install", "tiny-frame")
    if Path("/dev/nvidiactl").exists() or Path("/dev/kfd").exists():
        assert "variant cuda, because an accelerator is seen here; --variant takes also cpu" in done.stderr
    else:
        assert "variant cpu, because no accelerator is seen here; --variant takes also cuda" in done.stderr
        assert done.returncode == 0


def test_failures_are_one_message_with_the_right_code(tiny: Path) -> None:
    for args, code, says in [
        (("install", "tiny-frame@2.0.0", "--variant", "tpu"), 4, "no variant 'tpu'; it has cpu, cuda"),
        (("install", "tiny-frame@3.0.0"), 4, "1.0.0, 2.0.0"),
        (("install", "tiny-fram@1.0.0"), 4, "did you mean tiny-frame@1.0.0?"),
        (("show", "../../etc"), 4, "names no release"),
        (("rm", "../../etc"), 4, "no environment of ../../etc"),
        (("rm", ""), 4, "no environment"),
    ]:
        done = tp("runtime", *args)
        assert done.returncode == code, (args, done)
        assert says in done.stderr, (args, done.stderr)
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
    failed = answer("runtime", "install", "tiny-frame@2.0.0", "--variant", "cpu", code=6)
    assert failed["error"]["code"] == "runtime-install-failed"
    assert "a pinned package is not to be had" in failed["error"]["message"]


def test_leftovers_are_listed_and_can_be_removed(tiny: Path) -> None:
    half = tiny / "cache" / "runtimes" / "tiny-frame-1.0.0-cpu-0123456789ab"
    alien = tiny / "cache" / "runtimes" / "gone-1.0-cpu-0123456789ab"
    half.mkdir(parents=True)
    alien.mkdir()
    found = states()
    assert found["tiny-frame-1.0.0", "cpu"] == "half-built"
    assert tp("runtime", "rm", "tiny-frame@1.0.0", "--variant", "cuda").returncode == 4
    assert tp("runtime", "rm", "tiny-frame@1.0.0").returncode == 0
    assert tp("runtime", "rm", alien.name).returncode == 0
    assert not half.exists()
    assert not alien.exists()


def test_images_are_looked_up_by_runtime(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need = RuntimeNeed("tiny-frame-1.0.0")
    with pytest.raises(Unavailable, match=r"tiny-frame-1\.0\.0: neither TUNEPORT_IMAGE_TINY_FRAME nor"):
        resolve_image(need)
    monkeypatch.setenv("TUNEPORT_IMAGE_TINY_FRAME", "registry/tiny:1")
    assert resolve_image(need, "oci") == "registry/tiny:1"
    assert states()["tiny-frame-1.0.0", "oci"] == "named"
    shown = answer("runtime", "show", "tiny-frame@1.0.0")
    assert shown["images"] == [
        {
            "form": "oci",
            "reference": "registry/tiny:1",
            "origin": "TUNEPORT_IMAGE_TINY_FRAME",
            "by_digest": False,
        }
    ]
    monkeypatch.delenv("TUNEPORT_IMAGE_TINY_FRAME")
    monkeypatch.setenv("TUNEPORT_RUNTIME_REGISTRY_FILE", str(tiny / "registry.json"))
    (tiny / "registry.json").write_text(json.dumps({"runtimes": {"unknown-9": {"sif": "/images/u.sif"}}}))
    assert resolve_image(RuntimeNeed("unknown-9"), "oci", "sif") == "/images/u.sif"


def test_what_cannot_be_resolved_says_why(tiny: Path) -> None:
    assert resolve_python(RuntimeNeed("anything", host=True)) == Path(sys.executable)
    with pytest.raises(NotFound, match="no installed manifest declares the runtime 'tiny-frame-9'"):
        resolve_python(RuntimeNeed("tiny-frame-9", variant="cpu"))
    with pytest.raises(Unavailable, match="no variant for this hardware"):
        resolve_python(RuntimeNeed("tiny-frame-1.0.0"))
    release = tiny / "manifests" / "tiny-frame" / "releases" / "3.0.0.yaml"
    release.write_text("release: 3.0.0\nruntime: {id: tiny-image, oci: {}}\n")
    done = tp("runtime", "install", "tiny-frame@3.0.0")
    assert (done.returncode, "comes as an image" in done.stderr) == (4, True), done
