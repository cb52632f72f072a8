"""The checks of the conformance kit. `run` yields one `Check` after another; none of them raises.

Runs in a process of its own (see `checking`): a plugin may end it, hang in it or fill it with anything.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from tuneport import api, workflow
from tuneport.compiler.compile import Compiled
from tuneport.compiler.plan import plan_to_json
from tuneport.errors import TuneportError
from tuneport.experiment.create import new_project
from tuneport.registry import catalog, plugins, scan, vocabulary
from tuneport.registry.digest import digest
from tuneport.registry.schemas import problems as schema_problems
from tuneport.registry.sources import framework_folders, locate
from tuneport.testing import contract, hostile, requests
from tuneport.testing.golden import difference, golden_problems, write_golden
from tuneport.testing.policies import probe_catalog, probe_context
from tuneport.testing.purity import imports, no_side_effects
from tuneport.testing.subject import normal
from tuneport.types import Finding, Json, LaunchPlan

Problems: TypeAlias = Iterable[str]
# What Python itself, and libraries, do while they are imported: opening modules, looking at folders and at
# the environment, seeding. Writing is never part of it.
_IMPORTING = (
    *("open ", "os.listdir", "os.scandir", "os.stat", "os.lstat", "os.fstat", "os.getcwd", "os.readlink"),
    *(
        "os.environ",
        "os.getpid",
        "os.uname",
        "os.cpu_count",
        "os.isatty",
        "os.access",
        "os.urandom",
        "os.get",
    ),
    *("os.sched_getaffinity", "os.close", "os.read", "os.dup", "os.statvfs", "os.putenv", "os.unsetenv"),
    *("time.", "datetime.", "random.", "print", "a standard stream"),
)
BLAMED = ("plugin-failed", "plugin-broken", "plugin-hooks", "policy-plan", "internal")


@dataclass(frozen=True, slots=True)
class Check:
    """One check of one subject, which holds where `problems` is empty."""

    name: str
    subject: str
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class Kit:
    """What is checked and how thoroughly: `times` compilations must be equal; `golden` is a folder of plans
    to compare with, written anew with `write`. `digests` are those of plans and findings when the checks are
    done; `quick`: nothing else is wanted."""

    dist: str
    work: Path
    manifests: Path | None = None
    readme: str | None = None
    golden: Path | None = None
    write: bool = False
    times: int = 100
    quick: bool = False
    only: tuple[str, ...] = ()
    digests: dict[str, str] = field(default_factory=dict)

    def run(self) -> Iterator[Check]:
        """Every check of everything that the distribution publishes."""
        project = api.open_project(new_project(self.work / "project"))
        points = [p for group in scan.GROUPS for p in scan.entry_points(group) if p.dist == self.dist]
        for point in points:
            yield from _point(point)
        if self.dist:
            yield _check("readme", self.dist, self._readme)
        folders = _folders(points) + ([self.manifests] if self.manifests else [])
        adapters = [p.name for p in points if p.group == "tuneport.frameworks"]
        described = [name for name in catalog.frameworks() if any((f / name).is_dir() for f in folders)]
        for name in dict.fromkeys([*adapters, *described]):
            if self.only and not any(one.partition("/")[0] == name for one in self.only):
                continue
            yield _check("schema", name, partial(_manifest_problems, name, folders))
            inside = None if name in adapters else folders
            yield from self._framework(project, name, inside, shown=name in described)

    def _framework(
        self, project: api.Project, name: str, inside: list[Path] | None, *, shown: bool
    ) -> Iterator[Check]:
        rows = [
            row
            for row in catalog.methods(name)
            if not row[2] and (inside is None or _within(catalog.method_file(row[0]), inside))
        ]
        if self.only:
            rows = [row for row in rows if {name, row[0]} & {*self.only}]
        if shown:
            yield _check("docs", name, lambda: _docs(name, [row[0] for row in rows], inside))
        for method_id, _, _ in rows:
            yield _check("parameters", method_id, partial(_parameters, method_id))
            for release in catalog.releases(name):
                yield from self._method(project, method_id, release)

    def _method(self, project: api.Project, method_id: str, release: str) -> Iterator[Check]:
        subject = f"{method_id} {release}"
        found: list[Any] = []

        def compiles() -> Problems:
            experiment = project.new(f"{method_id.replace('/', '-')}-{release}", method_id, release)
            found.extend((experiment, *requests.find(experiment, method_id, release)))
            return ()

        yield _check("compiles", subject, compiles)
        if not found:
            return
        experiment, request, report = found
        said = _said(report, self.work)
        self.digests[f"the plan of {subject}"] = digest(said["plan"])
        self.digests[f"what is said of {subject}"] = digest(said["findings"])
        if self.quick:
            return
        yield _check("pure", subject, lambda: _pure(report.compiled))
        newest = release == catalog.default_release(method_id.partition("/")[0])
        times = self.times if newest else min(self.times, 2)
        yield _check("deterministic", subject, lambda: _deterministic(experiment, request, report, times))
        if self.golden is not None:
            yield _check("golden", subject, lambda: self._golden(experiment.name, report.compiled.plan))
        if newest:
            yield _check("hostile", subject, lambda: _hostile(experiment, request))

    def _golden(self, name: str, plan: LaunchPlan) -> Problems:
        assert self.golden is not None
        path = self.golden / f"{name}.json"
        if self.write:
            write_golden(path, plan)
        return golden_problems(path, plan)

    def _readme(self) -> Problems:
        text = self.readme
        if text is None:
            metadata = importlib.metadata.metadata(self.dist)
            text = importlib.metadata.distribution(self.dist).read_text("METADATA") or ""
            text = text.partition("\n\n")[2] or str(metadata["Description"] or "")
        if len(text.split()) < 10:
            yield "it has no README: write one, and name it as `readme` in pyproject.toml"


def _check(name: str, subject: str, call: Callable[[], Problems]) -> Check:
    """The check's result; what it raises is a problem like any other."""
    try:
        found = tuple(dict.fromkeys(call()))
    except AssertionError as error:
        found = (str(error) or "an assertion failed",)
    except TuneportError as error:
        found = (f"{error.code}: {error.message}",)
    except (Exception, SystemExit) as error:  # whatever a plugin raises is its own fault, and said
        found = (f"it raised {type(error).__name__}: {error}",)
    return Check(name, subject, found)


