"""The declarative adapter: all five hooks from the manifest alone.

A framework that needs nothing special has no Python at all. A plugin subclasses this and overrides
what is truly particular (marking the override with `@hookimpl` again).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from posixpath import normpath

from tuneport import dialects
from tuneport.checks import sections
from tuneport.compiler import convert
from tuneport.compiler.plan import ref_from_json
from tuneport.errors import Invalid
from tuneport.hookspec import hookimpl
from tuneport.types import (
    Bindings,
    Command,
    Context,
    FileSpec,
    Finding,
    Json,
    LaunchPlan,
    Location,
    Origin,
    Param,
    Ref,
    RuntimeNeed,
    Topology,
    Value,
)


class DeclarativeAdapter:
    """Reads `bind`, `params`, `variants`, `topology`, `launch` and `lifecycle` of the method's manifest, and
    `moves` of the release's."""

    @hookimpl
    def validate(self, context: Context) -> Iterable[Finding]:
        return meaningless(context, self.case(context))

    @hookimpl
    def bind_args(self, context: Context) -> Bindings | None:
        values, case, given = moved(context), self.case(context), context.request.params
        keys = {name: variant_keys(context, context.method.params[name], case) for name in given}
        # In whatever order they were written, what one says of one key counts for more than what another says
        # of several.
        for name in sorted(given, key=lambda name: -len(keys[name])):
            values.update(written(context, context.method.params[name], given[name], keys[name]))
        for flag, location in locations(context).items():
            binding = context.method.spec.get("bind", {}).get(flag)
            if binding is not None:
                values[binding["key"]] = bound_value(location)
        return Bindings(values, Origin("request"))

    def case(self, context: Context) -> str:
        """Which of the method's `variants` a request is in; to override where one key does not say it."""
        return variant(context)

    @hookimpl
    def topology(self, context: Context) -> Bindings | None:
        wanted = context.method.spec.get("topology", {})
        pool = context.topology.primary
        values = {
            wanted[field]: getattr(pool, field) for field in ("nodes", "gpus_per_node") if field in wanted
        }
        return Bindings(values, Origin("topology"))

    @hookimpl
    def launch(self, context: Context) -> LaunchPlan | None:
        launch = context.method.spec["launch"]
        seen = sections.without(context)
        rendered = dialects.render(launch.get("dialect", {"name": "flags"}), seen)
        argv = [*launcher(context), *target(program(context)), *rendered.argv]
        env = {**declared_env(launch), **rendered.env, **context.request.env}
        role = context.method.spec.get("roles", ["main"])[0]
        pool = context.topology.roles.get(role, context.topology.primary.name)
        command = Command(role, tuple(argv), env, rendered.files, pool)
        measures = context.method.spec.get("lifecycle", {}).get("eval", {}).get("launch", False)
        return plan(context, (command,), "eval" if measures else "train")

    @hookimpl
    def export(self, context: Context, checkpoint: Location, format: str) -> LaunchPlan | None:  # noqa: A002
        formats = context.method.spec.get("lifecycle", {}).get("export", {}).get("formats", ())
        raise Invalid(
            f"{context.method.id} has no exporter for {format!r} (checkpoint {checkpoint.value})",
            code="export-unsupported",
            hint=f"formats of this method: {', '.join(formats) or 'none'}",
        )


def locations(context: Context) -> dict[str, Location]:
    """The request's model and data that were given, by their name in `bind`."""
    given = {
        "model": context.request.model,
        "train_data": context.request.train_data,
        "validation_data": context.request.validation_data,
    }
    return {name: location for name, location in given.items() if location is not None}


def bound_value(location: Location) -> Json:
    """What a key is set to that takes one file or several."""
    first = location_value(location)
    return [first, *map(location_value, location.others)] if location.others else first


def location_value(location: Location) -> Value:
    """A location as a literal or as a Ref that the fleet resolves."""
    inside = f"/{location.value}" if location.value else ""
    if location.kind in ("dataset", "run"):
        return Ref("dataset" if location.kind == "dataset" else "run_output", inside, location.owner)
    if location.kind == "experiment":
        return Ref("work_dir", "" if location.value == "." else f"/{location.value}")
    return location.value


