"""Writes what `tp check` knows of Kubernetes objects: the fields of each kind and their types.

    python tools/kube_fields.py FOLDER

FOLDER holds the published schemas: `builtin_*.json`, the definitions of Kubernetes' own kinds, and one
`GROUP_VERSION_KIND.json` for each custom kind, the `openAPIV3Schema` of its definition.

A type is `str`, `int`, `num`, `bool`, `quantity`, `port` (a number or a name), `any`, words between `|`
behind `=`, the name of an object in `types`, `[T]` for a list and `{T}` for a mapping with any keys.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[1] / "core/src/tuneport/jobfiles/fields.json"
KINDS = {
    "jobset.x-k8s.io_v1alpha2_JobSet",
    "ray.io_v1_RayCluster",
    "ray.io_v1_RayJob",
    "ray.io_v1_RayService",
    "trainer.kubeflow.org_v1alpha1_TrainJob",
}
POD_FIELDS = 25
"""An object with `containers` and more fields than this is a whole pod, not a part that changes one."""
PLAIN = {"string": "str", "integer": "int", "number": "num", "boolean": "bool", "object": "any"}


class Table:
    """Types by name; two objects with the same fields are one type."""

    def __init__(self) -> None:
        self.types: dict[str, dict[str, str]] = {}
        self.names: dict[str, str] = {}

    def of(self, schema: dict[str, Any], name: str) -> str:
        if "$ref" in schema:
            last = schema["$ref"].rpartition(".")[2]
            return {"Quantity": "quantity", "IntOrString": "port"}.get(last, last)
        if schema.get("x-kubernetes-int-or-string"):
            return "quantity" if "pattern" in schema else "port"
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            return "any"
        kind = schema.get("type", "object")
        kind = next(one for one in kind if one != "null") if isinstance(kind, list) else kind
        if kind == "array":
            return f"[{self.of(schema['items'], f'{name}.item')}]"
        if fields := schema.get("properties"):
            if "containers" in fields and len(fields) > POD_FIELDS:
                return "PodSpec"
            return self.named(name, {one: self.of(item, f"{name}.{one}") for one, item in fields.items()})
        more = schema.get("additionalProperties")
        if kind == "object" and isinstance(more, dict):
            return f"{{{self.of(more, name + '.any')}}}"
        if kind == "string" and schema.get("enum"):
            return "=" + "|".join(sorted(filter(None, schema["enum"])))
        return PLAIN[kind]

    def named(self, name: str, fields: dict[str, str]) -> str:
        same = json.dumps(fields, sort_keys=True)
        if same not in self.names:
            self.names[same] = name
            self.types[name] = fields
        return self.names[same]


def written(folder: Path) -> str:
    """The table of the schemas in a folder, as text."""
    table, kinds = Table(), {}
    (builtin,) = folder.glob("builtin_*.json")
    document = json.loads(builtin.read_text("utf-8"))
    for name, schema in document["definitions"].items():
        last = name.rpartition(".")[2]
        if "properties" in schema:
            table.types[last] = {one: table.of(item, one) for one, item in schema["properties"].items()}
    for root, name in document["x-roots"].items():
        group, _, kind = root.rpartition("_")
        kinds[f"{group.replace('_', '/')} {kind}"] = name.removeprefix("root.")
    for stem in sorted(KINDS):
        group, version, kind = stem.rsplit("_", 2)
        schema = json.loads((folder / f"{stem}.json").read_text("utf-8"))
        schema["properties"]["metadata"] = {"$ref": "ObjectMeta"}
        schema["properties"].pop("status", None)
        kinds[f"{group}/{version} {kind}"] = table.of(schema, kind)
    known = {"kinds": kinds, "types": _needed(kinds.values(), table.types)}
    return json.dumps(known, indent=0, sort_keys=True) + "\n"


def _needed(names: Iterable[str], types: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """The types that the kinds are made of."""
    found: dict[str, dict[str, str]] = {}
    left = list(names)
    while left:
        name = left.pop().strip("[]{}")
        if name in types and name not in found:
            found[name] = types[name]
            left += types[name].values()
    return found


if __name__ == "__main__":
    TABLE.write_text(written(Path(sys.argv[1])), "utf-8")
