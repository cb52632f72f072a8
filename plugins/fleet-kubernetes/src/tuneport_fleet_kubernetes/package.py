"""The job's files in a ConfigMap: those that the plan writes, and the experiment's if no claim has them."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from tuneport.errors import Invalid

from tuneport_fleet_kubernetes.names import labels

MAX_BYTES = 1024 * 1024
"""What a ConfigMap takes (MaxSecretSize in k8s.io/kubernetes/pkg/apis/core)."""
REPORTER = "tuneport_report.py"


def keys(names: Iterable[str]) -> dict[str, str]:
    """Key of the ConfigMap -> path of a file. Kubernetes takes few characters in a key, and any in a path.

    Raises:
        Invalid: a path that Kubernetes refuses.
    """
    found = {}
    for number, name in enumerate(sorted(names)):
        if name.startswith("..") or any(part in ("..", "") for part in PurePosixPath(name).parts):
            raise Invalid(
                f"{name!r} cannot be in a ConfigMap: a path there must not begin with two dots",
                code="upload-name",
                hint="rename the file",
            )
        found[f"file-{number}"] = name
    return found


def reporter() -> str:
    """`tuneport_report`, which scripts import."""
    spec = find_spec("tuneport.report")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).read_text("utf-8")


def config_map(
    name: str, files: Mapping[str, str], texts: Mapping[str, str], more: Mapping[str, str]
) -> dict[str, Any]:
    """The ConfigMap with the texts in it, by path; `with_experiment` adds the rest."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels(name, more)},
        "data": {key: texts[path] for key, path in files.items() if path in texts},
        "immutable": True,
    }


def with_experiment(map_: Mapping[str, Any], files: Mapping[str, str], folder: Path | None) -> dict[str, Any]:
    """The ConfigMap with the experiment's files, read from `folder`, too.

    Raises:
        Invalid: it is larger than Kubernetes takes.
    """
    data, binary = dict(map_["data"]), {}
    for key, path in files.items():
        if key in data:
            continue
        content = (folder / path).read_bytes() if folder is not None else b""
        text = _text(content)
        if text is None:
            binary[key] = base64.b64encode(content).decode()
        else:
            data[key] = text
    size = sum(len(text.encode()) for text in data.values()) + sum(
        len(text) // 4 * 3 for text in binary.values()
    )
    if size > MAX_BYTES:
        raise Invalid(
            f"the experiment is {size:,} bytes, and Kubernetes takes {MAX_BYTES:,} in a ConfigMap",
            code="upload-too-large",
            hint="keep data outside the experiment folder; or set `claim`, and `storage` to where it is seen "
            "from here",
        )
    return {**map_, "data": data, **({"binaryData": binary} if binary else {})}


def _text(content: bytes) -> str | None:
    """The content as text, where YAML shows it and gives it back as it is."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if all(c.isprintable() or c in "\n\t" for c in text) else None


def size_of(map_: Mapping[str, Any]) -> int:
    """Bytes of all files in it."""
    texts = sum(len(text.encode()) for text in map_["data"].values())
    return texts + sum(len(base64.b64decode(text)) for text in map_.get("binaryData", {}).values())
