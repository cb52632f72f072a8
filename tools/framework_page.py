"""The page of a framework, docs/frameworks/<framework>.md, made from its manifests.

A hand-written opening, tools/openings/<framework>.md, says how to start; everything below it is data.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tuneport.experiment.scripts import read_flags
from tuneport.experiment.values import describe
from tuneport.registry import catalog, surfaces, vocabulary
from tuneport.types import Key, Method, Param

ROOT = Path(__file__).resolve().parents[1]
OPTIONS = "In the formulas r is a token's probability now over that when it was sampled, A the advantage."
LICENCE = "<!-- Written by tools/reference_pages.py from the manifests: change those, then run it again. -->"


def framework_page(framework: str) -> str:
    """The whole page."""
    spec = catalog.framework_spec(framework)
    methods = [row[0] for row in catalog.methods(framework)]
    opening = (ROOT / f"tools/openings/{framework}.md").read_text("utf-8").rstrip("\n")
    lines = [f"# {spec.get('title', framework)}", "", LICENCE, "", f"{spec['summary'].rstrip('.')}."]
    if "homepage" in spec:
        lines += [f"Upstream: <{spec['homepage']}>, {spec['license']}."]
    lines += ["", opening, "", "## Releases", "", *_releases(framework), "", "## Methods", ""]
    if len(methods) > 1:
        lines += [*_course(methods), ""]
    for method in methods:
        lines += [*_method(framework, method), ""]
    if any(_params(framework, method) for method in methods):
        lines += ["## Parameters", "", *_parameters(framework, methods), ""]
    if variants := list(_variants(methods)):
        lines += ["## Parameters with another engine", "", *variants]
    if options := list(_options(framework, methods)):
        lines += ["## What values mean", "", OPTIONS, "", *options]
    return "\n".join(lines).rstrip("\n") + "\n"


def _releases(framework: str) -> Iterator[str]:
    releases = catalog.releases(framework)
    specs = [catalog.release_spec(framework, release) for release in releases]
    default = catalog.default_release(framework)
    names = [f"{name} (default)" if name == default else name for name in releases]
    yield from _columns(["", *names])
    rows: dict[str, list[str]] = defaultdict(list)
    for spec in specs:
        runtime = spec["runtime"]
        variants = runtime.get("venv", {}).get("variants", {})
        rows["status"].append(spec.get("status", "supported"))
        rows["read from"].append(
            "<br>".join(f"{item['name']} {item['version']}" for item in spec.get("artefacts", ()))
        )
        rows["proved with"].append(
            "<br>".join(f"{name} {pin}" for name, pin in sorted(spec.get("pins", {}).items()))
        )
        rows["runtime"].append(f"`{runtime['id']}`")
        rows["environment"].append(
            "<br>".join(f"`{name}`: Python {item.get('python', 'any')}" for name, item in variants.items())
        )
        rows["image"].append(_image(framework, runtime))
        rows["keys that moved"].append(
            "<br>".join(f"`{move['from']}` → `{move['to']}`" for move in spec.get("moves", ()))
        )
    for title, cells in rows.items():
        same = len(set(cells)) == 1 and len(cells) > 1 and "<br>" in cells[0]
        yield _row([title, *(cells if not same else [cells[0], *["the same"] * (len(cells) - 1)])])


def _image(framework: str, runtime: Mapping[str, Any]) -> str:
    published = runtime.get("oci", {}).get("image", "")
    if published:
        return f"`{published}`"
    built = "venv" in runtime or "build" in runtime.get("oci", {})
    if not built or not (ROOT / f"deploy/docker/Dockerfile.{framework}").exists():
        return "none known here: bring one"
    return f"none known here; `deploy/docker/Dockerfile.{framework}` builds one"


def _course(methods: Sequence[str]) -> Iterator[str]:
    """The order in which methods are best met: from one without a reward, along the first of its links."""
    following = {name: _told(name).get("next", [""])[0] for name in methods}
    start = next(
        (name for name in methods if "demonstrations" in _spec(name).get("starts_from", ())), methods[0]
    )
    path = [start]
    while following[path[-1]] in methods and following[path[-1]] not in path:
        path.append(following[path[-1]])
    links = [f"[{catalog.method(name).title}](#{name.replace('/', '')})" for name in path]
    yield f"A good order to meet them: {', '.join(links)}."


def _method(framework: str, method_id: str) -> Iterator[str]:
    method = catalog.method(method_id)
    spec, told = method.spec, _told(method_id)
    yield from (f"### {method_id}", "", f"{spec.get('summary', method.title).rstrip('.')}.", "")
    for name in ("problem", "words"):
        yield from (" ".join(told[name].split()), "")
    yield from ("```text", *told["formula"], "```", "")
    yield from _columns(["", ""])
    yield _row(["releases", ", ".join(catalog.releases(framework))])
    yield _row(["needs", "<br>".join(_needs(framework, spec)) or "nothing"])
    yield _row(["pins", _literals(spec.get("identity", {})) or "nothing"])
    yield _row(["sets by default", _literals(spec.get("defaults", {})) or "nothing"])
    yield _row(["roles", ", ".join(f"`{role}`" for role in spec.get("roles", ()))])
    if papers := spec.get("papers"):
        yield _row(["papers", "<br>".join(map(_paper, papers))])
    own = {item["file"] for item in told["symbols"]} <= set(catalog.templates(method_id))
    where = "in what `tp new` writes" if own else "in the release"
    yield _row([where, "<br>".join(map(_symbol, told["symbols"]))])
    lifecycle = spec.get("lifecycle", {})
    formats = lifecycle.get("export", {}).get("formats", [])
    yield _row(["export", ", ".join(f"`{name}`" for name in formats) or "none"])
    measured = lifecycle.get("eval", {})
    yield _row(
        ["evaluation", f"`{measured['file']}`" if "file" in measured else "itself" if measured else "none"]
    )
    yield _row(["next", ", ".join(_link(framework, name) for name in told["next"])])
    yield from ("", "What to watch:", "")
    primary, _ = catalog.metric_aliases(method_id)
    watch = told.get("watch", {})
    for name in dict.fromkeys([*primary, *watch]):
        yield f"- `{name}`" + (f": {watch[name]}" if name in watch else "")
    yield from ("", "When it goes wrong:", "")
    yield from (f"- {line}" for line in told["failures"])


def _needs(framework: str, spec: Mapping[str, Any]) -> Iterator[str]:
    """What a request or an experiment has to bring, beside hardware."""
    required = [name for name, bind in spec.get("bind", {}).items() if bind.get("required")]
    if required:
        yield ", ".join(f"`--{name.replace('_', '-')}`" for name in required)
    yield from (f"`{name}`: {why}" for name, why in spec.get("requires_files", {}).items())
    if spec.get("image") == "required":
        releases = catalog.releases(framework)
        host = all(catalog.release_spec(framework, name)["runtime"].get("host") for name in releases)
        yield "`--image`" + (" on any fleet but `local`" if host else "")


def _link(framework: str, method_id: str) -> str:
    """A method, on this page or on that of its framework."""
    other, _, _ = method_id.partition("/")
    page = "" if other == framework else f"{other}.md"
    return f"[{method_id}]({page}#{method_id.replace('/', '')})"


def _parameters(framework: str, methods: Sequence[str]) -> Iterator[str]:
    """One row for each parameter and way to bind it, with the methods that have it."""
    scripts = {script for method in methods if (script := _script(method))}
    whose = f"those of the `{scripts.pop()}` that `tp new` writes" if scripts else "the release's"
    yield f"Defaults are {whose}, in native terms, unless they are marked as the method's own."
    yield "`tp methods METHOD` shows one method's alone, `tp explain EXPERIMENT PARAMETER` a value's origin."
    yield ""
    yield from _columns(["parameter", "values", "default", "unit", "native key", "methods", "meaning"])
    words = vocabulary.words()
    for name in sorted({name for method in methods for name in _params(framework, method)}):
        rows: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for method in methods:
            found = _params(framework, method).get(name)
            if found:
                rows[_binding(framework, method, found)].append(method)
        word = words[name]
        for (values, default, unit, keys, note), having in rows.items():
            meaning = _sentence(word["meaning"]) + (f" {_sentence(note)}" if note else "")
            cells = [values, default, unit or word.get("unit", ""), keys, _some(having, methods), meaning]
            yield _row([f"`{name}`", *cells])


def _binding(framework: str, method_id: str, found: Mapping[str, Param]) -> tuple[str, ...]:
    """(values, default, unit where it is the method's own, native keys, note) of a parameter; where releases
    differ, each is told."""
    ways = {}
    for release, param in found.items():
        keys = "<br>".join(f"`{key}`" for key in param.keys)
        default = f"{_literal(param.default)} (method)" if param.has_default else ""
        if not default and param.keys:
            known = _surface(framework, release, method_id).get(param.keys[0])
            default = _literal(known.default) if known is not None and not known.required else ""
        said = catalog.method(method_id, release).spec["params"][param.name]
        ways[release] = (describe(param), default, said.get("unit", ""), keys, said.get("note", ""))
    missing = set(catalog.releases(framework)) - set(found)
    if len(set(ways.values())) == 1 and not missing:
        return next(iter(ways.values()))
    columns = zip(*ways.values(), strict=True)
    told = [
        cells[0]
        if len(set(cells)) == 1
        else "<br>".join(f"{release}: {cell or 'none'}" for release, cell in zip(ways, cells, strict=True))
        for cells in columns
    ]
    if missing:
        told[3] += f"<br>not in {', '.join(sorted(missing))}"
    return tuple(told)


def _variants(methods: Sequence[str]) -> Iterator[str]:
    """Where another engine calls a parameter by another key, or has none."""
    groups: dict[str, list[str]] = defaultdict(list)
    for method in methods:
        groups[json.dumps(_spec(method).get("variants", {}), sort_keys=True)].append(method)
    for text, having in groups.items():
        variants = json.loads(text)
        if not variants:
            continue
        yield f"Chosen by `{variants['by']}`, for {_some(having, methods)}. A dash: there is no such key."
        yield ""
        cases = variants["cases"]
        yield from _columns(["parameter", *(f"`{case}`" for case in cases)])
        for name in sorted({name for case in cases.values() for name in case}):
            cells = []
            for case in cases.values():
                keys = case.get(name)
                cells.append("" if keys is None else "<br>".join(f"`{key}`" for key in keys) or "–")
            yield _row([f"`{name}`", *cells])
        yield ""


def _options(framework: str, methods: Sequence[str]) -> Iterator[str]:
    seen: set[str] = set()
    for method in methods:
        for name, values in _told(method).get("options", {}).items():
            if name in seen or not _params(framework, method).get(name):
                continue
            seen.add(name)
            yield from (f"### {name}", "")
            for value, told in values.items():
                yield f"- `{value}`: {' '.join(told['words'].split())}"
                yield from (f"  - `{line}`" for line in told.get("formula", ()))
                for part in (*map(_symbol, told.get("symbols", ())), *map(_paper, told.get("papers", ()))):
                    yield f"  - {part}"
            yield ""


def _spec(method_id: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = catalog.method(method_id).spec
    return found


def _told(method_id: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _spec(method_id).get("explain", {})
    return found


@cache
def _params(framework: str, method_id: str) -> dict[str, dict[str, Param]]:
    """Parameter -> release -> how it is bound there."""
    found: dict[str, dict[str, Param]] = defaultdict(dict)
    for release in catalog.releases(framework):
        for name, param in catalog.method(method_id, release).params.items():
            found[name][release] = param
    return found


def _script(method_id: str) -> str:
    """The experiment's own file whose flags are the keys, where the method has such a surface."""
    name: str = _spec(method_id).get("surface", {}).get("script", "")
    return name


@cache
def _surface(framework: str, version: str, method_id: str) -> Mapping[str, Key]:
    """The keys as the method meets them before anybody sets one."""
    if script := _script(method_id):
        source = catalog.templates(method_id)[script].read_text("utf-8")
        flags: Mapping[str, Any] = read_flags(source, script)["flags"]
        return {
            name: Key(name, tuple(flag["types"]), flag.get("default"), bool(flag["required"]))
            for name, flag in flags.items()
        }
    method: Method = catalog.method(method_id, version)
    chosen = {**method.spec.get("defaults", {}), **method.spec.get("identity", {})}
    return surfaces.release(framework, version, method.spec["entry"], chosen).keys


def _some(having: Sequence[str], methods: Sequence[str]) -> str:
    """Names of methods, shortly."""
    others = [name for name in methods if name not in having]
    if not others:
        return "all"
    if len(others) < len(having) and len(others) < 3:
        return f"all but {', '.join(map(_short, others))}"
    return ", ".join(map(_short, having))


def _short(method_id: str) -> str:
    return method_id.partition("/")[2]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _literal(value: Any) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def _literals(values: Mapping[str, Any]) -> str:
    return "<br>".join(f"`{key}: {json.dumps(value, ensure_ascii=False)}`" for key, value in values.items())


def _symbol(item: Mapping[str, str]) -> str:
    return f"`{item['file']}`, `{item['symbol']}`"


def _paper(item: Mapping[str, Any]) -> str:
    where = f"https://arxiv.org/abs/{item['arxiv']}" if "arxiv" in item else item.get("url", "")
    title = f"[{item['title']}]({where})" if where else item["title"]
    return f"{title} ({item['year']})"


def _columns(titles: Sequence[str]) -> tuple[str, str]:
    return _row(titles), "|---" * len(titles) + "|"


def _row(cells: Iterable[str]) -> str:
    return "".join(f"| {cell.replace('|', '&#124;')} " if cell else "| " for cell in cells) + "|"