def relative_path(value: Json) -> str:
    """A path inside the experiment as its list of files spells it; empty for any other value."""
    if not isinstance(value, str) or not value or value.startswith(("/", "~", "$")) or "://" in value:
        return ""
    path = normpath(value)
    return "" if path.startswith("..") or "${" in path else path


def moved(context: Context) -> dict[str, Json]:
    """What is set under old keys that the release still takes, under the new ones, which are what it reads. A
    new key that is set itself wins."""
    found: dict[str, Json] = {}
    own, keys = context.own, context.release.keys
    for move in context.release.spec.get("moves", ()):
        old, new = move["from"], move["to"]
        for name, value in own.items():
            if name == old or name.startswith(f"{old}."):
                target = new + name.removeprefix(old)
                if name in keys and target in keys and target not in own and value is not None:
                    found[target] = value
    return found


def variant(context: Context) -> str:
    """The value of the key that chooses among the method's `variants`, as a parameter or the configuration
    says it; empty where nothing does, or where it is no text."""
    by = context.method.spec.get("variants", {}).get("by")
    if by is None:
        return ""
    for name, value in context.request.params.items():
        if by in context.method.params[name].keys:
            return str(native_value(context.method.params[name], value))
    composed = context.release.composed
    chosen = (composed.groups.get(by) if composed else None) or context.config.get(by)
    return chosen if isinstance(chosen, str) else ""


def meaningless(context: Context, case: str) -> list[Finding]:
    """An error for each parameter that has no key in one of the method's `variants`. A command is judged by
    its keys."""
    variants, params = context.method.spec.get("variants"), context.method.params
    if not variants or context.linted:
        return []
    code = variants.get("code") or "param-variant"
    by = next((param for param in params.values() if variants["by"] in param.keys), None)
    if by is None:  # as where the method itself decides: there may be no choice
        where, advice = f"{variants['by']} is {json.dumps(context.config.get(variants['by'], case))}", ""
    else:
        known = case in by.schema.get("enum", (case,))
        asked = case if known else next((name for name, word in by.values.items() if word == case), case)
        where = f"{by.name} is {context.request.params.get(by.name, asked)}"
        advice = f", or choose another {by.name}"
    return [
        Finding(code, "error", f"{name} means nothing where {where}", f"leave {name} out{advice}", name)
        for name in context.request.params
        if not variant_keys(context, params[name], case)
    ]


def variant_keys(context: Context, param: Param, case: str) -> tuple[str, ...]:
    """The keys that a parameter writes in one of the method's `variants`; none where it means nothing."""
    cases: Mapping[str, Mapping[str, Json]] = context.method.spec.get("variants", {}).get("cases", {})
    return tuple(cases.get(case, {}).get(param.name, param.keys))


def written(context: Context, param: Param, value: Json, keys: Iterable[str]) -> dict[str, Json]:
    """What a parameter writes to these keys, in their unit; nothing while a factor of that is not known, as
    devices are without hardware."""
    if convert.is_converted(param):
        value = convert.native(context, param, value)
        if value is None:
            return {}
    return dict.fromkeys(keys, native_value(param, value))


def native_value(param: Param, value: Json) -> Json:
    """What a parameter's value is in native terms; `values` of the manifest is keyed by its JSON text,
    strings by themselves."""
    text = value if isinstance(value, str) else json.dumps(value)
    return param.values.get(text, value)


