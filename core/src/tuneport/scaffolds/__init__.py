"""What `tp plugin new` writes: text with `@name@` and its like where the plugin's own words go."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tuneport.errors import Invalid, NotFound, UsageError

KINDS = ("method", "framework", "adapter", "policy")
_HERE = Path(__file__).parent
_DATA = "src/@module@_manifests"
_FRAMEWORK = {
    f"{_DATA}/@framework@/framework.yaml": "framework/framework.yaml",
    f"{_DATA}/@framework@/releases/1.yaml": "framework/release.yaml",
    f"{_DATA}/@framework@/methods/descent.yaml": "framework/method.yaml",
    f"{_DATA}/@framework@/templates/descent/train.py": "framework/train.py",
    f"{_DATA}/@framework@/templates/descent/config.yaml": "framework/config.yaml",
}
_FILES: Mapping[str, Mapping[str, str]] = {
    "method": {f"{_DATA}/@framework@/methods/@method@.yaml": "method/method.yaml"},
    "framework": _FRAMEWORK,
    "adapter": {
        **_FRAMEWORK,
        "src/@module@/__init__.py": "adapter/init.py",
        "src/@module@/adapter.py": "adapter/adapter.py",
        "src/@module@/py.typed": "",
        "tests/test_@module@.py": "adapter/test_adapter.py",
    },
    "policy": {
        "src/@module@/__init__.py": "policy/init.py",
        "src/@module@/policy.py": "policy/policy.py",
        "src/@module@/py.typed": "",
        "tests/test_@module@.py": "policy/test_policy.py",
    },
}


def write(name: str, kind: str, target: Path, extends: str = "") -> list[Path]:
    """Write a project for a plugin into `target`, which may not hold anything yet.

    Args:
        name: of the framework or policy; for a method its id.
        extends: the method that a method builds on.

    Raises:
        UsageError: the name or `extends` does not fit the kind. NotFound: no such framework or method.
        Invalid: the folder is not empty, or the name is taken.
    """
    words = _words(name, kind, extends)
    _refuse_taken(words, kind)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Invalid(f"{target} exists already", code="folder-exists", hint="name another folder")
    plan = {"pyproject.toml": f"{kind}/pyproject.toml", "README.md": f"{kind}/README.md"}
    plan |= {"tests/test_contract.py": "common/test_contract.py", **_FILES[kind]}
    written = []
    for place, source in plan.items():
        path = target / _filled(place, words)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (_HERE / f"{source}.txt").read_text("utf-8") if source else ""
        path.write_text(_filled(text, words), "utf-8")
        written.append(path)
    return written


def _words(name: str, kind: str, extends: str) -> dict[str, str]:
    part = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"
    if kind != "method":
        if extends:
            raise UsageError("--extends is for --kind method", code="usage")
        if not re.fullmatch(part, name):
            raise UsageError(
                f"{name!r} is no name for a {kind}",
                code="usage",
                hint="use lower-case words joined by dashes",
            )
        framework, method = name, ""
    else:
        if not re.fullmatch(f"{part}/{part}", name):
            raise UsageError(
                f"{name!r} is no id for a method",
                code="usage",
                hint="write FRAMEWORK/NAME in lower-case words joined by dashes",
            )
        framework, _, method = name.partition("/")
        extends = _base(framework, extends)
    short = name.replace("/", "-")
    return {
        "name": short,
        "id": name,
        "dist": f"tuneport-{short}",
        "module": f"tuneport_{short.replace('-', '_')}",
        "framework": framework,
        "method": method,
        "base": extends.rpartition("/")[2],
        "title": (method or name).replace("-", " ").capitalize(),
    }


def _refuse_taken(words: Mapping[str, str], kind: str) -> None:
    """Two packages of one name cannot be installed together, nor two plugins that claim one name."""
    from importlib.util import find_spec

    from tuneport.registry import catalog, scan

    dist, name = words["dist"], words["id"]
    if kind == "method":
        names = {row[0] for row in catalog.methods(words["framework"])}
    elif kind == "policy":
        names = {point.name for point in scan.entry_points("tuneport.policies")}
    else:
        names = {*catalog.frameworks(), *(point.name for point in scan.entry_points("tuneport.frameworks"))}
    taken = f"the {kind if kind != 'adapter' else 'framework'} {name}" if name in names else ""
    if not taken and dist in _distributions():
        taken = f"a distribution {dist}"
    for module in (words["module"], f"{words['module']}_manifests"):
        if not taken and find_spec(module) is not None:
            taken = f"a module {module}"
    if taken:
        raise Invalid(f"there is {taken} already", code="plugin-name-taken", hint="choose another name")


def _distributions() -> set[str]:
    """What is installed, and what Tuneport itself is made of, installed or not."""
    from importlib.metadata import PackageNotFoundError, distributions, requires

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: set[str] = {canonicalize_name(one.name or "") for one in distributions()}
    for whole in ("tuneport", "tuneport-core"):
        try:
            lines = requires(whole) or ()
        except PackageNotFoundError:
            continue
        found |= {canonicalize_name(Requirement(line).name) for line in lines}
    return found


def _base(framework: str, extends: str) -> str:
    from tuneport.registry import catalog

    known = [row[0] for row in catalog.methods(framework)]
    if not extends:
        raise UsageError(
            "--kind method needs --extends: the method that it builds on",
            code="usage",
            hint=f"{framework} has {', '.join(known)}",
        )
    if f"{framework}/{extends.rpartition('/')[2]}" not in known:
        raise NotFound(
            f"{framework} has no method {extends!r}", code="method-unknown", hint=f"it has {', '.join(known)}"
        )
    return extends


def _filled(text: str, words: Mapping[str, str]) -> str:
    return re.sub(r"@([a-z]+)@", lambda found: words[found[1]], text)
