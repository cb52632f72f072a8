"""Parameters that share a key whose value is a list: the halves of a pair, or what a list of records says."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

from tuneport.dialects.hydra.render import equal
from tuneport.experiment import values
from tuneport.registry.plugins import Hooks
from tuneport.types import Context, Json, Param

_TRIES = 200  # settings that are asked about a key, of which few have more than a dozen
Found = Mapping[str, tuple[Json, tuple[str, ...]]]


def parameters(
    lists: Mapping[str, Json], context: Context, found: Found
) -> dict[str, tuple[Json, tuple[str, ...]]]:
    """The parameters that together write exactly what a list says, of those that are not `found` by
    themselves: name -> (value, the keys). What they may be is what the list holds, and the words they take.

    Args:
        context: as the framework's adapter is asked, without parameters.
    """
    hooks = Hooks(context.method.framework, [])
    said = {key for _, keys in found.values() for key in keys}
    result: dict[str, tuple[Json, tuple[str, ...]]] = {}
    for key, value in lists.items():
        names = {param.name for param in context.method.params.values() if key in param.keys}
        if key in said or not names or not _plain(value) or names & found.keys():
            continue
        params = [context.method.params[name] for name in sorted(names)]
        # Adapters look at what a key holds for the half that is not set; that half is to be found, too.
        bare = context._replace(config={name: item for name, item in context.config.items() if name != key})
        before = hooks.bind_args(bare).values
        for setting in itertools.islice(_settings(params, value, context), _TRIES):
            asked = bare._replace(request=bare.request._replace(params=setting))
            wrote = hooks.bind_args(asked).values
            new = {k: v for k, v in wrote.items() if k not in before or not equal(before[k], v)}
            if new.keys() == {key} and equal(new[key], value):
                result |= {name: (one, (key,)) for name, one in setting.items()}
                break
    return result


def _settings(params: Sequence[Param], value: Json, context: Context) -> Iterator[dict[str, Json]]:
    """Values for two of the parameters, and then for one."""
    inside = list(_inside(value))
    options = {
        param.name: [
            one
            for one in [*param.schema.get("enum", ()), *inside]
            if not any(values.check({param.name: one}, context.method, "params"))
        ]
        for param in params
    }
    for size in (2, 1):
        for names in itertools.combinations(options, size):
            for chosen in itertools.product(*(options[name] for name in names)):
                yield dict(zip(names, chosen, strict=True))


def _inside(value: Json) -> Collection[Json]:
    """The values that a list holds, and what it holds holds, each once."""
    if not isinstance(value, dict | list):
        return (value,)
    items = value.values() if isinstance(value, dict) else value
    return {repr(one): one for item in items for one in _inside(item)}.values()


def _plain(value: Json) -> bool:
    """Whether no text in it is an interpolation."""
    return not any(isinstance(one, str) and "${" in one for one in _inside(value))
