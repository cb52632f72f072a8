"""What methods tell about themselves: complete and well formed for all, and true of the releases."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tuneport.registry import catalog, schemas

sys.path.insert(0, str(Path(__file__).parent))
from hydra_reference import wheel
from test_verl_rules_sources import symbols, symbols_of

TP = [sys.executable, "-m", "tuneport"]
METHODS = [row[0] for row in catalog.methods()]
VERL = [method for method in METHODS if method.startswith("verl/")]
# arXiv numbers papers within a month with four digits until 2014 and with five since.
DIGITS = {True: 4, False: 5}


def told(method: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = catalog.method(method).spec.get("explain", {})
    return found


def papers(method: str) -> Iterator[Mapping[str, Any]]:
    spec = catalog.method(method).spec
    yield from spec.get("papers", ())
    yield from catalog.framework_spec(method.partition("/")[0]).get("papers", ())
    for values in told(method).get("options", {}).values():
        for item in values.values():
            yield from item.get("papers", ())


def lines(method: str) -> Iterator[str]:
    yield from told(method).get("formula", ())
    for values in told(method).get("options", {}).values():
        for item in values.values():
            yield from item.get("formula", ())


PARTS = ("problem", "words", "formula", "symbols", "watch", "failures", "next")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_tells_everything(method: str) -> None:
    assert not [name for name in PARTS if not told(method).get(name)]


def test_every_method_of_verl_has_papers_and_watches_its_own_metrics() -> None:
    assert len(VERL) == 9
    for method in VERL:
        assert catalog.method(method).spec.get("papers"), method
        primary, aliases = catalog.metric_aliases(method)
        assert set(told(method)["watch"]) & set(primary), method
        assert not set(told(method)["watch"]) - set(primary) - set(aliases), method


@pytest.mark.parametrize("method", METHODS)
def test_what_is_told_is_well_formed(method: str) -> None:
    for name in told(method).get("next", ()):
        assert name in METHODS and name != method
    for paper in papers(method):
        if "arxiv" in paper:
            month, _, number = paper["arxiv"].partition(".")
            assert len(number) == DIGITS[month < "1501"], paper
            assert 1 <= int(month[2:]) <= 12 and 2000 + int(month[:2]) == paper["year"], paper
    for line in lines(method):
        assert line.isascii() and line == line.strip() and line.count("(") == line.count(")"), line
    params = catalog.method(method).params
    for name, values in told(method).get("options", {}).items():
        for value in values if name in params else ():
            schema = dict(params[name].schema)
            given = value if not list(schemas.problems(value, schema)) else json.loads(value)
            assert not list(schemas.problems(given, schema)), f"{name}: {value}"


def test_one_paper_has_one_title() -> None:
    known = {(paper["arxiv"], paper["title"], paper["year"]) for one in METHODS for paper in papers(one)}
    numbers = [number for number, _, _ in known]
    assert len(numbers) == len(set(numbers)) > 15


def test_every_loss_of_verl_is_explained() -> None:
    for method in VERL:
        for name in ("policy_loss_mode", "loss_agg_mode", "rollout_is"):
            param = catalog.method(method).params.get(name)
            if param is not None and "enum" in param.schema:
                assert set(told(method)["options"][name]) == set(param.schema["enum"]), f"{method} {name}"


def test_the_first_links_lead_through_all_methods_of_verl() -> None:
    """From demonstrations to rewards, then without a critic, then the recipes: `next` is a course."""
    path = ["verl/sft"]
    while (following := told(path[-1])["next"][0]) not in path:
        path.append(following)
    assert sorted(path) == sorted(VERL)


@pytest.mark.parametrize("method", ["custom/custom", "pytorch/image-classification"])
def test_a_script_of_the_template_has_the_symbols_it_is_said_to_have(method: str) -> None:
    found = list(symbols_of(told(method)))
    assert found
    for item in found:
        path = catalog.templates(method)[item["file"]]
        assert item["symbol"] in symbols(path)


@pytest.mark.parametrize("method", METHODS)
def test_it_is_printed_whole(method: str) -> None:
    done = subprocess.run([*TP, "explain", method], capture_output=True, text=True, check=True)
    shown = " ".join(done.stdout.split())
    for paper in catalog.method(method).spec.get("papers", ()):
        assert paper["title"] in shown and str(paper["year"]) in shown
    for text in [told(method).get("words", ""), *told(method).get("formula", ())]:
        assert " ".join(text.split()) in shown
    for item in told(method).get("symbols", ()):
        assert f"{item['file']}, {item['symbol']}" in shown
    for name in told(method).get("next", ()):
        assert f"tp explain {name}" in shown


def test_the_values_of_a_parameter_are_explained() -> None:
    command = [*TP, "explain", "verl/grpo", "policy_loss_mode"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "compute_policy_loss_gspo" in shown and "arXiv:2507.18071" in shown
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    document = json.loads(done.stdout)
    assert set(document["options"]) == set(document["schema"]["enum"])
    wrong = subprocess.run([*command[:-1], "policy_loss", "--json"], capture_output=True, text=True)
    assert wrong.returncode == 4
    assert json.loads(wrong.stdout)["error"]["code"] == "param-unknown"
    assert "policy_loss_mode" in json.loads(wrong.stdout)["error"]["hint"]


@pytest.mark.upstream
@pytest.mark.parametrize(
    ("method", "release"),
    [
        (method, release)
        for method in [*VERL, "trl/sft"]
        for release in catalog.releases(method.split("/")[0])
    ],
)
def test_every_symbol_is_in_the_release(method: str, release: str) -> None:
    _, tree = wheel(method.partition("/")[0], release)
    found = list(symbols_of(told(method)))
    assert len(found) >= 2
    for item in found:
        assert item["symbol"] in symbols(tree / item["file"]), item


@pytest.mark.upstream
@pytest.mark.parametrize("release", catalog.releases("verl"))
def test_the_losses_are_those_that_the_release_registers(release: str) -> None:
    """Each explained policy loss names the function registered under its name, and none is left out."""
    _, tree = wheel("verl", release)
    module = ast.parse((tree / "verl/trainer/ppo/core_algos.py").read_text("utf-8"))
    registered = {
        call.args[0].value: node.name
        for node in module.body
        if isinstance(node, ast.FunctionDef)
        for call in node.decorator_list
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "register_policy_loss"
        if isinstance(call.args[0], ast.Constant)
    }
    options = told("verl/grpo")["options"]["policy_loss_mode"]
    assert {name: item["symbols"][0]["symbol"] for name, item in options.items()} == registered
