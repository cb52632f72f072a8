"""The whole configuration as one YAML file that the program is pointed at."""

from __future__ import annotations

from collections.abc import Mapping

from tuneport.checks.rules import nested
from tuneport.dialects import Rendered
from tuneport.types import Context, FileSpec, Json


def render(settings: Mapping[str, Json], context: Context) -> Rendered:
    """Settings: `file` (default `tuneport-config.yaml`) and `flag`; an empty flag passes the name alone.
    `nested: false` keeps dotted keys as they are."""
    file = settings.get("file", "tuneport-config.yaml")
    tree = nested(context.own) if settings.get("nested", True) else dict(context.own)
    flag = settings.get("flag", "--config")
    argv = (flag, file) if flag else (file,)
    return Rendered(argv=argv, files={file: FileSpec("yaml", tree)})
