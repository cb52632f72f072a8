"""Turns an existing command line into an experiment that compiles back to the same configuration.

The result is compiled once before it is kept: what a method's own defaults would change is written out, and
a parameter that does not bring back exactly what the command says gives way to the native keys.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os.path import abspath, exists, isfile, join, lexists, normpath, splitext
from pathlib import Path
from typing import Any

from tuneport import linter
from tuneport.checks.rules import nested
from tuneport.compiler.adapter import relative_path
from tuneport.compiler.layers import Layers, flatten
from tuneport.dialects.hydra.render import equal
from tuneport.errors import Invalid
from tuneport.experiment import import_parts as parts
from tuneport.experiment import lock
from tuneport.experiment.create import write_folder
from tuneport.experiment.findings import ordered
from tuneport.experiment.request import Flags
from tuneport.experiment.secrets import secret_keys
from tuneport.registry import catalog
from tuneport.shell.gaps import open_
from tuneport.text import printable
from tuneport.types import Finding, Json, Method, Ref

MAX_ROUNDS = 4


@dataclass(slots=True)
class Draft:
    """An experiment before it is written. `flags` are those of `tp plan` that belong to it; `left` names what
    is not written, with the reason; `copied` are files that the command names, `behind` says of others why
    they are not, by key, `places` are full paths in place of relative ones; `source` is the program."""

    method: Method
    version: str
    config: dict[str, Json] = field(default_factory=dict)
    params: dict[str, Json] = field(default_factory=dict)
    native: dict[str, Json] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    resources: dict[str, Json] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)
    left: list[tuple[str, str]] = field(default_factory=list)
    copied: dict[str, Path] = field(default_factory=dict)
    behind: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    source: str = ""

    def files(self, title: str) -> dict[str, Path | str]:
        """The text of each file."""
        job = {"params": self.params, "env": self.env, "native": self.native, "resources": self.resources}
        job = {name: value for name, value in job.items() if value}
        texts: dict[str, Path | str] = {**self.copied}
        texts |= {"config.yaml": parts.yaml_text(title, nested(self.config))}
        if job:
            texts["job.yaml"] = parts.yaml_text("", job)
        texts[lock.NAME] = lock.text(lock.make(self.method.id, self.version))
        return texts


def draft(words: Sequence[str], asked: linter.Asked, place: str = "") -> tuple[Draft, list[Finding]]:
    """(the experiment, findings about it and about the script that the command comes from). `place` is the
    folder that it goes to, for its findings.

    Raises:
        Invalid: the command is broken or leaves something open, or no method says the same. NotFound: nothing
            here knows its program.
    """
    every, findings = linter.check_every(words, asked)
    if not every:
        raise Invalid(
            f"{words[0]} starts nothing that could be imported", code="script-nothing", findings=findings
        )
    every = [one for one in every if one.release] or every  # beside programs that nothing here knows
    if len(every) > 1:
        places = ", ".join(f"{one.run.file}:{one.run.line}" for one in every[:8])
        message = f"the script starts {len(every)} commands of a framework ({places}); one can be imported"
        raise Invalid(message, code="import-several", hint="give that command alone, as tp check reads it")
    checked = every[0]
    if checked.unread:
        message = "some of its words are refused, so it says nothing that could be imported"
        raise Invalid(message, code="import-broken", hint="correct them first", findings=checked.unread)
    if any(open_(word) for word in checked.run.arguments):
        unsure = [finding for finding in checked.findings if finding.code == "script-undecided"]
        message = "some of its words are not known, so no experiment can say the same"
        raise Invalid(message, code="import-undecided", hint="give them as --env NAME=VALUE", findings=unsure)
    problems: list[str] = []
    found: tuple[Draft, list[Finding]] | None = None
    fewest = 0  # a method that promises more than the command keeps gives way to one that does not
    for method in _fitting(checked, asked.method):
        made, different, said = _settled(checked, method, asked)
        if made is None:
            problems.append(f"{method.id} would change {', '.join(different[:4])}")
            continue
        errors = sum(finding.severity == "error" for finding in said)
        if found is None or errors < fewest:
            found, fewest = (made, said), errors
        if not errors:
            break
    if found is not None:
        made, said = found
        said = [replace(item, file=join(place, item.file) if item.file else "") for item in said]
        _left_behind(made, checked, said, place)
        return made, ordered([*said, *_placed(made), *findings])
    if problems:
        raise Invalid("; ".join(problems), code="import-lossy", hint="set these keys by hand after tp new")
    raise Invalid(
        f"no method of {checked.framework} is what this command runs: {_near(checked)}",
        code="import-method",
        hint="change the command to what one of them pins, or tp new with the nearest and set the rest",
    )


def _left_behind(made: Draft, checked: linter.Checked, said: Sequence[Finding], place: str) -> None:
    """Say of each file that did not come along why, and where it belongs."""
    for finding in said:
        value = checked.context.own.get(finding.key)
        name = relative_path(value) if finding.severity == "error" else ""
        if splitext(name)[1] and not lexists(name):
            made.behind.setdefault(finding.key, f"{value} is not in the working directory")
    for key, why in made.behind.items():
        target = join(place, normpath(str(checked.context.own.get(key))))
        made.left.append((key, f"its file: {why}; put it at {target}"))


def _placed(made: Draft) -> list[Finding]:
    """Notes on the files that stay where they are."""
    found = []
    for key, path in made.places.items():
        message = f"`{key}` names a file outside the experiment, which stays there: it is written as {path}"
        hint = "copy it into the experiment under another name, and name that, to take it along"
        found.append(Finding("import-place", "note", message, hint, key))
    return found


def title(made: Draft) -> str:
    """The comment on top of config.yaml. It names the program alone: a command's words may hold secrets."""
    return (
        f"Imported from: {printable(made.source)}\n"
        "Keys of the release; parameters with names of Tuneport's are in job.yaml."
    )


