"""The pages name everything there is: verbs, flags, settings, schema keys, hooks, states, links."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import tuneport
import yaml
from tuneport import api, dialects, errors, hookspec, report, types
from tuneport.checks import cel
from tuneport.cli.group import tp
from tuneport.cli.main import COMMANDS, help_text
from tuneport.experiment.values import describe
from tuneport.fleets.protocol import Fleet, State
from tuneport.jobs.manager import Job
from tuneport.registry import catalog, schemas, vocabulary
from tuneport.workflow import Report

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@cache
def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def section(text: str, heading: str) -> str:
    """From a heading to the next one of its level or above."""
    level = len(heading) - len(heading.lstrip("#"))
    found = re.search(rf"^{re.escape(heading)}$\n(.*?)(?=^#{{1,{level}}} |\Z)", text, re.M | re.S)
    assert found, f"no heading {heading!r}"
    return found[1]


def verbs() -> Iterator[tuple[str, click.Command]]:
    """Every command with its path: `tp job ls`."""

    def walk(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
        yield path, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                yield from walk(f"{path} {name}", below)

    for name in COMMANDS:
        command = tp.get_command(click.Context(tp), name)
        assert command is not None
        yield from walk(f"tp {name}", command)


def flags_of(command: click.Command) -> list[str]:
    return [
        flag
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for flag in (*parameter.opts, *parameter.secondary_opts)
        if flag != "--json"
    ]


REQUEST = flags_of(dict(verbs())["tp validate"])


def test_every_verb_and_flag_is_documented() -> None:
    text = page("docs/command-line.md")
    shared = section(text, "## Request flags")
    assert not [flag for flag in REQUEST if f"`{flag}" not in shared]
    missing = []
    for path, command in verbs():
        level = "##" if path.count(" ") == 1 else "###"
        body = section(text, f"{level} {path}")
        takes_request = set(REQUEST) <= set(flags_of(command))
        if takes_request and "request flags" not in body:
            missing.append(f"{path}: request flags")
        own = [flag for flag in flags_of(command) if not (takes_request and flag in REQUEST)]
        missing += [f"{path} {flag}" for flag in own if f"`{flag}" not in body]
        if not isinstance(command, click.Group) and "JSON" not in body:
            missing.append(f"{path}: the shape of its JSON")
    assert not missing


def test_no_verb_or_flag_is_left_over() -> None:
    text = page("docs/command-line.md")
    known = dict(verbs())
    shown = re.findall(r"^##+ (tp [a-z ]+)$", text, re.M)
    assert sorted(shown) == sorted(known)
    for path in shown:
        body = section(text, f"{'##' if path.count(' ') == 1 else '###'} {path}")
        body = body.split("\n### ")[0]
        rows = re.findall(r"^\| (`--.*?) \|", body, re.M)
        named = [flag for row in rows for flag in re.findall(r"`(--[a-z-]+)", row)]
        assert not [flag for flag in named if flag not in flags_of(known[path])], path


def test_help_names_every_command_and_its_metavars_are_explained() -> None:
    listed = re.findall(r"^  ([a-z]+) ", help_text(), re.M)
    assert listed == list(COMMANDS)
    silent = [
        f"{path} {parameter.opts}"
        for path, command in verbs()
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.help
    ]
    assert not silent


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A project with one job that ran, and the environment it lives in."""
    folder = tmp_path_factory.mktemp("docs")
    env = {name: value for name, value in os.environ.items() if not name.startswith(PREFIXES)}
    env |= {"HOME": str(folder), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        env.pop(name, None)
    (folder / "data").mkdir()
    (folder / "data/a.txt").write_text("a\n")
    return folder, env


PREFIXES = ("TUNEPORT_", "TUNEPLANE_", "FORGE_")


def run_json(scratch: tuple[Path, dict[str, str]], command: str) -> dict[str, Any]:
    folder, env = scratch
    where = folder / "demo" if (folder / "demo").exists() else folder
    words = command.split()
    words.insert(words.index("--") if "--" in words else len(words), "--json")
    done = subprocess.run(words, cwd=where, env=env, capture_output=True, text=True, timeout=60)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def documented_keys(path: str, which: int = 0) -> list[str]:
    """The top-level keys that the page gives for a verb's JSON."""
    level = "##" if path.count(" ") == 1 else "###"
    body = section(page("docs/command-line.md"), f"{level} {path}").split("\n### ")[0]
    shapes = [part for part in re.split(r"\n\s*\n", body) if part.startswith("JSON")]
    shape = shapes[which].partition(":")[2]
    shape = re.sub(r"\([^()]*(\([^()]*\)[^()]*)*\)", "", shape)  # what is inside each of them
    return re.findall(r"`([a-z_]+)`", shape)


def test_json_has_the_documented_keys(scratch: tuple[Path, dict[str, str]]) -> None:
    wrong = []

    def hold(path: str, command: str, which: int = 0, without: set[str] = frozenset()) -> dict[str, Any]:  # type: ignore[assignment]
        document = run_json(scratch, command)
        wanted = set(documented_keys(path, which)) - set(without)
        if set(document) != wanted:
            wrong.append(f"{command}: {sorted(document)}, documented {sorted(wanted)}")
        return document

    hold("tp init", "tp init demo")
    hold("tp new", "tp new one --method custom/custom")
    hold("tp ls", "tp ls")
    hold("tp methods", "tp methods")
    hold("tp methods", "tp methods trl/sft", 1)
    hold("tp plugins", "tp plugins --no-load")
    hold("tp schema", "tp schema")
    hold("tp validate", "tp validate one --profile cpu:1")
    hold("tp check", "tp check -- python -m verl.trainer.main_eval data.path=x")
    hold("tp plan", "tp plan one --profile cpu:1")
    hold("tp explain", "tp explain one")
    hold("tp explain", "tp explain trl/sft", 1)
    hold("tp explain", "tp explain trl/sft epochs", 2)
    hold("tp submit", "tp submit one --profile cpu:1 --dry-run", 1)
    job = hold("tp submit", "tp submit one --profile cpu:1 --follow", 0, {"request"})["job"]
    hold("tp job ls", "tp job ls")
    hold("tp job status", f"tp job status {job}")
    hold("tp job logs", f"tp job logs {job}")
    hold("tp job metrics", f"tp job metrics {job}")
    hold("tp job wait", f"tp job wait {job}")
    hold("tp job stop", f"tp job stop {job}")
    hold("tp job retry", f"tp job retry {job}")
    hold("tp recipe status", "tp recipe status one")
    hold("tp recipe upgrade", "tp recipe upgrade one")
    hold("tp runtime ls", "tp runtime ls")
    hold("tp runtime show", "tp runtime show custom")
    hold("tp dataset push", f"tp dataset push a/b v1 {scratch[0] / 'data'}")
    hold("tp dataset ls", "tp dataset ls")
    hold("tp dataset show", "tp dataset show a/b@v1")
    hold("tp dataset verify", "tp dataset verify a/b@v1")
    script = "import os; open(os.environ['TUNEPORT_OUTPUT_DIR'] + '/train.jsonl', 'w').write('{}\\n')"
    (scratch[0] / "demo/experiments/one/prepare_it.py").write_text(script)
    (scratch[0] / "demo/experiments/one/eval.py").write_text("pass\n")
    hold("tp eval", "tp eval one --profile cpu:1 --dry-run", 1)
    hold("tp new", "tp new two --method verl/grpo")
    exported = f"tp export two --checkpoint {scratch[0] / 'data'} --fleet local --dry-run"
    assert hold("tp eval", exported, 1)["request"]["plan"]["commands"][0]["role"] == "export"
    prepare = f"tp dataset prepare one --python {sys.executable}"
    hold("tp dataset prepare", f"{prepare} --out made", 0, {"reference"})
    hold("tp dataset prepare", f"{prepare} --as a/made v1")
    hold("tp fleet ls", "tp fleet ls")
    hold("tp fleet check", "tp fleet check")
    hold("tp completion", "tp completion bash")
    run_json(scratch, f"tp job stop {job}")
    assert not wrong, "\n".join(wrong)


def test_exit_codes_are_documented() -> None:
    table = section(page("docs/command-line.md"), "## Exit codes")
    classes = [item for item in vars(errors).values() if inspect.isclass(item)]
    codes = {item.exit_code for item in classes if issubclass(item, errors.TuneportError)} | {0, 130}
    assert codes == {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.M)}
    shown = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", page("docs/python-api.md"), re.M))
    actual = {
        item.__name__: str(item.exit_code)
        for item in classes
        if issubclass(item, errors.TuneportError) and item is not errors.TuneportError
    }
    assert shown == actual


