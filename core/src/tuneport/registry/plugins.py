"""Loads plugins by need and calls their hooks. One that is broken is a row here, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tuneport.errors import Invalid, NotFound, TuneportError
from tuneport.registry.deadline import TooLong, deadline
from tuneport.registry.scan import EntryPoint, entry_points
from tuneport.settings import setting

if TYPE_CHECKING:  # at run time where they are needed: a command that only looks at jobs needs none
    from tuneport.types import Bindings, Context, Finding, LaunchPlan, Location

T = TypeVar("T")
_HOOKS = ("validate", "bind_args", "topology", "launch", "export")
_SEVERITIES = ("error", "warning", "note")


class PluginRow(NamedTuple):
    """One installed plugin as `tp plugins` shows it; `problem` is empty where it loads. Of manifests,
    `folder` is where the data lives, `provides` its frameworks, `trust` its level (see `registry.trust`)."""

    kind: str
    name: str
    dist: str
    version: str
    target: str
    enabled: bool
    problem: str = ""
    folder: str = ""
    provides: tuple[str, ...] = ()
    trust: str = ""


def points(group: str) -> dict[str, list[EntryPoint]]:
    """The enabled entry points of a group by name. More than one for a name is the caller's error."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group):
        if enabled(point.name):
            found.setdefault(point.name, []).append(point)
    return found


def enabled(name: str) -> bool:
    """TUNEPORT_PLUGINS is an allow-list (empty: none); TUNEPORT_DISABLE_PLUGINS a block-list."""
    allowed = setting("PLUGINS")
    if allowed is not None and name not in _names(allowed):
        return False
    return name not in _names(setting("DISABLE_PLUGINS") or "")


def _names(text: str) -> set[str]:
    return {name.strip() for name in text.split(",") if name.strip()}


def unique(group: str, name: str) -> EntryPoint | None:
    """The one entry point called `name`, None where there is none.

    Raises:
        Invalid: two distributions claim the name; both are named.
    """
    found = points(group).get(name, [])
    if len(found) > 1:
        claims = " and ".join(f"{point.dist} {point.version}" for point in found)
        raise Invalid(
            f"{group.removeprefix('tuneport.')[:-1]} {name!r} is claimed by {claims}",
            code="plugin-duplicate",
            hint="uninstall one of them",
        )
    return found[0] if found else None


def load(point: EntryPoint) -> Any:
    """The object an entry point names.

    Raises:
        Invalid: importing it failed, whatever it raised; the distribution is named.
    """
    import importlib

    module, _, attributes = point.value.partition(":")
    try:
        with deadline():
            target: Any = importlib.import_module(module.strip())
            for attribute in filter(None, attributes.strip().split(".")):
                target = getattr(target, attribute)
        return target
    except (Exception, SystemExit, TooLong) as error:  # a plugin may raise anything while it is imported
        raise Invalid(
            f"plugin {point.name!r} of {point.dist} {point.version} cannot be loaded: "
            f"{type(error).__name__}: {error}",
            code="plugin-broken",
            hint=f"reinstall or remove {point.dist}, or set TUNEPORT_DISABLE_PLUGINS={point.name}",
        ) from error


