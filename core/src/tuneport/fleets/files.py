"""The bytes of a plan's files. Values keep their type under every reader: YAML 1.1 and 1.2, JSON."""

from __future__ import annotations

import json
import re
from typing import Any

from tuneport.errors import Invalid
from tuneport.types import FileSpec

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[./-][A-Za-z0-9_]+)*\Z")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity"})


def render(spec: FileSpec) -> bytes:
    """The file's content, every reference resolved.

    Raises:
        Invalid: a value that the format cannot hold.
    """
    try:
        if spec.format == "text":
            return str(spec.content).encode()
        if spec.format == "json":
            return (json.dumps(spec.content, ensure_ascii=False, indent=2, allow_nan=False) + "\n").encode()
        return yaml_text(spec.content).encode()
    except (ValueError, TypeError) as error:
        raise Invalid(f"a {spec.format} file cannot hold this: {error}", code="plan-file") from error


def yaml_text(tree: Any, *, blocks: bool = False) -> str:
    """The tree as YAML. With `blocks`, text of several lines is written line by line, for people to read."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - named by PyYAML
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        # Everything that some version of YAML might read as another type is quoted.
        if blocks and "\n" in value.strip() and value.replace("\n", "").isprintable():
            return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|")
        plain = _PLAIN.match(value) and value.lower() not in _WORDS
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else '"')

    Dumper.add_representer(str, text)
    rendered: str = yaml.dump(
        tree, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=2**31, default_flow_style=False
    )
    return rendered