def _point(point: scan.EntryPoint) -> Iterator[Check]:
    kind = point.group.removeprefix("tuneport.")
    subject = f"{point.name} ({kind})"
    if kind == "manifests":
        yield _check("load", subject, lambda: _located(point))
        return
    yield _check("load", subject, lambda: _load(point))
    if kind == "frameworks":
        yield _check("hooks", subject, lambda: _framework_hooks(point))
    elif kind == "policies":
        yield _check("hooks", subject, lambda: _policy(point))
    else:
        yield _check("hooks", subject, lambda: _fleet(point))


def _located(point: scan.EntryPoint) -> Problems:
    locate(point)
    return ()


def _load(point: scan.EntryPoint) -> Problems:
    """Importing it imports no framework and does nothing else."""
    plugins.unique(point.group, point.name)
    framework = point.name if point.group == "tuneport.frameworks" else ""
    failed = None
    with imports() as asked, no_side_effects() as seen:
        try:
            plugins.load(point)
        except TuneportError as error:
            failed = f"{error.code}: {error.message}"
    yield from _framework_imports(asked, framework)
    if failed is not None:
        yield failed
    yield from (f"importing it did: {event}" for event in seen if not event.startswith(_IMPORTING))


def _framework_imports(asked: Iterable[str], framework: str) -> Problems:
    wanted = _packages_of_a_framework(framework)
    for name in dict.fromkeys(name.partition(".")[0] for name in asked):
        if name in wanted:
            yield f"it imports {name}, which belongs to what runs, not to what compiles"


def _packages_of_a_framework(framework: str) -> set[str]:
    """Import names of what the runtimes of a framework (of all, where none is named) are made of, less what
    the core itself needs."""
    tops = importlib.metadata.packages_distributions()
    by_dist: dict[str, set[str]] = {}
    for top, dists in tops.items():
        for dist in dists:
            by_dist.setdefault(normal(dist), set()).add(top)
    names: set[str] = set()
    for one in [framework] if framework in framework_folders() else catalog.frameworks():
        for release in catalog.releases(one):
            spec = catalog.release_spec(one, release)
            variants = spec["runtime"].get("venv", {}).get("variants", {})
            lines = [line for variant in variants.values() for line in variant["requirements"]]
            lines += [item["name"] for item in spec.get("artefacts", ())]
            names |= {_requirement(line) for line in lines}
    names -= {_requirement(line) for line in importlib.metadata.requires("tuneport-core") or ()}
    found = {top for name in names for top in by_dist.get(name, {name.replace("-", "_")})}
    return {top for top in found if top.isidentifier() and top not in sys.stdlib_module_names} - {"yaml"}