class Hooks:
    """The hooks of one framework plus the enabled policies, with real types and named blame."""

    def __init__(self, framework: str, policies: Iterable[str] = ()) -> None:
        import pluggy

        from tuneport import hookspec

        self._manager = pluggy.PluginManager(hookspec.PROJECT)
        self._manager.add_hookspecs(hookspec)
        if setting("TRACE_HOOKS") not in (None, "", "0"):
            self._manager.add_hookcall_monitoring(_trace_before, lambda *_: None)
        self._who = framework
        self._names: dict[str, str] = {}
        point = unique("tuneport.frameworks", framework)
        if point is None:
            from tuneport.compiler.adapter import DeclarativeAdapter

            _refuse_missing(framework)
            self._register(DeclarativeAdapter(), framework, "the manifest alone")
        else:
            self._who = f"{framework} ({point.dist} {point.version})"
            self._register(_instance(point), framework, self._who)
        self._policies = tuple(policies)
        for name in self._policies:
            self._register_policy(name)

    def validate(self, context: Context) -> list[Finding]:
        """What the framework finds, and what the policies do."""
        return self._validate(context, self._manager.list_name_plugin())

    def permit(self, context: Context) -> list[Finding]:
        """What the policies alone find: of a job about a trained model, training itself is not judged."""
        plugins = self._manager.list_name_plugin()
        return self._validate(context, [one for one in plugins if one[0].startswith("policy:")])

    def _validate(self, context: Context, asked: list[tuple[str, Any]]) -> list[Finding]:
        from tuneport.types import Finding

        findings: list[Finding] = []
        for name, plugin in asked:  # one at a time, so that the right one is blamed
            others = [other for _, other in self._manager.list_name_plugin() if other is not plugin]
            hook = self._manager.subset_hook_caller("validate", others)

            def collect(hook: Any = hook) -> list[Any]:
                return [finding for result in hook(context=context) for finding in result or ()]

            found = self._checked("validate", self._call("validate", collect, name), Finding, name)
            odd = next(filter(None, map(_odd_finding, found)), "")
            if odd:
                raise self._blame("validate", odd, name)
            findings.extend(found)
        return findings

    def bind_args(self, context: Context) -> Bindings:
        from tuneport.types import Bindings

        return self._one("bind_args", Bindings, lambda: self._manager.hook.bind_args(context=context))

    def topology(self, context: Context) -> Bindings:
        from tuneport.types import Bindings

        return self._one("topology", Bindings, lambda: self._manager.hook.topology(context=context))

    def launch(self, context: Context) -> LaunchPlan:
        """The plan with what the policies add to it, and a label that names those which changed it.

        Raises:
            Invalid: the framework or a policy failed, or a policy changed more than it may; it is named.
        """
        wrappers = [i.plugin_name for i in self._manager.hook.launch.get_hookimpls() if i.wrapper]
        plan = self._layer(context, wrappers, "")
        changed = []
        for number, name in enumerate(wrappers, 1):  # from the innermost, so that the right one is blamed
            # A copy, or a policy that changes a part in place would change what its plan is compared with.
            inner = _copied(plan)
            plan = self._layer(context, wrappers[number:], name)
            if plan != inner:
                self._within_bounds(inner, plan, name)
                changed.append(name.removeprefix("policy:"))
        labels = {**plan.labels, "tuneport.policies": ",".join(changed)}
        return replace(plan, labels=labels) if changed else plan

    def _layer(self, context: Context, without: Collection[str], name: str) -> LaunchPlan:
        """The plan without some of the policies; `name` is the outermost that is left."""
        from tuneport.types import LaunchPlan

        left_out = [plugin for known, plugin in self._manager.list_name_plugin() if known in without]
        hook = self._manager.subset_hook_caller("launch", left_out)
        result = self._call("launch", lambda: hook(context=context), name)
        (plan,) = self._checked("launch", [result], LaunchPlan, name)
        if odd := _odd(plan):
            raise self._blame("launch", odd, name)
        return plan

    def _within_bounds(self, inner: LaunchPlan, plan: LaunchPlan, name: str) -> None:
        """Refuse a policy that changed more than environment, labels and mounts."""
        commands = tuple(
            replace(command, env=mine.env)
            for command, mine in zip(plan.commands, inner.commands, strict=False)
        )
        if replace(plan, commands=commands, labels=inner.labels, mounts=inner.mounts) != inner:
            short = name.removeprefix("policy:")
            raise Invalid(
                f"{self._names[name]} changed more than environment, labels and mounts",
                code="policy-plan",
                hint=f"`tp plugins` names its distribution; take {short} out of `policies` meanwhile",
            )

    def export(self, context: Context, checkpoint: Location, format: str) -> LaunchPlan:  # noqa: A002
        from tuneport.types import LaunchPlan

        made = self._one(
            "export",
            LaunchPlan,
            lambda: self._manager.hook.export(context=context, checkpoint=checkpoint, format=format),
        )
        return self.around(context, made)

    def around(self, context: Context, plan: LaunchPlan) -> LaunchPlan:
        """A plan that is not the framework's launch, with what the policies add to every plan.

        Raises:
            Invalid: as `launch`.
        """
        from tuneport.hookspec import hookimpl

        class Made:
            @hookimpl
            def launch(self) -> LaunchPlan:
                made: LaunchPlan = _copied(plan)  # of each time that it is asked, as the framework's is
                return made

        made = Made()
        self._manager.register(made, "made")  # the last that is registered is the first that is asked
        try:
            return self.launch(context)
        finally:
            self._manager.unregister(made)

    def _one(self, hook: str, kind: type[T], call: Callable[[], Any]) -> T:
        return self._checked(hook, [self._call(hook, call)], kind)[0]

    def _call(self, hook: str, call: Callable[[], Any], name: str = "") -> Any:
        try:
            with deadline():
                return call()
        except TuneportError:
            raise
        except (Exception, SystemExit, TooLong) as error:
            raise self._blame(
                hook, f"raised {type(error).__name__}: {error}", name or self._culprit(hook, error)
            ) from error

    def _checked(self, hook: str, results: list[Any], kind: type[T], name: str = "") -> list[T]:
        for result in results:
            if not isinstance(result, kind):
                raise self._blame(hook, f"returned {type(result).__name__}, not {kind.__name__}", name)
        return results

    def _culprit(self, hook: str, error: BaseException) -> str:
        """The registered name of the plugin whose implementation the error passed through last."""
        codes = {
            getattr(item.function, "__code__", None): item.plugin_name
            for item in getattr(self._manager.hook, hook).get_hookimpls()
        }
        name, trace = "", error.__traceback__
        while trace is not None:
            name = codes.get(trace.tb_frame.f_code, name)
            trace = trace.tb_next
        return name

    def _blame(self, hook: str, what: str, name: str = "") -> Invalid:
        return Invalid(
            f"the plugin for {self._names.get(name, self._who)} failed in {hook}: it {what}",
            code="plugin-failed",
            hint="this is a bug in that plugin; `tp plugins` names its distribution",
        )

    def _register(self, plugin: object, name: str, who: str) -> None:
        import pluggy

        self._names[name] = who
        for hook in _HOOKS:
            if (
                callable(getattr(plugin, hook, None))
                and self._manager.parse_hookimpl_opts(plugin, hook) is None
            ):
                raise Invalid(
                    f"the plugin for {who} does not fit the hooks: {hook} lacks @hookimpl",
                    code="plugin-hooks",
                    hint="an override needs the decorator again",
                )
        try:
            self._manager.register(plugin, name)
            self._manager.check_pending()
        except (pluggy.PluginValidationError, ValueError) as error:
            raise Invalid(
                f"the plugin for {who} does not fit the hooks: {error}", code="plugin-hooks"
            ) from error

    def _register_policy(self, name: str) -> None:
        point = unique("tuneport.policies", name)
        if point is None:
            known = ", ".join(sorted(points("tuneport.policies"))) or "none"
            raise NotFound(f"policy {name!r} is not installed (installed: {known})", code="policy-missing")
        self.add_policy(name, _instance(point), point.dist)

    def add_policy(self, name: str, policy: object, dist: str = "") -> None:
        """Ask a policy as well, for this request alone.

        Raises:
            Invalid: it implements more than a policy may, or does not fit the hooks.
        """
        self._register(policy, f"policy:{name}", f"policy {name} ({dist})" if dist else f"policy {name}")
        for caller in self._manager.get_hookcallers(policy) or []:
            for implementation in caller.get_hookimpls():
                if implementation.plugin is policy and not (
                    caller.name == "validate" or (caller.name == "launch" and implementation.wrapper)
                ):
                    raise Invalid(
                        f"policy {name!r} of {dist or 'this process'} implements {caller.name}; a policy may "
                        "implement validate, and launch as a hook wrapper",
                        code="policy-hook",
                        hint=f"remove {name} from `policies`",
                    )
        self._policies = tuple(dict.fromkeys([*self._policies, name]))


