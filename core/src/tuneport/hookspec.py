"""The contract between Tuneport and a framework plugin: five hooks, two screens.

A framework plugin is a class whose methods carry `@hookimpl`, published under the entry-point group
`tuneport.frameworks` with the framework's name. Each hook is a pure function of its arguments: no
file, clock, randomness, network, environment variable or framework import. An implementation may
take fewer arguments than its specification, never others. Later versions only add arguments.

A policy (group `tuneport.policies`) implements `validate`, and `launch` as a hook wrapper only.
"""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from tuneport.types import Bindings, Context, Finding, LaunchPlan, Location

PROJECT = "tuneport"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def validate(context: Context) -> Iterable[Finding]:  # type: ignore[empty-body]
    """Findings beyond those that the manifest's own data gives.

    Args:
        context: the request with every layer of the configuration applied.

    Returns:
        any number of findings; an exception is reported as a finding that blames the plugin.

    Must not repeat what surface, ownership, rules and inert keys already say.
    """


@hookspec(firstresult=True)
def bind_args(context: Context) -> Bindings | None:
    """Native keys for the request's parameters, model and data.

    Args:
        context: `config` holds defaults, identity, method defaults and `config.yaml`.

    Returns:
        native key -> literal or Ref. Lengths are in tokens, batches as the native key counts them:
        the method's `values` have been applied by the declarative adapter.
    """


@hookspec(firstresult=True)
def topology(context: Context) -> Bindings | None:
    """Native keys that describe pools and roles (nodes; accelerators per node).

    Returns:
        native key -> literal or Ref; empty where the launcher alone carries the topology.
    """


@hookspec(firstresult=True)
def launch(context: Context) -> LaunchPlan | None:
    """The exact launch of one release: argv, environment, files, runtime, pools.

    Args:
        context: the finished effective configuration.

    Returns:
        a plan whose argv, environment and file values are literals or Refs.

    Raises:
        tuneport.errors.Invalid: with findings, where the request cannot be launched at all.
    """


@hookspec(firstresult=True)
def export(context: Context, checkpoint: Location, format: str) -> LaunchPlan | None:  # noqa: A002
    """The launch that turns a checkpoint into the Hugging Face layout (or the named `format`).

    Args:
        checkpoint: what to convert; kind `experiment` is not used here.
        format: one of the method's `lifecycle.export.formats`.

    Returns:
        a plan with action `export` that writes to the Ref `output_dir`.
    """