def _requirement(line: str) -> str:
    for mark in "<>=!~[; @":
        line = line.partition(mark)[0]
    return normal(line.strip())


def _framework_hooks(point: scan.EntryPoint) -> Problems:
    plugins.Hooks(point.name)
    yield from _signatures(plugins.load(point), contract.recorded()["hooks"])


def _signatures(target: Any, hooks: Iterable[str]) -> Problems:
    for name in hooks:
        implementation = getattr(target, name, None)
        if callable(implementation) and (said := contract.unfit(implementation, name)):
            yield said


def _policy(point: scan.EntryPoint) -> Problems:
    """Registered beside a framework that the kit brings along, where it may add and may not change."""
    target = plugins.load(point)
    yield from _signatures(target, contract.recorded()["hooks"])
    with probe_catalog():
        hooks = plugins.Hooks("probe", [point.name])
        for gpus in (1, 8, 4096):
            context = probe_context(gpus)
            with imports() as asked:
                hooks.validate(context)
                hooks.launch(context)  # what it imports lazily is imported now
            yield from _framework_imports(asked, "")
            with no_side_effects() as seen:
                first = (hooks.validate(context), hooks.launch(context))
            yield from (f"a hook is not pure: {event}" for event in seen)
            if first != (hooks.validate(context), hooks.launch(context)):
                yield f"it said two things about one request for {gpus} GPUs"


def _fleet(point: scan.EntryPoint) -> Problems:
    """The methods of the protocol, where the factory is the class itself."""
    factory = plugins.load(point)
    if not callable(factory):
        yield f"the entry point names {type(factory).__name__}, not something that makes a fleet"
        return
    settings = getattr(factory, "SETTINGS", {})
    if not isinstance(settings, Mapping):
        yield f"SETTINGS is {type(settings).__name__}, not a mapping of setting to schema"
    if not isinstance(factory, type):
        return
    import inspect

    for name, known in contract.recorded()["fleet"].items():
        method = getattr(factory, name, None)
        if not callable(method):
            yield f"it has no method {name}"
            continue
        takes = [p for p in inspect.signature(method).parameters if p != "self"]
        wanted = [argument for argument, _ in known["arguments"]]
        if takes[: len(wanted)] != wanted:
            yield f"{name} takes {', '.join(takes)}; the protocol has {', '.join(wanted)}"


def _folders(points: Iterable[scan.EntryPoint]) -> list[Path]:
    found = []
    for point in points:
        if point.group == "tuneport.manifests":
            try:
                found.append(locate(point).folder)
            except TuneportError:
                continue  # said by its own check
    return found


def _within(file: str, folders: Iterable[Path]) -> bool:
    return any(Path(file).is_relative_to(folder) for folder in folders)


def _manifest_problems(framework: str, folders: list[Path]) -> Problems:
    for finding in catalog.problems(framework):
        if not folders or _within(finding.file, folders) or finding.code == "manifest-clash":
            yield _sentence(finding)
    for finding in vocabulary.problems():
        if _within(finding.file, folders):
            yield _sentence(finding)


def _sentence(finding: Finding) -> str:
    said = f"{finding.file}:{finding.line}: {finding.code}: {finding.message}"
    return f"{said} ({finding.hint})" if finding.hint else said


def _docs(framework: str, methods: Iterable[str], inside: list[Path] | None) -> Problems:
    for method_id in methods:
        spec = catalog.method(method_id).spec
        for part in ("title", "summary"):
            if not spec.get(part):
                yield f"{method_id} has no {part}"
    own = any((folder / framework / "framework.yaml").is_file() for folder in inside or ())
    if own and not catalog.framework_spec(framework).get("summary"):
        yield f"framework.yaml of {framework} has no summary"


def _parameters(method_id: str) -> Problems:
    """Canonical names, and defaults that a user could set."""
    words = vocabulary.words()
    framework = method_id.partition("/")[0]
    for release in catalog.releases(framework):
        for param in catalog.method(method_id, release).params.values():
            if param.name not in words:
                yield f"{param.name} is no canonical name: use one, or add it to your vocabulary.yaml"
            if param.has_default:
                for _, message, _ in schema_problems(param.default, dict(param.schema)):
                    yield f"on {release} the default of {param.name} is not one a user could set: {message}"


