"""Which variant fits which hardware, and which requirement sets are refused."""

from __future__ import annotations

import pytest
from tuneport.errors import Invalid, NotFound
from tuneport.runtimes import choose_variant
from tuneport.runtimes.interpreters import find_interpreter
from tuneport.runtimes.variants import pick, variants

Spec = dict[str, object]


def spec(**declared: object) -> Spec:
    bodies = {name: {"requirements": ["a==1"], "series": series} for name, series in declared.items()}
    return {"release": "1.0", "runtime": {"id": "tiny-1.0", "venv": {"variants": bodies}}}


def one(requirement: str, **more: object) -> Spec:
    body = {"series": ["*"], "requirements": [requirement], **more}
    return {"release": "1.0", "runtime": {"id": "tiny-1.0", "venv": {"variants": {"cpu": body}}}}


@pytest.mark.parametrize(
    ("declared", "series", "chosen"),
    [
        ({"cpu": ["cpu"], "cuda": ["*"]}, "cpu", "cpu"),
        ({"cpu": ["cpu"], "cuda": ["*"]}, "h200", "cuda"),
        ({"cuda": ["*"], "cpu": ["cpu"]}, "cpu", "cpu"),
        ({"cuda": ["*"], "rocm": ["mi300x", "mi355x"]}, "mi355x", "rocm"),
        ({"any": ["*"]}, "cpu", "any"),
        ({"cuda": ["h100", "h200"]}, "cpu", ""),
        ({}, "cpu", ""),
    ],
)
def test_the_variant_follows_the_hardware(declared: dict[str, object], series: str, chosen: str) -> None:
    assert choose_variant(spec(**declared), series) == chosen


@pytest.mark.parametrize("broken", [{}, {"runtime": None}, {"runtime": {"venv": {"variants": [1]}}}])
def test_a_manifest_without_variants_has_none(broken: Spec) -> None:
    assert choose_variant(broken, "cpu") == ""
    assert variants(broken, "tiny") == {}


@pytest.mark.parametrize(
    "requirement",
    [
        "torch",
        "torch>=2",
        "torch==2.*",
        "torch==2.1,<3",
        "-r /etc/passwd",
        "--index-url=http://127.0.0.1/simple",
        "torch==2.1 --hash=sha256:0",
        "torch==2.1\n-e .",
        "torch==2.1\x00",
        "../somewhere",
        "/somewhere",
        "torch @ http://127.0.0.1/torch.whl",
        "torch @ file:///tmp/torch.whl#sha256=abc",
        "",
        "$(touch x)",
    ],
)
def test_what_is_not_one_pinned_package_is_refused(requirement: str) -> None:
    with pytest.raises(Invalid) as caught:
        variants(one(requirement), "tiny")
    assert caught.value.code == "runtime-requirement"
    assert "tiny-1.0" in caught.value.message


@pytest.mark.parametrize(
    "requirement",
    [
        "torch==2.13.0",
        "lm_eval[hf]==0.4.13",
        "torch==2.13.0+cpu; sys_platform == 'linux'",
        "torch===2.13.0",
        "torch @ file:///tmp/torch.whl#sha256=" + "0" * 64,
    ],
)
def test_pinned_packages_are_taken(requirement: str) -> None:
    assert variants(one(requirement), "tiny")["cpu"].requirements == (requirement,)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"pip_args": ["--index-url=http://127.0.0.1"]}, "runtime-pip-args"),
        ({"pip_args": ["--target", "/tmp"]}, "runtime-pip-args"),
        ({"check": ["os; print(1)"]}, "runtime-check-name"),
    ],
)
def test_a_manifest_cannot_steer_pip_or_run_code(more: Spec, code: str) -> None:
    with pytest.raises(Invalid) as caught:
        variants(one("a==1", **more), "tiny")
    assert caught.value.code == code


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a" * 200, "x\n"])
def test_names_that_cannot_be_folders_are_refused(name: str) -> None:
    broken = one("a==1")
    broken["runtime"]["id"] = name  # type: ignore[index]
    with pytest.raises(Invalid) as caught:
        variants(broken, "tiny")
    assert caught.value.code == "runtime-name"


def test_an_unknown_variant_names_those_that_exist() -> None:
    with pytest.raises(NotFound, match="no variant 'tpu'; it has cpu, cuda"):
        pick(spec(cpu=["cpu"], cuda=["*"]), "tiny", "tpu")
    with pytest.raises(NotFound, match="comes as an image"):
        pick({"release": "1.0", "runtime": {"id": "tiny-1.0", "oci": {}}}, "tiny", "cpu")


def test_a_specifier_that_is_none_is_invalid() -> None:
    with pytest.raises(Invalid, match="not a version specifier"):
        find_interpreter("three", "tiny-1.0 (cpu)")
