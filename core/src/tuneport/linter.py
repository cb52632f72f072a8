"""Checks an existing command line: which method it is, what it sets, and what is wrong with that.

It goes through the same checks as an experiment. What the platform would write itself may of course be
written here, so nobody's ownership is judged.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tuneport.checks import (
    batch_script,
    columns,
    composed,
    entries,
    launched,
    launcher_file,
    programs,
    surface,
)
from tuneport.checks import rules as rules_module
from tuneport.checks.undecided import UNDECIDED, Watched, depends
from tuneport.checks.undecided import keys as undecided_keys
from tuneport.compiler.adapter import native_value
from tuneport.compiler.layers import Layers
from tuneport.dialects.hydra.interpolate import resolved
from tuneport.dialects.hydra.parse import Override
from tuneport.dialects.hydra.read import Applied, apply, choices, take_apart
from tuneport.dialects.hydra.surface import tree_of
from tuneport.errors import Invalid, NotFound, TuneportError
from tuneport.experiment import command_line
from tuneport.experiment import facts as facts_module
from tuneport.experiment.command_line import Invocation
from tuneport.experiment.findings import ordered
from tuneport.jobfiles import reader as job_file
from tuneport.registry import catalog, surfaces
from tuneport.shell import open_questions
from tuneport.shell.gaps import Gaps, open_, shown
from tuneport.shell.reader import read
from tuneport.types import (
    Context,
    Finding,
    Json,
    Location,
    Method,
    Origin,
    Pool,
    Release,
    Request,
    Topology,
)

NOWHERE = Path(os.devnull)  # a command has no experiment folder
COMMAND = Origin("command line")
ADDED = Origin("native.append")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known beside the command itself."""

    framework: str = ""
    version: str = ""
    method: str = ""
    nodes: int = 0
    gpus_per_node: int = 0
    facts: Mapping[str, Json] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checked:
    """What a command is and what was found in it. `method` is empty where it is none that is known; `unread`
    are the findings about words that could not be taken as they are."""

    framework: str
    release: str
    entry: str
    method: str
    findings: tuple[Finding, ...]
    undecided: tuple[str, ...]
    context: Context
    run: Invocation = field(default_factory=Invocation)
    unread: tuple[Finding, ...] = ()


def check_every(words: Sequence[str], asked: Asked) -> tuple[list[Checked], list[Finding]]:
    """(each command of a framework that the words start in the end, findings about the scripts between). A
    job file may start none.

    Raises:
        Invalid: they start none, or a script cannot be read. NotFound: no framework here has the program.
    """
    _known(asked)
    try:
        reading = (
            job_file.read(words[0], asked.env) if job_file.is_job_file(words) else read(words, asked.env)
        )
    except Invalid as error:
        framework = os.path.basename(words[0])
        if error.code == "command-unknown" and framework in catalog.frameworks():
            _known(replace(asked, framework=framework))  # says so where none of its commands can be checked
        raise
    if not reading.scripted:
        return [check_arguments(reading.programs[0], asked)], []
    checked, unknown, near = [], "", list[Finding]()
    for program in reading.programs:
        try:
            checked.append(check_arguments(program, asked, reading.gaps))
        except NotFound as error:
            unknown = unknown or ("" if program.beside else program.module)
            if error.hint.startswith(entries.NEAR):
                place = ("", program.file, program.line)
                near.append(Finding(error.code, "warning", error.message, error.hint, *place))
    if not checked and reading.job_file:
        if not any(finding.code == "yaml-syntax" for finding in reading.findings):
            message = "it starts no program of a framework that is known here: the file alone was judged"
            near.append(Finding("job-file", "note", message, "", "", reading.job_file))
    elif not checked:
        hint = "give variables that decide what it starts as --env NAME=VALUE, or its arguments behind it"
        if unknown:
            hint = (
                f"the first program that it starts is {shown(unknown)}; --framework-version names the release"
            )
        message = "the script starts no program of a framework that is known here"
        raise Invalid(message, code="script-nothing", hint=hint, findings=[*near, *reading.findings])
    return checked, [*near, *reading.findings]