def launcher(context: Context) -> list[Value]:
    """The words before the program: the interpreter, and one process per device where the method asks."""
    spec = context.method.spec["launch"]
    pool = context.topology.primary
    kind = spec.get("launcher", "none")
    if isinstance(kind, Mapping):
        kind = kind.get(pool.series, kind.get("*", "none"))
    python = Ref("python")
    if kind == "none":
        return [] if "argv" in spec["run"] else [python]
    if kind == "torchrun":
        return [python, "-m", "torch.distributed.run", *_rendezvous(pool.nodes, pool.gpus_per_node)]
    words: list[Value] = [python, "-m", "accelerate.commands.launch"]
    total = pool.nodes * pool.gpus_per_node
    words += ["--num_machines", str(pool.nodes), "--num_processes", str(total), "--mixed_precision", "no"]
    words += [
        "--dynamo_backend",
        "no",
        "--main_process_ip",
        Ref("head_addr"),
        "--main_process_port",
        Ref("head_port"),
    ]
    words += ["--machine_rank", Ref("node_rank")]
    return [*words, *(["--multi_gpu"] if total > 1 else [])]


def _rendezvous(nodes: int, processes: int) -> list[Value]:
    count: list[Value] = [f"--nproc_per_node={processes}"]
    if nodes == 1:
        # Both ends are on this machine and the port is one that was free when the job started.
        return [*count, "--nnodes=1", "--master_addr", Ref("head_addr"), "--master_port", Ref("head_port")]
    rank: list[Value] = ["--node_rank", Ref("node_rank")]
    return [
        *count,
        f"--nnodes={nodes}",
        *rank,
        "--master_addr",
        Ref("head_addr"),
        "--master_port",
        Ref("head_port"),
    ]


def program(context: Context) -> Mapping[str, Json]:
    """`launch.run` of the manifest, with the module that `native.entry` of job.yaml names instead."""
    run: Mapping[str, Json] = context.method.spec["launch"]["run"]
    entry = context.request.native.get("entry")
    return {"module": entry} if entry and "module" in run else run


def target(run: Mapping[str, Json]) -> list[Value]:
    """The program: a module, a file of the experiment, or words of the manifest's own."""
    if "module" in run:
        return ["-m", run["module"]]
    if "file" in run:
        return [run["file"]]
    return [ref_from_json(word) if isinstance(word, dict) else word for word in run["argv"]]


def declared_env(launch: Mapping[str, Json]) -> dict[str, Value]:
    """`launch.env` of the manifest."""
    return {
        name: ref_from_json(value) if isinstance(value, dict) else value
        for name, value in launch.get("env", {}).items()
    }


def runtime(release_spec: Mapping[str, Json], image: str, topology: Topology, own: bool) -> RuntimeNeed:
    """What the plan runs in: an image that was named, the user's own environment where the fleet (`own`) and
    the release allow it, otherwise the release's runtime in the variant for the hardware."""
    spec = release_spec["runtime"]
    if spec.get("host") and not image and own:
        return RuntimeNeed(spec["id"], host=True)
    variant = ""
    series = topology.primary.series
    for name, item in spec.get("venv", {}).get("variants", {}).items():
        if series in item["series"]:
            variant = name
            break
        if "*" in item["series"] and not variant:
            variant = name
    return RuntimeNeed(spec["id"], variant, image)


def plan(context: Context, commands: tuple[Command, ...], action: str = "train") -> LaunchPlan:
    """The plan around some commands, with everything that does not depend on the framework."""
    spec = context.release.spec
    return LaunchPlan(
        method=context.method.id,
        release=f"{context.release.framework} {context.release.version}",
        runtime=runtime(spec, context.request.image, context.topology, context.request.own_environment),
        pools=context.topology.pools,
        commands=commands,
        config={name: context.own[name] for name in sorted(context.own)},
        lifecycle=dict(context.method.spec.get("lifecycle", {})),
        source=dict(context.files),
        action=action,  # type: ignore[arg-type] # train, export and eval are the callers' words
    )


def script_plan(
    context: Context, name: str, text: str, env: Mapping[str, Value], action: str, args: Iterable[Value] = ()
) -> LaunchPlan:
    """A plan that runs one script of the platform's in the release's runtime: exporters use it."""
    command = Command(
        action, (Ref("python"), name, *args), {**context.request.env, **env}, {name: FileSpec("text", text)}
    )
    return plan(context, (command,), action)