def _odd_finding(finding: Finding) -> str:
    """What is wrong with a finding that a plugin gave; empty where nothing is."""
    for name in ("code", "message", "hint", "key", "file", "source"):
        if not isinstance(value := getattr(finding, name), str):
            return f"gave a finding whose {name} is {type(value).__name__}, not text"
    if not isinstance(finding.line, int):
        return f"gave {finding.code} the line {finding.line!r}"
    return "" if finding.severity in _SEVERITIES else f"gave {finding.code} the severity {finding.severity!r}"


def _odd(plan: LaunchPlan) -> str:
    """What is wrong with a plan that a plugin gave; empty where nothing is."""
    from tuneport.types import Ref

    try:
        for command in plan.commands:
            for value in (*command.argv, *command.env.values()):
                if not isinstance(value, str | Ref):
                    return f"put {type(value).__name__} where argv and env take text or a Ref"
            for name in command.env:
                if not isinstance(name, str):
                    return f"named a variable with {type(name).__name__}, not text"
        for name, value in plan.labels.items():
            if not (isinstance(name, str) and isinstance(value, str)):
                return f"gave a label that is not text: {name!r}: {value!r}"
        if isinstance(plan.mounts, str) or not all(isinstance(one, str) for one in plan.mounts):
            return f"gave mounts that are no list of texts: {plan.mounts!r}"
    except (TypeError, AttributeError) as error:
        return f"returned a plan with a part of the wrong type: {error}"
    return ""


def _copied(value: Any) -> Any:
    """A plan, or a part of one, that shares nothing with it that can be changed."""
    if isinstance(value, Mapping):
        return {key: _copied(one) for key, one in value.items()}
    if hasattr(value, "_fields"):  # a NamedTuple
        return type(value)(*map(_copied, value))
    if isinstance(value, list | tuple):
        return [*map(_copied, value)] if isinstance(value, list) else tuple(map(_copied, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _copied(getattr(value, one.name)) for one in fields(value)})
    return value


