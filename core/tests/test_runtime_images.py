"""Where the image of a runtime is looked up, and what is refused on the way."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tuneport.errors import Invalid, Unavailable
from tuneport.experiment.site import site_document
from tuneport.runtimes import is_digest
from tuneport.runtimes.images import find_image, read_registry
from tuneport.types import RuntimeNeed

NEED = RuntimeNeed("nemo-rl-0.5.0")
SHA = "sha256:" + "a" * 64


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for key in list(os.environ):
        if key.startswith(("TUNEPORT_", "TUNEPLANE_", "FORGE_")):
            monkeypatch.delenv(key)
    monkeypatch.setenv("TUNEPORT_SITE_FILE", str(tmp_path / "site.yaml"))
    (tmp_path / "site.yaml").write_text("{}\n")
    site_document.cache_clear()


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "runtimes.yaml"
    monkeypatch.setenv("TUNEPORT_RUNTIME_REGISTRY_FILE", str(path))
    return path


def test_no_runtime_names_id_variable_and_file_but_no_method() -> None:
    with pytest.raises(Unavailable) as caught:
        find_image(NEED, "nemo-rl")
    said = caught.value.message
    assert "nemo-rl-0.5.0" in said
    assert "TUNEPORT_IMAGE_NEMO_RL" in said
    assert "TUNEPORT_RUNTIME_REGISTRY_FILE" in said
    assert "grpo" not in said
    assert caught.value.exit_code == 6


@pytest.mark.parametrize("prefix", ["TUNEPORT_", "TUNEPLANE_", "FORGE_"])
def test_the_variable_wins_over_the_registry(
    prefix: str, registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.write_text("runtimes: {nemo-rl-0.5.0: {oci: registry/other}}\n")
    assert find_image(NEED, "nemo-rl").reference == "registry/other"
    monkeypatch.setenv(f"{prefix}IMAGE_NEMO_RL", "registry/nemo:1")
    found = find_image(NEED, "nemo-rl")
    assert (found.form, found.reference, found.origin) == ("oci", "registry/nemo:1", "TUNEPORT_IMAGE_NEMO_RL")


def test_the_request_wins_over_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEPORT_IMAGE_NEMO_RL", "registry/nemo:1")
    found = find_image(RuntimeNeed(NEED.id, image="mine:2"), "nemo-rl")
    assert (found.reference, found.origin) == ("mine:2", "--image")


def test_the_registry_gives_the_form_that_is_asked_for(registry: Path) -> None:
    entry = {"oci": "registry/nemo:1", "sif": "/images/nemo.sif", "sqsh": "/images/nemo.sqsh", "digest": SHA}
    registry.write_text(json.dumps({"runtimes": {NEED.id: entry}}))
    assert find_image(NEED, "nemo-rl").reference == f"registry/nemo:1@{SHA}"
    assert find_image(NEED, "nemo-rl", ("sif",)).reference == "/images/nemo.sif"
    found = find_image(NEED, "nemo-rl", ("sqsh", "oci"))
    assert (found.form, found.digest) == ("sqsh", SHA)


def test_the_site_file_may_name_the_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "of-the-site.yaml"
    path.write_text("runtimes: {nemo-rl-0.5.0: {sif: /images/nemo.sif}}\n")
    (tmp_path / "site.yaml").write_text(json.dumps({"runtimes": {"registry": str(path)}}))
    assert find_image(NEED, "nemo-rl").reference == "/images/nemo.sif"


def test_a_release_may_name_its_own_image_last(registry: Path) -> None:
    spec = {"runtime": {"id": NEED.id, "oci": {"image": "upstream/nemo:1", "digest": SHA}}}
    registry.write_text("runtimes: {}\n")
    assert find_image(NEED, "nemo-rl", spec=spec).reference == f"upstream/nemo:1@{SHA}"
    registry.write_text(f"runtimes: {{{NEED.id}: {{oci: mirror/nemo:1}}}}\n")
    assert find_image(NEED, "nemo-rl", spec=spec).reference == "mirror/nemo:1"


def test_an_image_of_the_wrong_form_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEPORT_IMAGE_NEMO_RL", "/images/nemo.sif")
    with pytest.raises(Unavailable, match="is a sif image, not oci"):
        find_image(NEED, "nemo-rl", ("oci",))


@pytest.mark.parametrize("reference", ["--privileged", "a b", "x\ny", "a\x00"])
def test_what_is_no_reference_is_refused(reference: str) -> None:
    with pytest.raises(Invalid) as caught:
        find_image(RuntimeNeed(NEED.id, image=reference), "nemo-rl")
    assert caught.value.code == "runtime-image-reference"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "no mapping `runtimes`"),
        ("runtimes: 3", "no mapping `runtimes`"),
        ("runtimes: {}\nimages: {}", "unknown key `images`"),
        ("runtimes: {a: {ocl: x}}", "unknown key `ocl`"),
        ("runtimes: {a: {}}", "not a mapping"),
        ("runtimes: {a: {sif: images/a.sif}}", "not an absolute path"),
        ("runtimes: {a: {oci: [x]}}", "not an image reference"),
        ("runtimes: {a: {oci: --privileged}}", "not an image reference"),
        ("runtimes: {a: {oci: x, digest: latest}}", "sha256:"),
        ("runtimes: {a: {oci: x}, a: {oci: y}}", "twice"),
        ("runtimes: !!python/object/apply:os.system ['true']", "not plain data"),
        ("runtimes: {a: [", "not YAML"),
    ],
)
def test_a_malformed_registry_says_all_with_lines(registry: Path, text: str, says: str) -> None:
    registry.write_text(text)
    with pytest.raises(Invalid) as caught:
        read_registry(registry)
    findings = caught.value.findings
    assert any(says in finding.message for finding in findings), findings
    assert all(finding.file == str(registry) and finding.line for finding in findings)


def test_a_huge_registry_is_refused(registry: Path) -> None:
    registry.write_text("runtimes: {a: {oci: " + "x" * 2_000_000 + "}}")
    with pytest.raises(Invalid, match="larger than 1024 KiB"):
        find_image(NEED, "nemo-rl")


def test_a_missing_registry_names_it_and_the_runtime(registry: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        find_image(NEED, "nemo-rl")
    assert str(registry) in caught.value.message
    assert "nemo-rl-0.5.0" in caught.value.hint


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (f"registry/x@{SHA}", True),
        (f"registry:5000/x:tag@{SHA}", True),
        ("registry/x:tag", False),
        ("registry/x@sha256:abc", False),
        (SHA, False),
        ("", False),
    ],
)
def test_only_a_digest_is_a_digest(reference: str, expected: bool) -> None:
    assert is_digest(reference) is expected