def _known(asked: Asked) -> None:
    """Refuse a framework, release or method that is not there, before anything else is said.

    Raises:
        NotFound: it is not there. Invalid: the framework's commands cannot be checked.
    """
    if asked.framework:
        version = asked.version or catalog.default_release(asked.framework)
        catalog.release_spec(asked.framework, version)
        if not entries.readable(asked.framework, version):
            raise Invalid(
                f"tp check does not read commands of {asked.framework}: its releases describe none",
                code="framework-unread",
                hint=f"`tp methods {asked.framework}` lists what can be run; `tp new` makes an experiment",
            )
    elif asked.version and not any(asked.version in catalog.releases(name) for name in catalog.frameworks()):
        read_ = [name for name in catalog.frameworks() if entries.readable(name)]
        there = "; ".join(f"{name} has {', '.join(catalog.releases(name))}" for name in read_)
        raise NotFound(
            f"no framework here has a release {asked.version!r}", code="release-unknown", hint=there
        )
    if asked.method:
        framework = asked.method.partition("/")[0]
        has = framework in catalog.frameworks() and asked.version in catalog.releases(framework)
        catalog.method(asked.method, asked.version if has else "")


def check(words: Sequence[str], asked: Asked) -> Checked:
    """Findings for a command, given as the words that a shell would hand to the operating system.

    Raises:
        Invalid: it is no command that can be checked. NotFound: no framework here has its entry point.
    """
    run = command_line.take_apart(words)
    return check_arguments(run, asked)


def check_arguments(run: Invocation, asked: Asked, gaps: Gaps | None = None) -> Checked:
    """Findings for a program and its arguments; see `check`.

    Args:
        gaps: what the arguments leave open, where they come from a script.
    """
    nodes, gpus = batch_script.hardware(run, asked.nodes, asked.gpus_per_node, asked.facts)
    asked = replace(asked, nodes=nodes, gpus_per_node=gpus)
    try:
        checked = _check(run, asked)
    except NotFound as error:
        alone = _launched(run, asked, error)
        if alone is None:
            raise
        checked = alone
    run = checked.run
    if gaps is None:
        return checked
    said = list(open_questions.findings(run, gaps))
    placed = [open_questions.placed(finding, run) for finding in checked.findings]
    checked = replace(checked, findings=tuple(placed))
    if any(open_questions.is_free(word) for word in run.arguments):
        # Another word may change any setting: nothing is certain then.
        findings = [open_questions.softened(finding) for finding in checked.findings]
        return replace(checked, findings=tuple(ordered([*findings, *said])))
    return replace(checked, findings=tuple(ordered([*checked.findings, *said])))


def _launched(run: Invocation, asked: Asked, error: NotFound) -> Checked | None:
    """What is wrong with how a program is started that nothing here knows; None where that is nothing."""
    method = Method("", "", "", {}, {}, "")
    env = {name: value for name, value in {**asked.env, **run.env}.items() if not open_(value)}
    _, problems = launcher_file.take(run)
    topology = _topology(method, run, asked, {}, {})
    release = Release("", "", {}, {})
    facts = {name: asked.facts.get(name, {}) for name in ("env", "topology")}
    if not (asked.nodes or run.nodes or facts["topology"].get("nodes")):
        facts["topology"] = {**facts["topology"], "assumed": True}  # nobody said that it is one machine
    context = Context(method, release, Request(env=env), topology, facts, {}, {}, {}, {}, linted=True)
    # No program follows whose own check would name flags that the launcher does not have.
    said = [*problems, *launched.ruled(replace(run, settings=[]), context)]
    if not said:
        return None
    note = Finding(error.code, "note", error.message, error.hint)
    shown = [] if run.beside else [note]
    starts = run.launchers[-1] if run.launchers else ""
    unread = (replace(note, severity="error"),)
    return Checked(starts, "", run.module, "", tuple(ordered([*said, *shown])), (), context, run, unread)


def _check(run: Invocation, asked: Asked) -> Checked:
    framework, version, entry = entries.find(run, asked.framework, asked.version)
    surface_document = surfaces.of(framework, version)
    if entries.takes_flags(surface_document, entry):
        return _check_flags(framework, version, entry, run, asked)
    if surface_document["entries"][entry].get("chain"):
        return _check_chain(framework, version, entry, run, asked)
    findings: list[Finding] = []
    parsed = take_apart([word for word in run.arguments if not open_questions.is_free(word)])
    findings += parsed.findings
    path = parsed.flags.get("config_path", "")
    foreign = "config_dir" in parsed.flags or bool(path and path.strip("./") not in ("config", ""))
    if foreign:
        message = "the command reads configuration files of its own, which are not judged here"
        findings.append(Finding("config-foreign", "note", message, "", "--config-path"))
    tree = tree_of(surface_document, entry, parsed.flags.get("config_name", ""))
    wanted, overrides, found = choices(parsed, tree)
    if foreign:
        name = str(wanted.get("--config", ""))
        if name and tree.find(name.removesuffix(".yaml")) is None:  # one of those files
            findings += _against(asked.method, framework, version, entry, None)
            return _unjudged(framework, surfaces.release(framework, version, entry), entry, findings, run)
        certain = set(map(id, findings))
        checked = _composed(framework, version, entry, run, asked, [*findings, *found], wanted, overrides)
        said = [item if id(item) in certain else _unless(item) for item in checked.findings]
        unread = tuple(item for item in checked.unread if id(item) in certain)
        return replace(checked, findings=tuple(ordered(said)), unread=unread)
    return _composed(framework, version, entry, run, asked, [*findings, *found], wanted, overrides)