def test_commands_in_help_texts_run(scratch: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """What a help text shows as an example is a command line that works as it stands."""
    _, env = scratch
    texts = [help_text(), *(command.help or "" for _, command in verbs())]
    shown = {
        match.strip()
        for text in texts
        for match in re.findall(r"(?:Start with: |for example: )(.+?)\.?$", text, re.M)
    }
    assert shown == {"tp init demo && cd demo && tp methods", 'eval "$(tp completion bash)"'}
    for command in sorted(shown):
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}"


def test_every_setting_is_documented() -> None:
    known: set[str] = set()
    for path in [*ROOT.glob("core/src/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]:
        text = path.read_text("utf-8")
        known |= set(re.findall(r"TUNEPORT_[A-Z][A-Z_]*[A-Z]", text))
        known |= {f"TUNEPORT_{name}" for name in re.findall(r"\bsetting\(\"([A-Z_]+)\"\)", text)}
    internal = {name for name in known if "_TEST_" in name}
    # Between our own processes, and the names of families that are documented as such.
    marks = {
        "TUNEPORT_JOB_KEY",
        "TUNEPORT_SUPERVISOR",
        "TUNEPORT_TRUST_REMOTE_CODE",
        "TUNEPORT_BACKEND",
        "TUNEPORT_ROOT",
    }
    families = {"TUNEPORT_CLUSTER", "TUNEPORT_IMAGE", "TUNEPORT_IMAGE_TRL"}
    text = "".join(page(f"docs/{name}.md") for name in ("command-line", "jobs"))
    missing = sorted(known - internal - marks - families - set(re.findall(r"TUNEPORT_[A-Z_]*[A-Z]", text)))
    assert not missing
    for prefix in PREFIXES:
        assert f"`{prefix}`" in page("docs/command-line.md")


WHERE = {
    "docs/manifests.md": ("framework", "release", "method", "rules", "vocabulary", "surface"),
    "docs/experiments.md": ("job", "project", "site", "resources", "facts"),
    "docs/command-line.md": ("plan", "findings", "upstream-diff"),
    "docs/concepts.md": ("lock",),
    "docs/judge.md": ("judge", "rubric"),
    "docs/evaluation.md": ("scores",),
    "docs/fleets/index.md": ("fleets",),
}


def properties(schema: Any) -> Iterator[str]:
    """Every property name that a schema declares, at any depth."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "properties" and isinstance(value, dict):
                yield from value
            yield from properties(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from properties(item)


def test_every_schema_key_is_documented() -> None:
    assert sorted(name for names in WHERE.values() for name in names) == schemas.names()
    missing = []
    for where, names in WHERE.items():
        words = set(re.findall(r"[A-Za-z_][A-Za-z0-9_$-]*", page(where)))
        for name in names:
            missing += [f"{where}: {name}.{key}" for key in set(properties(schemas.schema(name))) - words]
    assert not sorted(missing)


def test_words_of_the_contract_are_documented() -> None:
    concepts, manifests, jobs = (page(f"docs/{name}.md") for name in ("concepts", "manifests", "jobs"))
    assert not [ref for ref in types.REFS if f"`{ref}`" not in concepts]
    assert not [name for name in cel.VARIABLES if f"| `{name}` |" not in manifests]
    assert not [name for name in dialects.NAMES if f"| `{name}` |" not in manifests]
    method = schemas.schema("method")["properties"]
    launchers = method["launch"]["properties"]["launcher"]["anyOf"][0]["enum"]
    for word in [*method["starts_from"]["items"]["enum"], *launchers]:
        assert f"`{word}`" in manifests, word
    for bound in (cel.MAX_SOURCE, cel.MAX_BRACKETS, cel.MAX_ITERATIONS):
        assert f"{bound:,}" in manifests, bound
    assert re.findall(r"^\| `([A-Z]+)` \|", section(jobs, "## States"), re.M) == list(State.__args__)  # type: ignore[attr-defined]
    assert not [name for name in report.__all__ if name not in page("docs/report.md")]


def test_hook_signatures_equal_the_code() -> None:
    body = section(page("docs/plugins.md"), "## The five hooks")
    block = re.search(r"```py\n(.*?)```", body, re.S)
    assert block
    shown = {}
    for node in ast.parse(block[1]).body:
        assert isinstance(node, ast.FunctionDef)
        assert node.returns is not None
        shown[node.name] = (ast.unparse(node.args), ast.unparse(node.returns))
    source = ast.parse(inspect.getsource(hookspec))
    actual = {}
    for node in source.body:
        if isinstance(node, ast.FunctionDef):
            assert node.returns is not None
            actual[node.name] = (ast.unparse(node.args), ast.unparse(node.returns))
    assert shown == actual
    assert not [name for name in actual if f"| `{name}` |" not in body]
    fleet = [name for name, item in vars(Fleet).items() if inspect.isfunction(item) and name[0] != "_"]
    fleets = section(page("docs/plugins.md"), "## Fleets")
    assert not [name for name in fleet if f"`{name}`" not in fleets]


def test_python_names_are_documented() -> None:
    text = page("docs/python-api.md")
    names = [name for name in tuneport.__all__ if name != "__version__"]
    for kind in (api.Project, api.Experiment, Report, Job):
        names += [name for name in vars(kind) if not name.startswith("_") and name != "folder"]
    assert not [name for name in names if not re.search(rf"\b{name}\b", text)]


@pytest.mark.parametrize("method_id", [row[0] for row in catalog.methods()])
def test_every_method_has_a_section_made_from_its_manifest(method_id: str) -> None:
    """Every one that `tp methods` lists. That the pages are as generated: test_docs_findings.py."""
    framework = method_id.partition("/")[0]
    text = page(f"docs/frameworks/{framework}.md")
    assert "<!-- Written by tools/reference_pages.py from the manifests:" in text
    assert f"](frameworks/{framework}.md)" in page("docs/methods.md")
    body = section(text, f"### {method_id}")
    told = catalog.method(method_id).spec["explain"]
    lines = [*told["formula"], *told["failures"], *told["watch"].values(), *told["next"]]
    lines += [" ".join(told[name].split()) for name in ("problem", "words")]
    assert not [line for line in lines if line not in body]
    assert not [item for item in told["symbols"] if f"`{item['file']}`, `{item['symbol']}`" not in body]


def test_defaults_of_a_script_are_those_that_it_declares() -> None:
    method_id = "pytorch/image-classification"
    source = catalog.templates(method_id)["train.py"].read_text("utf-8")
    declared = dict(re.findall(r'"--(\w+)".*?default=([^,)]+)', source))
    table = section(page("docs/frameworks/pytorch.md"), "## Parameters")
    for name in set(catalog.method(method_id).params) - {"max_steps"}:  # which has no default
        default = json.dumps(ast.literal_eval(declared[name]))
        assert re.search(rf"^\| `{name}` \| [^|]* \| `{re.escape(default)}` \|", table, re.M), name


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/frameworks/*.md")), ids=lambda path: path.stem)
def test_a_frameworks_page_holds_all_that_its_manifests_say(path: Path) -> None:
    text, framework = path.read_text("utf-8"), path.stem
    methods = [row[0] for row in catalog.methods(framework)]
    short = {name.partition("/")[2] for name in methods}
    heading = "## Parameters"  # not there where no method has any
    rows = [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in (section(text, heading) if f"\n{heading}\n" in text else "").splitlines()
        if row.startswith("| `")
    ]
    shown: dict[tuple[str, str], list[str]] = {}
    for cells in rows:
        named = set(re.findall(r"[\w-]+", cells[5].removeprefix("all but ")))
        having = short if cells[5] == "all" else short - named if cells[5].startswith("all but") else named
        for name in having:
            assert shown.setdefault((name, cells[0].strip("`")), cells) is cells, f"{name}: {cells[0]} twice"
    for method_id in methods:
        body = section(text, f"### {method_id}")
        for release in catalog.releases(framework):
            method = catalog.method(method_id, release)
            for name, param in method.params.items():
                cells = shown[method_id.partition("/")[2], name]
                assert not [key for key in param.keys if f"`{key}`" not in cells[4]], f"{method_id} {name}"
                assert describe(param) in cells[1].replace("&#124;", "|")
                if param.has_default:
                    assert f"`{json.dumps(param.default)}` (method)" in cells[2]
                assert cells[6].startswith(vocabulary.words()[name]["meaning"][1:50], 1)
            assert not [key for key in method.spec.get("identity", {}) if f"`{key}: " not in body]
            formats = method.spec.get("lifecycle", {}).get("export", {}).get("formats", [])
            assert not [name for name in formats if f"`{name}`" not in body]
        assert not [name for name in catalog.metric_aliases(method_id)[0] if f"- `{name}`" not in body]
    releases = section(text, "## Releases")
    for release in catalog.releases(framework):
        spec = catalog.release_spec(framework, release)
        assert f"`{spec['runtime']['id']}`" in releases
        assert not [move["from"] for move in spec["moves"] if f"`{move['from']}`" not in releases]
        assert not [pin for pin in spec.get("pins", {}).values() if pin not in releases]


def test_examples_on_the_manifests_page_are_sound() -> None:
    text = page("docs/manifests.md")
    found = 0
    for kind, block in re.findall(r"```(yaml|json)\n(.*?)```", text, re.S):
        document = yaml.safe_load(block)
        name = "surface" if kind == "json" else ("rules" if "rules" in document else "method")
        if name == "surface":
            document["artefacts"][0]["sha256"] = "0" * 64
        assert not list(schemas.problems(document, schemas.schema(name))), block
        found += 1
        for rule in document.get("rules", ()) if name == "rules" else ():
            assert cel.bounds(rule["require"]) == ""
            engine = cel.Rules({"cfg": {"warmup_steps": 20, "max_steps": 10}})
            assert engine.holds(rule["when"])
            assert not engine.holds(rule["require"])
            assert engine.fill(rule["say"]) == "20 warm-up steps in a run of 10"
    assert found >= 3


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, made as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M):
        plain = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(plain.replace(" ", "-"))
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_resolve(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.S)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        other = (path.parent / name).resolve() if name else path
        if not other.exists() or (anchor and anchor not in anchors(other.read_text("utf-8"))):
            broken.append(target)
    assert not broken


def test_every_page_is_linked() -> None:
    linked = {path.name for path in ROOT.glob("*.md")}
    for path in PAGES:
        text = path.read_text("utf-8")
        linked |= set(re.findall(r"\]\((?:docs/|\.\./)?(?:frameworks/)?([\w-]+\.md)", text))
    assert not {path.name for path in PAGES} - linked


def test_every_promise_names_tests_that_exist() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", page("docs/promises.md"), re.M)
    promises = [(promise, re.findall(r"`([\w/.-]+\.py)`", tests)) for promise, tests in rows if "`" in tests]
    assert len(promises) >= 8
    for promise, tests in promises:
        assert tests, promise
        assert not [name for name in tests if not (ROOT / name).is_file()], promise