def _refuse_missing(framework: str) -> None:
    """A framework whose manifest names the distribution of its adapter is nothing without it."""
    from tuneport.registry import catalog

    dist = catalog.framework_spec(framework).get("plugin", "")
    if dist:
        raise NotFound(
            f"the adapter of {framework} is not installed or not enabled",
            code="plugin-missing",
            hint=f"pip install {dist}, or check TUNEPORT_PLUGINS and TUNEPORT_DISABLE_PLUGINS",
        )


def _instance(point: EntryPoint) -> object:
    target = load(point)
    if not isinstance(target, type):
        return target
    try:
        with deadline():
            instance: object = target()
        return instance
    except (Exception, SystemExit, TooLong) as error:
        raise Invalid(
            f"plugin {point.name!r} of {point.dist} cannot be created: {type(error).__name__}: {error}",
            code="plugin-broken",
        ) from error


def _trace_before(hook: str, implementations: Sequence[Any], _arguments: Mapping[str, Any]) -> None:
    names = ", ".join(implementation.plugin_name for implementation in implementations)
    sys.stderr.write(f"tp: hook {hook}: {names}\n")


def rows(*, check: bool) -> list[PluginRow]:
    """Every installed plugin. With `check` each is loaded, so that a broken one shows why."""
    found: list[PluginRow] = []
    for group in ("tuneport.frameworks", "tuneport.fleets", "tuneport.policies", "tuneport.manifests"):
        kind = group.removeprefix("tuneport.").rstrip("s").replace("policie", "policy")
        by_name: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group):
            by_name.setdefault(point.name, []).append(point)
        for name, claims in sorted(by_name.items()):
            for point in claims:
                problem = ""
                if len(claims) > 1 and kind != "manifest":
                    others = ", ".join(other.dist for other in claims if other is not point)
                    problem = f"also claimed by {others}"
                elif check and enabled(name):
                    problem = _problem(kind, point)
                on = kind == "manifest" or enabled(name)
                row = PluginRow(kind, name, point.dist, point.version, point.value, on, problem)
                found.append(_with_data(row, point) if check and kind == "manifest" and not problem else row)
    return found


def _with_data(row: PluginRow, point: EntryPoint) -> PluginRow:
    """The row with what a data package provides, and how far it can be trusted."""
    from tuneport.experiment.site import required_trust
    from tuneport.registry import sources, trust

    folder = sources.locate(point).folder
    provides = tuple(sources.frameworks_in(folder))
    try:
        wanted, keys = required_trust()
        seen = trust.examine(folder, keys.values())
        problem = "; ".join(seen.problems[:3])
        if not problem and trust.LEVELS.index(seen.level) < trust.LEVELS.index(wanted):
            problem = f"{seen.level}, and the site asks for {wanted}"
    except TuneportError as error:
        return row._replace(folder=str(folder), provides=provides, problem=error.message)
    return row._replace(folder=str(folder), provides=provides, trust=seen.level or "changed", problem=problem)


def _problem(kind: str, point: EntryPoint) -> str:
    try:
        if kind == "framework":
            Hooks(point.name)
        elif kind == "manifest":
            from tuneport.registry.sources import locate

            locate(point)
        else:
            load(point)
    except TuneportError as error:
        return error.message
    return ""


def fleet_factory(kind: str) -> Any:
    """What makes fleets of a kind (`local`, `ray`, …) from their settings. Nothing else is imported.

    Raises:
        NotFound: no installed plugin offers the kind.
    """
    return load(_fleet_point(kind))


def load_fleet(kind: str, settings: Mapping[str, Any]) -> Any:
    """The fleet of a kind, made with its settings.

    Raises:
        NotFound: no installed plugin offers the kind.
    """
    point = _fleet_point(kind)
    factory = load(point)
    try:
        with deadline():
            return factory(settings)
    except TuneportError:
        raise
    except (Exception, SystemExit, TooLong) as error:
        raise Invalid(
            f"fleet {kind!r} of {point.dist} cannot be created: {type(error).__name__}: {error}",
            code="plugin-broken",
        ) from error


def _fleet_point(kind: str) -> EntryPoint:
    point = unique("tuneport.fleets", kind)
    if point is None:
        known = ", ".join(sorted(points("tuneport.fleets"))) or "none"
        raise NotFound(
            f"no installed plugin offers fleets of kind {kind!r} (installed: {known})",
            code="fleet-plugin-missing",
            hint=f"pip install tuneport-fleet-{kind}",
        )
    return point