def _check_chain(framework: str, version: str, entry: str, run: Invocation, asked: Asked) -> Checked:
    """A program that reads one file, and what it builds on, before its overrides."""
    from tuneport.dialects.hydra import chain_read

    words = [word for word in run.arguments if not open_questions.is_free(word)]
    found = chain_read.read(words, surfaces.of(framework, version)["files"])
    findings = list(found.findings)
    if found.missing or found.config == UNDECIDED:
        if found.missing and not findings:
            message = f"{found.missing} is not here, so what it sets is not judged"
            hint = "run tp check where the file is"
            findings.append(Finding("config-not-here", "note", message, hint, "--config"))
        findings += _against(asked.method, framework, version, entry, None)
        return _unjudged(framework, surfaces.release(framework, version, entry), entry, findings, run)
    release = surfaces.release(framework, version, entry, {"--config": found.config})
    applied = chain_read.applied(found, release.keys, _moves(release))
    findings += applied.findings
    return _judge(framework, release, entry, run, asked, applied, findings)


def _moves(release: Release) -> dict[str, str]:
    return {move["from"]: move["to"] for move in release.spec.get("moves", ())}


def _unless(finding: Finding) -> Finding:
    """An error, where configuration files that are not read may put it right."""
    if finding.severity != "error" or finding.code == "method-mismatch":
        return finding
    message = f"{finding.message} (unless the command's own configuration files change it)"
    return replace(finding, severity="warning", message=message)


def _composed(
    framework: str,
    version: str,
    entry: str,
    run: Invocation,
    asked: Asked,
    findings: list[Finding],
    wanted: dict[str, Json],
    overrides: list[Override],
) -> Checked:
    """Findings for a program that composes its configuration from the chosen files."""
    if UNDECIDED in wanted.values():  # which keys there are depends on it
        findings += _against(asked.method, framework, version, entry, None)
        return _unjudged(framework, surfaces.release(framework, version, entry), entry, findings, run)
    try:
        release = surfaces.release(framework, version, entry, wanted)
    except Invalid as error:
        if not error.findings:
            raise
        # What the other words do depends on the files that they meet: nothing fair can be said of them.
        findings += [*error.findings, *_against(asked.method, framework, version, entry, None)]
        release = surfaces.release(framework, version, entry)
        return _unjudged(framework, release, entry, findings, run)
    applied = apply(overrides, release.keys, _moves(release))
    findings += applied.findings
    return _judge(framework, release, entry, run, asked, applied, findings)


def _check_flags(framework: str, version: str, entry: str, run: Invocation, asked: Asked) -> Checked:
    """A program that takes flags, which say all there is to its configuration, or all but one file of it."""
    release = surfaces.release(framework, version, entry)
    if surfaces.of(framework, version)["entries"][entry].get("parser", "argparse") == "argparse":
        from tuneport.dialects.flags_read import read as read_flags

        found = read_flags(entries.behind(run, entry), entries.switches(release.keys))
        run = replace(run, arguments=found.words)
        return _judge(framework, release, entry, run, asked, found.applied, [*found.applied.findings])
    from tuneport.dialects.dataclass_read import read as read_dataclasses

    launcher = catalog.launchers().get(run.hands_to, {})
    handed = dict.fromkeys(launcher.get("alone", ()), False) | dict.fromkeys(launcher.get("takes", ()), True)
    settings = read_dataclasses(run.arguments, release.keys, handed if run.hands_to else None)
    run = replace(run, arguments=settings.read.words, env={**run.env, **settings.env})
    for flag, value in settings.read.handed:
        command_line.count(run, flag, value, launcher)
    applied = settings.read.applied
    if not settings.open:
        return _judge(framework, release, entry, run, asked, applied, [*applied.findings])
    message = f"{settings.open} is not here, so what it sets is not judged"
    hint = "run tp check where the file is"
    note = Finding("config-not-here", "note", message, hint, "--config")
    checked = _judge(framework, release, entry, run, asked, applied, [*applied.findings, note])
    certain = set(map(id, applied.findings))
    said = [item if id(item) in certain else _unless(item) for item in checked.findings]
    return replace(checked, findings=tuple(ordered(said)))