def _fitting(checked: linter.Checked, wanted: str) -> list[Method]:
    """The methods whose identity holds, the one that pins most first."""
    config = checked.context.config
    if wanted:
        return [_wanted(checked, wanted)]
    found = linter.candidates(checked.framework, checked.release, checked.entry)
    fitting = [
        method
        for method in found
        if all(config.get(key) == value for key, value in method.spec.get("identity", {}).items())
    ]
    return sorted(fitting, key=lambda method: -len(method.spec.get("identity", {})))


def _wanted(checked: linter.Checked, name: str) -> Method:
    """The method that was asked for.

    Raises:
        Invalid: the command runs something else.
    """
    method = catalog.method(name, checked.release)
    entries = [entry for entry in (method.spec.get("entry"), *method.spec.get("entries", ())) if entry]
    said = list(_unlike(checked, method))
    if method.framework != checked.framework or checked.entry not in entries:
        said = [f"{name} runs {' or '.join(entries) or method.framework}, not {checked.entry}"]
    if said:
        message = f"the command is not {name}: {'; '.join(said)}"
        raise Invalid(message, code="import-method", hint="leave --method out to find the one that fits")
    return method


def _unlike(checked: linter.Checked, method: Method) -> Iterator[str]:
    """What a method pins and the command sets otherwise."""
    for key, value in method.spec.get("identity", {}).items():
        present = checked.context.config.get(key)
        if present != value:
            yield f"{method.id} needs {key}={value}, not {present}"


def _near(checked: linter.Checked) -> str:
    """What keeps each method of the program from being what the command runs."""
    methods = linter.candidates(checked.framework, checked.release, checked.entry)
    said = [line for method in methods for line in _unlike(checked, method)]
    return "; ".join(said) or "nothing here runs it"


def _settled(
    checked: linter.Checked, method: Method, asked: linter.Asked
) -> tuple[Draft | None, list[str], list[Finding]]:
    """(a draft that compiles back to the command's configuration, or the keys that it cannot bring back,
    findings about the draft)."""
    context = checked.context
    original = _effective(context.release.keys, context.own, context.request.native.get("delete", ()))
    made = _first(checked, method, asked)
    held: set[str] = set()  # keys that no parameter may write
    different: list[str] = []
    for _ in range(MAX_ROUNDS):
        params = parts.parameters(made.config, context, method, held)
        trial = _with(made, params)
        planned, findings = _compiled(trial)
        if planned is None:
            return None, ["what chooses its files"], findings
        unwritten = (key for key, _ in made.left)  # what each is instead was said
        skip = [*parts.platform_keys(method), *parts.left_open(context), *unwritten]
        different = [
            key
            for key in {**original, **planned}
            if not _covered(key, skip) and not _alike(original.get(key, _NONE), planned.get(key, _NONE))
        ]
        if not different:
            return trial, [], findings
        for key in different:
            held.add(key)
            if key in original:
                made.config[key] = original[key]
    return None, different, []


