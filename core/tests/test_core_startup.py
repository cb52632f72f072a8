"""What a command imports, and completion: both happen before anybody has waited for anything."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from .core_support import FLAGS, Shop, open_shop


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return open_shop(tmp_path_factory.mktemp("cli"))


# --- what is imported

HEAVY = {
    *(
        "jsonschema",
        "hydra",
        "omegaconf",
        "torch",
        "sqlite3",
        "rich",
        "ruamel",
        "numpy",
        "tensorboard",
        "pydantic",
    ),
    *(
        "ray",
        "requests",
        "urllib.request",
        "http.client",
        "asyncio",
        "multiprocessing",
        "unittest",
        "pytest",
        "typer",
    ),
    *(
        "packaging.requirements",
        "difflib",
        "cel.cli",
        "prompt_toolkit",
        "importlib.metadata",
        "email",
        "logging",
    ),
}


def imported(shop: Shop, *args: str, env: dict[str, str] | None = None) -> tuple[set[str], Any]:
    """What a command imports that finds its index made."""
    shop.run(*args, env=env)
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "tuneport", *args],
        cwd=shop.root,
        env={**shop.env, **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}, done


def heavy(found: set[str], *forbidden: str) -> set[str]:
    """What of `HEAVY` and of these was imported, and is not imported by an interpreter that does nothing."""
    empty = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", ""], capture_output=True, text=True
    ).stderr
    bad = HEAVY.union(forbidden)
    return {
        name for name in found if (name in bad or name.partition(".")[0] in bad) and f" {name}\n" not in empty
    }


def test_help_and_version_import_nothing_but_the_table(shop: Shop) -> None:
    for args in (["--help"], ["--version"]):
        found, done = imported(shop, *args)
        assert done.returncode == 0
        assert not heavy(found, "yaml", "jsonschema_rs", "pluggy", "json", "click", "dataclasses", "inspect")


def test_listing_methods_reads_the_index_and_nothing_else(shop: Shop) -> None:
    for args in (["methods"], ["methods", "acme"]):
        found, done = imported(shop, *args)
        assert done.returncode == 0
        assert not heavy(found, "yaml", "jsonschema_rs", "pluggy", "cel", "rfc8785")


def test_validate_and_plan_import_no_framework_and_no_second_engine(shop: Shop) -> None:
    for verb in ("validate", "plan", "explain"):
        found, done = imported(shop, verb, "good", *FLAGS)
        assert done.returncode == 0
        assert not heavy(found) - {"logging"}
        assert "tuneport_trl" not in found and "tuneport.fleets.local" not in found
        assert "tuneport.jobs.store" not in found


# --- completion


def complete(shop: Shop, words: str, cwd: Path | None = None, shell: str = "bash") -> list[str]:
    """What the shell is offered for the last word of `words`."""
    env = {
        "_TP_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")),
    }  # fmt: skip
    done = shop.run(env=env, cwd=cwd)
    assert done.stderr == ""
    assert done.returncode == 0
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_completion_offers_commands_methods_experiments_and_parameters(shop: Shop, tmp_path: Path) -> None:
    assert complete(shop, "tp val") == ["validate"]
    assert complete(shop, "tp methods acme/t") == ["acme/tune"]
    assert set(complete(shop, "tp new x --method acme/")) == {
        "acme/tune",
        "acme/align",
        "acme/script",
        "acme/shell",
    }
    assert complete(shop, "tp methods nosuch/") == []
    assert complete(shop, "tp validate goo") == ["good"]
    assert complete(shop, "tp explain ba") == ["bad"]
    assert complete(shop, "tp new x --from goo") == ["good"]
    assert complete(shop, "tp validate good --set lea") == ["learning_rate="]
    assert complete(shop, "tp validate nosuch --set lea") == []
    assert complete(shop, "tp validate good --prof") == ["--profile"]
    assert complete(shop, "tp validate x", cwd=tmp_path) == [], "outside of a project"


def test_completion_is_silent_where_things_are_broken(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "tuneport.yaml").write_bytes(b"\xff" * 10)
    (tmp_path / "experiments" / "e").mkdir(parents=True)
    assert complete(shop, "tp validate e", cwd=tmp_path) == []
    assert complete(shop, "tp validate e --set x", cwd=tmp_path) == []
    broken = tmp_path / "manifests" / "acme" / "methods"
    broken.mkdir(parents=True)
    (broken / "tune.yaml").write_text("[")
    shop_env = dict(shop.env)
    shop.env["TUNEPORT_MANIFEST_PATH"] = str(tmp_path / "manifests")
    try:
        assert complete(shop, "tp methods acme/t") in ([], ["acme/tune"])
    finally:
        shop.env.clear()
        shop.env.update(shop_env)


def test_completion_imports_nothing_heavy(shop: Shop) -> None:
    for words in ("tp val", "tp methods acme/t", "tp validate goo"):
        env = {"_TP_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        found, done = imported(shop, env=env)
        assert done.returncode == 0
        assert not heavy(found, "jsonschema_rs", "pluggy", "cel"), words


def test_completion_scripts_are_printed_for_three_shells(shop: Shop) -> None:
    began = time.monotonic()
    for shell in ("bash", "zsh", "fish"):
        done = shop.run("completion", shell)
        assert done.returncode == 0
        assert "_TP_COMPLETE" in done.stdout
    assert time.monotonic() - began < 30