def _unjudged(
    framework: str, release: Release, entry: str, findings: list[Finding], run: Invocation
) -> Checked:
    method = Method(framework, framework, "", {}, {}, "")
    context = Context(method, release, Request(), Topology(()), {}, {}, {}, {}, {}, linted=True)
    said = tuple(ordered(findings))
    return Checked(framework, release.version, entry, "", said, (), context, run, unread=said)


def _judge(
    framework: str,
    release: Release,
    entry: str,
    run: Invocation,
    asked: Asked,
    applied: Applied,
    findings: list[Finding],
) -> Checked:
    env = {name: value for name, value in {**asked.env, **run.env}.items() if not open_(value)}
    held, problems = launcher_file.take(run)
    findings += problems
    unread = tuple(finding for finding in findings if finding.severity == "error")
    layers = Layers(release.keys)
    for name, value in applied.own.items():
        origin = ADDED if name in applied.added else COMMAND
        place = applied.places.get(name)
        layers.set(name, value, origin._replace(file=place.file, line=place.line) if place else origin)
    layers.drop(applied.deleted)
    absent = {name for name, key in release.keys.items() if key.add and name not in layers.own}
    effective = layers.effective()
    config = effective
    if release.composed is not None:  # only such values hold interpolations
        known = {**asked.facts.get("env", {}), **env}
        config = resolved(effective, (), known, absent, release.composed.resolvers)
    unknown = frozenset[str]()
    if any(map(depends, applied.own.values())):
        unknown = undecided_keys(effective, config)
        config = {name: value for name, value in config.items() if name not in unknown}
    contradicted = list(_against(asked.method, framework, release.version, entry, config, unknown, layers))
    findings += contradicted
    method = _method(framework, release.version, entry, "" if contradicted else asked.method, config)
    request = _request(method, layers.own, config, env, applied.deleted)
    facts, seen = facts_module.gather(request, NOWHERE, asked.facts, [])
    if not (asked.gpus_per_node or run.per_node or facts["topology"]):
        facts["topology"] = {"assumed": True}  # what hardware there is comes from the settings alone
    context = Context(
        method=method,
        release=release,
        request=request,
        topology=_topology(method, run, asked, layers.own, config),
        facts=facts,
        config=config,
        own=dict(layers.own),
        origins=dict(layers.origins),
        files={},
        linted=True,
    )
    judged = unknown | {finding.key for finding in findings if finding.severity == "error"}
    findings += [finding for finding in seen if finding.code not in ("data-not-here", "model-not-here")]
    findings += surface.check(context, {}, judged)
    undecided: list[str] = []
    if method.spec:
        checks, inert = programs.rules(method, release.version)
        more = open_questions.variables(method, unknown, run.env)
        seen_as, unknown = programs.as_read(context, unknown)
        ruled, undecided = rules_module.apply(seen_as, checks, inert, unknown, more)
        findings = [*composed.softened(context, findings, ruled), *ruled]
        findings += columns.check(seen_as, unknown)
        findings += launched.check(run, held, config)
        findings += launched.ruled(run, context)
        findings += _hook_findings(seen_as, unknown)
    name = "" if method.id == framework else method.id
    said, open_rules = tuple(ordered(findings)), tuple(undecided)
    return Checked(framework, release.version, entry, name, said, open_rules, context, run, unread)


def _against(
    wanted: str,
    framework: str,
    version: str,
    entry: str,
    config: Mapping[str, Json] | None,
    unknown: Collection[str] = (),
    layers: Layers | None = None,
) -> Iterator[Finding]:
    """Why a command is not the method that it is said to be: another program, or a key that the method pins.

    Args:
        config: what the command comes to; None where that is not known.
        unknown: keys whose value is not known.
    """
    if not wanted:
        return
    hint = "leave --method out to see what it is"
    method = catalog.method(wanted, version) if wanted.startswith(f"{framework}/") else None
    entries = [] if method is None else [method.spec.get("entry"), *method.spec.get("entries", ())]
    if method is None or entry not in entries:
        known = " or ".join(filter(None, entries)) or f"a program of {wanted.partition('/')[0]}"
        message = f"the command is not {wanted}, which runs {known}: it runs {entry}"
        yield Finding("method-mismatch", "error", message, hint)
        return
    for key, value in method.spec.get("identity", {}).items():
        if config is None or key in unknown or config.get(key) == value:
            continue
        origin = layers.origins.get(key) if layers else None
        place = (origin.file, origin.line) if origin else ("", 0)
        wants, has = surface.show(value), surface.show(config.get(key))
        message = f"the command is not {wanted}, which has {key}={wants}: here it is {has}"
        yield Finding("method-mismatch", "error", message, hint, key, *place)


