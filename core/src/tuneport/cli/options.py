"""The request flags that `validate`, `plan`, `submit`, `export` and `eval` share, and their completion."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])


def experiment_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from tuneport.experiment import project

    try:
        found = project.find_project()
    except Exception:  # a completion must never print an error into the user's prompt
        return []
    from click.shell_completion import CompletionItem

    return [CompletionItem(n) for n in (project.names(found) if found else []) if n.startswith(incomplete)]


def method_ids(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from tuneport.registry import catalog

    framework = incomplete.partition("/")[0] if "/" in incomplete else ""
    try:
        rows = catalog.methods(framework)
    except Exception:  # as above
        return []
    from click.shell_completion import CompletionItem

    return [CompletionItem(name, help=title) for name, title, _ in rows if name.startswith(incomplete)]


def parameter_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """`NAME=` of each parameter of the experiment's method."""
    from tuneport.experiment import project
    from tuneport.registry import catalog

    try:
        # While `--set` has no value yet click has assigned no argument: they are all still in `args`.
        written = project.read(ctx.params.get("experiment") or ctx.args[0])
        assert written.lock is not None
        method = catalog.method(written.lock["recipe"]["name"], written.lock["framework"]["version"])
    except Exception:  # as above
        return []
    from click.shell_completion import CompletionItem

    return [CompletionItem(f"{name}=") for name in method.params if name.startswith(incomplete)]


experiment_argument = click.argument("experiment", shell_complete=experiment_names)

_FLAGS = [
    click.option("--framework-version", metavar="V", default="", help="The release; it must be the lock's."),
    click.option("--profile", metavar="SERIES:GPUS", default="", help="Hardware, such as h200:8 or cpu:2."),
    click.option("--resources", metavar="FILE", default="", help="Hardware as pools and roles."),
    click.option("--model", metavar="NAME", default="", help="Model name or folder."),
    click.option("--train-data", metavar="PATH", default="", help="Training data."),
    click.option("--validation-data", metavar="PATH", default="", help="Validation data."),
    click.option(
        "--train-dataset", metavar="REF", default="", help="owner/name@version that --train-data is in."
    ),
    click.option("--validation-dataset", metavar="REF", default="", help="The same for --validation-data."),
    click.option(
        "--set",
        "sets",
        metavar="NAME=VALUE",
        multiple=True,
        shell_complete=parameter_names,
        help="A parameter.",
    ),
    click.option(
        "--image", metavar="REF", default="", help="Container image instead of the release's runtime."
    ),
    click.option("--fleet", metavar="NAME", default="", help="Where to run (default: local)."),
    click.option(
        "--facts", metavar="FILE", default="", help="What is known of data and model that are elsewhere."
    ),
]


_COMMAND_FLAGS = [
    click.option(
        "--framework", metavar="NAME", default="", help="Look for the program in this framework only."
    ),
    click.option(
        "--framework-version", metavar="V", default="", help="The release (default: the default one)."
    ),
    click.option(
        "--method", metavar="ID", default="", shell_complete=method_ids, help="Take it as this method."
    ),
    click.option("--nodes", type=click.IntRange(1), default=None, help="Machines that the command runs on."),
    click.option("--gpus-per-node", type=click.IntRange(1), default=None, help="Accelerators of each."),
    click.option("--facts", metavar="FILE", default="", help="What is known of data, model and hardware."),
    click.option(
        "--env", "variables", metavar="NAME=VALUE", multiple=True, help="A variable the command sees."
    ),
    click.argument("words", nargs=-1, required=True, metavar="-- CMD...", type=click.UNPROCESSED),
]


def command_flags(function: F) -> F:
    """Add what `check` and `import` know of an existing command. The verb receives the command's `words`, and
    the rest as `known`, keywords of `workflow.check`."""
    import functools

    @functools.wraps(function)
    def with_flags(*args: Any, **kwargs: Any) -> Any:
        known: dict[str, Any] = {name: kwargs.pop(name) for name in ("framework", "method", "facts")}
        known |= {"version": kwargs.pop("framework_version"), "env": _variables(kwargs.pop("variables"))}
        known |= {name: kwargs.pop(name) or 0 for name in ("nodes", "gpus_per_node")}
        return function(*args, known=known, **kwargs)

    decorated: Any = with_flags
    for option in reversed(_COMMAND_FLAGS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def _variables(given: tuple[str, ...]) -> dict[str, str]:
    from tuneport.errors import UsageError

    found = {}
    for variable in given:
        name, equal, value = variable.partition("=")
        if not equal or not name:
            raise UsageError(f"--env {variable!r} is not NAME=VALUE", code="usage")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise UsageError(
                f"--env {variable!r}: {name!r} is no variable's name (letters, digits, _; no digit first)",
                code="usage",
            )
        found[name] = value
    return found


def request_flags(function: F) -> F:
    """Add the request flags. The verb receives them as one `flags: Flags`."""
    import functools

    from tuneport.experiment.request import Flags

    @functools.wraps(function)
    def with_flags(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in Flags._fields if name in kwargs}
        return function(*args, flags=Flags(**given), **kwargs)

    decorated: Any = with_flags
    for option in reversed(_FLAGS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