_NONE: Json = object()


def _alike(left: Json, right: Json) -> bool:
    if isinstance(right, Ref):  # a file that came along
        name = normpath(left) if isinstance(left, str) else ""
        return right.ref == "work_dir" and name not in parts.OURS and f"/{name}" == right.suffix
    if isinstance(left, str) and isinstance(right, str) and right.startswith("/") and "\0" not in left:
        return left == right or (abspath(left) == right and exists(right))  # one that stays where it is
    if left is _NONE or right is _NONE:
        return left is right
    return equal(left, right)


def _covered(key: str, names: Sequence[str]) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in names)


def _with(made: Draft, params: Mapping[str, tuple[Json, tuple[str, ...]]]) -> Draft:
    """A draft with parameters in place of the keys that they write."""
    written = {key for _, keys in params.values() for key in keys}
    config = {key: value for key, value in made.config.items() if key not in written}
    values = {name: value for name, (value, _) in params.items()}
    return replace(made, config=config, params=values)


def _first(checked: linter.Checked, method: Method, asked: linter.Asked) -> Draft:
    """Everything that the command sets, sorted into what an experiment, a request and the platform say."""
    context, spec = checked.context, method.spec
    run = checked.run
    source = f"{run.module} in {run.file}:{run.line}" if isfile(run.file) else run.module
    made = Draft(method, checked.release, source=source)
    bound = {binding["key"]: flag for flag, binding in spec.get("bind", {}).items()}
    owned = {**dict.fromkeys(spec.get("platform", {}), "Tuneport says where the job writes")}
    owned |= dict.fromkeys(spec.get("reserved", {}), "not yours to set here")
    owned |= secret_keys(context.own, {**asked.env, **run.env})
    pools = parts.Pools(checked, method)
    for key, value in context.own.items():
        reason = next((why for name, why in owned.items() if _covered(key, [name])), "")
        if reason:
            made.left.append((key, reason))
        elif key in bound or key in spec.get("identity", {}) or key in pools.keys:
            continue
        elif context.origins[key].layer == "native.append" and not parts.has_place(key, context):
            made.native.setdefault("append", {})[key] = value
        else:
            made.config[key] = value
    for key, flag in bound.items():
        value = context.config.get(key)
        known = context.release.keys.get(key)
        if value is None:
            if key in context.own and known is not None and known.default is not None:
                made.left.append((key, "no request can say null: the release's default stands instead"))
        elif key in context.own or spec["bind"][flag].get("required"):
            made.flags[f"--{flag.replace('_', '-')}"] = parts.location_text(value)
    made.flags |= pools.flags
    made.resources = pools.resources
    made.left += pools.left
    made.native |= parts.choices(context)
    if checked.entry != spec.get("entry", checked.entry):
        made.native["entry"] = checked.entry
    named = parts.named_files(made.config)
    made.copied = named.copied
    made.config |= named.places
    made.behind, made.places = named.left, named.places
    made.left += [
        (f"{flag} {value}".rstrip(), "a setting of the launcher: say it by parameters or keys")
        for flag, value in run.settings
    ]
    made.env, left = parts.environment(run, method, asked.env)
    made.left += left
    return made


def _effective(keys: Mapping[str, Json], own: Mapping[str, Json], deleted: Sequence[str]) -> dict[str, Json]:
    layers = Layers(keys)
    layers.own.update(own)
    layers.drop(deleted)
    return _leaves(layers.effective())


def _leaves(flat: Mapping[str, Json]) -> dict[str, Json]:
    """A configuration by its innermost keys: a mapping may be one key's value or several keys."""
    return {".".join(path): value for path, value in flatten(nested(flat), {})}


def _compiled(made: Draft) -> tuple[dict[str, Json] | None, list[Finding]]:
    """(the effective configuration that the experiment compiles to, None where it has none; findings)."""
    from tuneport import workflow

    flags: dict[str, Any] = {
        name.removeprefix("--").replace("-", "_"): value for name, value in made.flags.items()
    }
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "experiment"
        write_folder(folder, made.files(""))
        report = workflow.validate(str(folder), Flags(**flags))
    findings = [replace(finding, file=finding.file.removeprefix(f"{folder}/")) for finding in report.findings]
    if report.compiled is None or "group-option" in {f.code for f in findings}:
        return None, findings
    return _leaves(report.compiled.layers.effective()), findings
