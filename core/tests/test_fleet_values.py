"""Any text a user may give reaches the process exactly: as argument, variable, and value in a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from tuneport.fleets.files import render
from tuneport.types import FileSpec

sys.path.insert(0, str(Path(__file__).parent))
from jobs_support import command, control, own_state, plan


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from own_state(tmp_path, monkeypatch)


NASTY = (
    "",
    " ",
    "--flag",
    "-",
    "'",
    '"',
    "$(touch hacked)",
    "`id`",
    "${HOME}",
    "a\nb\r\nc\t",
    "\\",
    "\\n",
    "*?[a]",
    "~",
    "#x",
    "%s {x} {{",
    "!!python/object:os.system",
    "&a *a",
    "- x",
    "? x: y",
    "null",
    "~",
    "yes",
    "No",
    "1e5",
    "1_000",
    "0x10",
    "0o17",
    "1:30",
    "12:30:45",
    ".inf",
    "NaN",
    "2026-01-01",
    "=",
    "<<",
    "\x01\x1b[31m",
    "\x7f\x85\xa0\u2028\u2029\ufeff\ufffe",
    "é漢字🎉\U0010ffff",
    "e\u0301",
    "\u202eevil",
    "x" * 5000,
)
TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60
) | st.sampled_from(NASTY)
TREE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
READ = """
import json, os, sys
out = os.environ["TUNEPORT_OUTPUT_DIR"]
number = int(os.environ["TUNEPORT_TEST_COUNT"])
found = {
    "argv": sys.argv[1:],
    "env": [os.environ["TUNEPORT_TEST_V%d" % i] for i in range(number)],
    "json": json.load(open("values.json", encoding="utf-8")),
    "texts": [open("t%d.txt" % i, encoding="utf-8", newline="").read() for i in range(number)],
}
json.dump(found, open(out + "/found.json", "w"))
"""


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(TEXT, min_size=30, max_size=60))
def test_every_value_arrives_exactly_through_a_real_process(values: list[str]) -> None:
    values = [*values, *NASTY]
    files = {f"t{i}.txt": FileSpec("text", value) for i, value in enumerate(values)}
    files["values.json"] = FileSpec("json", {"list": values, "map": {value: value for value in values}})
    files["values.yaml"] = FileSpec("yaml", {"list": values, "map": {value: value for value in values}})
    env = {f"TUNEPORT_TEST_V{i}": value for i, value in enumerate(values)}
    env["TUNEPORT_TEST_COUNT"] = str(len(values))
    jobs = control()
    job = jobs.submit(
        plan(command(sys.executable, "-S", "-X", "utf8", "-c", READ, *values, env=env, files=files))
    )
    assert jobs.wait(job.id).state == "SUCCEEDED", [line.text for line in jobs.logs(job.id)]
    output = jobs.output_dir(job)
    found = json.loads((output / "found.json").read_text())
    assert found["argv"] == values
    assert found["env"] == values
    assert found["texts"] == values
    expected = {"list": values, "map": {value: value for value in values}}
    assert found["json"] == expected
    assert yaml.safe_load((output.parent / "work" / "values.yaml").read_bytes()) == expected
    assert sorted(path.name for path in output.iterdir()) == ["found.json"]


@settings(max_examples=300, deadline=None)
@given(TREE)
def test_yaml_files_mean_the_same_to_old_and_new_readers(tree: object) -> None:
    content = render(FileSpec("yaml", tree))
    assert same(yaml.safe_load(content), tree)
    assert same(YAML(typ="safe", pure=True).load(content.decode()), tree)


@settings(max_examples=200, deadline=None)
@given(TREE)
def test_json_files_hold_exactly_the_tree(tree: object) -> None:
    assert same(json.loads(render(FileSpec("json", tree))), tree)


def same(left: object, right: object) -> bool:
    """Equal in value and type: 1, 1.0 and True are three things."""
    # A reader's own class counts by what it derives from.
    if not isinstance(left, type(right)) or isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(right, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in right)
    if isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)