def _method(framework: str, version: str, entry: str, wanted: str, config: Mapping[str, Json]) -> Method:
    """The method that a command runs: the one whose identity holds, the one that pins most first. Where
    none does, one of the same entry point is borrowed for its rules, without its identity; where no method
    runs the program, what is known of the program serves."""
    if wanted:
        return catalog.method(wanted, version)
    best: tuple[int, Method] | None = None
    spare: Method | None = None
    for method in candidates(framework, version, entry):
        identity = method.spec.get("identity", {})
        if all(config.get(key) == value for key, value in identity.items()):
            if best is None or len(identity) > best[0]:
                best = (len(identity), method)
        elif spare is None:
            spare = method
    if best is not None:
        return best[1]
    if spare is not None:
        others = [method.spec.get("rules", ()) for method in candidates(framework, version, entry)]
        shared = [topic for topic in spare.spec.get("rules", ()) if all(topic in rules for rules in others)]
        return spare._replace(id=framework, spec={**spare.spec, "identity": {}, "rules": shared})
    known = catalog.program(framework, version, entry)
    return known or Method(framework, framework, "", {}, {}, "")


@lru_cache(maxsize=64)
def candidates(framework: str, version: str, entry: str) -> tuple[Method, ...]:
    """The methods that an entry point can run."""
    names = [name for name, _, problem in catalog.methods(framework) if not problem]
    found = [catalog.method(name, version) for name in names]
    return tuple(m for m in found if entry in (m.spec.get("entry"), *m.spec.get("entries", ())))


def _request(
    method: Method,
    own: Mapping[str, Json],
    config: Mapping[str, Json],
    env: Mapping[str, str],
    deleted: list[str],
) -> Request:
    """The request that would have led to these settings."""
    found: dict[str, Location | None] = {}
    for flag, binding in method.spec.get("bind", {}).items():
        value = config.get(binding["key"])
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, str) and value and binding["key"] in own:
            here = os.path.exists(value) or value.startswith("/")
            found[flag] = Location("path", os.path.abspath(value)) if here else Location("hub", value)
    params: dict[str, Json] = {}
    for name, param in method.params.items():
        if any(key in own for key in param.keys):
            value = config.get(param.keys[0])
            if any(key in own and key not in config for key in param.keys):
                continue
            back = {str(native_value(param, word)): word for word in param.schema.get("enum", ())}
            params[name] = back.get(str(value), value)
    return Request(
        model=found.get("model"),
        train_data=found.get("train_data"),
        validation_data=found.get("validation_data"),
        params=params,
        env=env,
        native={"delete": deleted},
    )


def _topology(
    method: Method, run: Invocation, asked: Asked, own: Mapping[str, Json], config: Mapping[str, Json]
) -> Topology:
    """Hardware: what was said beside the command, then its launcher, then its own settings. The release's
    defaults say nothing about the machines that somebody has; files of settings may say how many."""
    declared = asked.facts.get("topology", {})
    launched = method.spec.get("launch", {}).get("launcher", "none") != "none"
    keys = {} if launched else method.spec.get("topology", {})

    def number(*candidates: Any) -> int:
        return next((n for n in candidates if isinstance(n, int) and not isinstance(n, bool) and n > 0), 0)

    named = [said.get(keys.get("nodes", "")) for said in (own, config)]
    nodes = number(asked.nodes, declared.get("nodes"), run.nodes, *named)
    unsure = [keys.get(name, "") for name in ("nodes", "gpus_per_node")]
    unsaid = run.nodes < 0 or any(own.get(key) == UNDECIDED for key in unsure)
    if unsaid and not (asked.nodes and asked.gpus_per_node):
        return Topology(())
    gpus = number(
        asked.gpus_per_node,
        declared.get("gpus_per_node"),
        run.per_node,
        own.get(keys.get("gpus_per_node", "")),
    )
    if not gpus:
        return Topology(())
    return Topology((Pool("main", str(declared.get("series", "gpu")), nodes or 1, gpus),), {})


def _hook_findings(context: Context, unknown: frozenset[str]) -> list[Finding]:
    """What the plugin says; nothing where it looked at a setting that nobody knows."""
    from tuneport.registry.plugins import Hooks

    watched = Watched(context.config, unknown)
    try:
        found = list(Hooks(context.method.framework, []).validate(context._replace(config=watched)))
        return [] if watched.read else found
    except TuneportError as error:
        return [Finding(error.code, "error", error.message, error.hint)]