def _pure(compiled: Compiled) -> Problems:
    context = compiled.context
    framework = context.method.framework
    hooks = plugins.Hooks(framework)
    with imports() as asked:
        hooks.launch(context)  # what it imports lazily is imported now
        hooks.validate(context)
    yield from _framework_imports(asked, framework)
    with no_side_effects() as seen:
        hooks.validate(context)
        hooks.bind_args(context)
        hooks.topology(context)
        hooks.launch(context)
    yield from (f"a hook is not pure: {event}" for event in seen)


def _deterministic(
    experiment: api.Experiment, request: Mapping[str, Any], report: workflow.Report, times: int
) -> Problems:
    """The plan and every finding are the same each time."""
    first = _said(report)
    for number in range(1, times):
        again = _said(experiment.validate(**request))
        if again["plan"] != first["plan"]:
            told = difference(first["plan"], again["plan"])
            yield f"compilation {number + 1} differs from the first: {told}"
            return
        if again["findings"] != first["findings"]:
            told = difference(first["findings"], again["findings"])
            yield f"what validation {number + 1} says differs from the first: {told}"
            return


def _said(report: workflow.Report, work: Path | None = None) -> dict[str, Json]:
    """The plan and the findings of a report; with `work`, paths of findings begin below it."""
    plan = report.compiled.plan if report.compiled else None
    rows = [
        [str(value).replace(str(work), "") if work else value for value in dataclasses.astuple(finding)]
        for finding in report.findings
    ]
    return {"plan": plan_to_json(plan) if plan else None, "findings": rows}


def _hostile(experiment: api.Experiment, request: Mapping[str, Any]) -> Problems:
    """Whatever stands in its files and in the request, its hooks neither fail nor hang nor touch anything."""
    config = experiment.path / "config.yaml"
    kept = config.read_bytes()
    method = catalog.method(*_locked(experiment))
    names = [key for param in method.params.values() for key in param.keys]
    try:
        for what, content, *_ in [*hostile.YAML, *hostile.KEYS]:
            config.write_bytes(content if isinstance(content, bytes) else content.encode())
            yield from _survives(experiment, request, f"config.yaml with {what}")
        for value in hostile.VALUES:
            text = "".join(f"{json.dumps(name)}: {json.dumps(value)}\n" for name in dict.fromkeys(names))
            config.write_text(text, "utf-8")
            yield from _survives(experiment, request, f"{json.dumps(value)[:40]} for every key")
    finally:
        config.write_bytes(kept)
    for text in hostile.TEXTS:
        named = {name: text for name in ("model", "train_data", "validation_data") if name in request}
        yield from _survives(experiment, {**request, **named}, f"{text[:40]!r} for model and data")
    for profile in hostile.PROFILES:
        asked = {name: value for name, value in request.items() if name != "resources"}
        yield from _survives(experiment, {**asked, "profile": profile}, f"--profile {profile}")


def _locked(experiment: api.Experiment) -> tuple[str, str]:
    lock = json.loads((experiment.path / "recipe.lock.json").read_text("utf-8"))
    return lock["recipe"]["name"], lock["framework"]["version"]


def _survives(experiment: api.Experiment, request: Mapping[str, Any], what: str) -> Problems:
    import time

    began = time.process_time()
    try:
        report = experiment.validate(**request)
        codes = [(finding.code, finding.message) for finding in report.findings]
    except TuneportError as error:
        codes = [(error.code, error.message)]
    except Exception as error:
        codes = [("internal", f"{type(error).__name__}: {error}")]
    yield from (f"{what}: {code}: {message[:300]}" for code, message in codes if code in BLAMED)
    if (spent := time.process_time() - began) > 5:
        yield f"{what}: it took {spent:.1f} seconds of CPU"


def main() -> None:
    """Read a `Kit` as JSON from stdin, and write checks as JSON lines to the stdout that it was started with;
    whatever a plugin prints goes to stderr."""
    import os

    asked = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    work = Path(asked["work"])
    paths = {name: Path(asked[name]) if asked[name] else None for name in ("manifests", "golden")}
    kit = Kit(**{**asked, **paths, "work": work, "only": tuple(asked["only"])})
    try:
        for check in kit.run():
            row = [check.name, check.subject, check.problems]
            out.write(json.dumps({"check": row}) + "\n")
            out.flush()
        out.write(json.dumps({"digests": kit.digests}) + "\n")
        out.flush()
    finally:
        shutil.rmtree(work / "project", ignore_errors=True)
    os._exit(0)  # threads that a plugin left behind are not waited for


if __name__ == "__main__":
    main()
