"""What of the catalog names a native key: methods and their parameters, rules, metrics, knowledge."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tuneport.errors import TuneportError

_SECTIONS = ("identity", "defaults", "platform", "reserved", "append")


def touches(framework: str, release: str, keys: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Native key -> what names it, sorted: `METHOD params.NAME`, `METHOD bind.model`, `rule CODE`,
    `METHOD metrics.NAME`, `METHOD explain`. Keys that nothing names are left out.

    Args:
        release: the one whose gates and mixins count; the default one where the manifests lack it.
    """
    from tuneport.checks import programs
    from tuneport.registry import catalog

    if not framework or not keys:
        return {}
    version = release if release in catalog.releases(framework) else catalog.default_release(framework)
    found: dict[str, set[str]] = {}
    topics: set[str] = set()
    for name, _, _ in catalog.methods(framework):
        try:
            method = catalog.method(name, version)
        except TuneportError:
            continue  # its manifest is broken, which `tp plugins` says
        topics |= set(method.spec.get("rules", ()))
        for key, what in _method(method.spec, method.params):
            if key in keys:
                found.setdefault(key, set()).add(f"{name} {what}")
        for key in keys:
            for what in _named(method.spec, key):
                found.setdefault(key, set()).add(f"{name} {what}")
    try:
        topics.update(*(method.spec.get("rules", ()) for method in programs.unrun(framework, version)))
        checks, inert = catalog.rules(framework, version, sorted(topics))
    except TuneportError:
        checks, inert = [], []
    for rule in (*checks, *inert):
        text = " ".join(str(rule.get(word, "")) for word in ("require", "when", "unless", "key", "say"))
        for key in keys:
            if _reads(text, key):
                found.setdefault(key, set()).add(f"rule {rule.get('code', 'inert-key')}")
    return {key: tuple(sorted(names)) for key, names in sorted(found.items())}


def _method(spec: Mapping[str, Any], params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, param in params.items():
        for key in param.keys:
            yield key, f"params.{name}"
    for section in _SECTIONS:
        for key in spec.get(section, {}):
            yield key, section
    for name, binding in spec.get("bind", {}).items():
        yield str(binding.get("key", "")), f"bind.{name}"
    for name, key in spec.get("topology", {}).items():
        for one in [key] if isinstance(key, str) else ():
            yield one, f"topology.{name}"
    variants = spec.get("variants", {})
    yield str(variants.get("by", "")), "variants"
    for case in variants.get("cases", {}).values():
        for name, names in case.items():
            for key in [names] if isinstance(names, str) else names:
                yield str(key), f"variants.{name}"


def _named(spec: Mapping[str, Any], key: str) -> Iterator[str]:
    last = key.rpartition(".")[2]
    for name, tags in spec.get("metrics", {}).get("aliases", {}).items():
        if any(_reads(str(tag), key) for tag in ([tags] if isinstance(tags, str) else tags)):
            yield f"metrics.{name}"
    explain = spec.get("explain", {})
    symbols = [*explain.get("symbols", ())]
    for options in explain.get("options", {}).values():
        symbols += [item for option in options.values() for item in option.get("symbols", ())]
    if any(str(item.get("symbol", "")).rpartition(".")[2] == last for item in symbols):
        yield "explain.symbols"


def _reads(text: str, key: str) -> bool:
    """Whether a text has a key as a whole, with `cfg.` before it or not."""
    if key not in text:
        return False
    pattern = rf"(?:^|[^\w.-]|\bcfg\.){re.escape(key)}(?![\w-]|\.\w)"
    return re.search(pattern, text) is not None
