"""What a plan becomes: objects, as the cluster is sent them and as a person reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuneport.compiler.plan import plan_digest
from tuneport.errors import Invalid, Unavailable
from tuneport.fleets.files import render as file_bytes
from tuneport.fleets.files import yaml_text
from tuneport.fleets.layout import Folder, split_key
from tuneport.fleets.resolve import PLACED, at_submit, output_of, refuse_late, resolve_all
from tuneport.types import Json, LaunchPlan, Ref, Value

from tuneport_fleet_kubernetes import package, workloads
from tuneport_fleet_kubernetes.names import STORAGE, WORK, name_of
from tuneport_fleet_kubernetes.pods import Site


def made(settings: Mapping[str, Json], plan: LaunchPlan, key: str, kind: str) -> dict[str, Any]:
    """`objects` in the order in which they are created, the experiment's files not yet in the first: `files`
    has their keys there. `kind` is that of the workload.

    Raises:
        Invalid: no object can carry what the plan holds. Unavailable: it has no image that this fleet takes,
            or reads what its pods do not see. NotFound, Untrusted: what it refers to is gone or changed.
    """
    for path in plan.mounts:
        seen(settings, path, f"{path}, which the site's policy mounts,")
    job, attempt = split_key(key)
    place = Folder(f"{STORAGE}/jobs/{job}/{attempt}")
    known = at_submit(place, job, attempt, "python3", PLACED)

    def resolve(ref: Ref) -> Value:
        if ref.ref == "work_dir":
            return f"{ref.prefix}{WORK}{ref.suffix}"
        if ref.ref == "run_output":
            return f"{ref.prefix}{_output(settings, ref.name)}{ref.suffix}"
        text = known(ref)
        if ref.ref == "dataset" and isinstance(text, str):
            seen(settings, text.removeprefix(ref.prefix).removesuffix(ref.suffix), f"dataset {ref.name}")
        return text

    commands = resolve_all(plan.commands, resolve)
    refuse_late(commands)
    texts = {name: file_bytes(spec).decode() for item in commands for name, spec in item.files.items()}
    texts[package.REPORTER] = package.reporter()
    if kind == "rayjob":
        texts[workloads.ENTRY] = workloads.entry(commands[0])
    staged = storage(settings) is not None
    files = package.keys({*texts, *(() if staged else plan.source)})
    name, labels = name_of(key), settings.get("labels", {})
    used = {command.pool for command in commands}
    pools = [pool for pool in plan.pools if pool.name in used]
    if used - {pool.name for pool in pools}:
        raise Invalid(f"the plan has no pool {', '.join(sorted(used))}", code="plan-pool")
    site = Site(
        key=key,
        name=name,
        image=_image(settings, plan),
        settings=settings,
        files=files,
        staged=staged,
        pools=pools,
        heads=workloads.heads(kind, name, commands, {pool.name: pool for pool in pools}),
    )
    objects = [package.config_map(name, files, texts, labels), *workloads.workload(kind, site, commands)]
    objects[-1]["metadata"]["annotations"]["tuneport.io/plan"] = plan_digest(plan)
    return {
        "fleet": "kubernetes",
        "key": key,
        "kind": kind,
        "objects": objects,
        "files": files,
        "staged": staged,
        "experiment": dict(plan.source),
    }


def filled(request: Mapping[str, Any], source: Path | None) -> list[dict[str, Any]]:
    """The objects of `made`, with the experiment's files from the folder `source`."""
    first, *rest = request["objects"]
    return [package.with_experiment(first, request["files"], source), *rest]


def shown(settings: Mapping[str, Json], request: Mapping[str, Any]) -> str:
    """What `kubectl create -f -` takes, and how large the job's files are."""
    source = Path(request["source"]) if request.get("source") else None
    objects = filled(request, source)
    image = _image_of(objects[-1])
    head = [
        f"# {len(request['files'])} files, {package.size_of(objects[0]):,} of {package.MAX_BYTES:,} bytes"
        f"; the image is {image}"
    ]
    if "@sha256:" not in image:
        head.append("# note: that is a tag, which may mean another image tomorrow; name it by its digest")
    if request["staged"]:
        head.append(f"# the experiment's {len(request['experiment'])} files go to {storage(settings)}")
    head.append("# kubectl create --filename - makes the same")
    texts = [yaml_text(item, blocks=True) for item in objects]
    return "\n".join([*head, *(f"---\n{text.rstrip()}" for text in texts)])


def storage(settings: Mapping[str, Json]) -> Path | None:
    """The claim as this machine sees it."""
    place = settings.get("storage")
    return Path(place) if place and settings.get("claim") else None


def seen(settings: Mapping[str, Json], path: str, what: str) -> None:
    """Raises:
    Unavailable: no mount of the fleet shows a path of this machine to its pods.
    """
    if not any(Path(path).is_relative_to(mount) for mount in settings.get("mounts", {})):
        raise Unavailable(
            f"{what} is in {path}, which no `mounts` of the fleet shows to its pods",
            code="fleet-data",
            hint="add a volume claim with that content to `mounts`, under the same path",
        )


def _image(settings: Mapping[str, Json], plan: LaunchPlan) -> str:
    from tuneport.runtimes import is_digest, resolve_image_details

    policy = settings.get("images", "any")
    if policy == "none" or plan.runtime.host:
        raise Unavailable(
            "pods run images, and this plan has none"
            if plan.runtime.host
            else "pods run images, and `images` of this fleet allows none",
            code="runtime-image-form",
            hint="leave `images: none` out of the fleet" if policy == "none" else "name one with --image",
        )
    image = resolve_image_details(plan.runtime, "oci")
    if policy == "digest" and not is_digest(image.reference):
        raise Unavailable(
            f"this fleet takes images by digest, and {image.reference} ({image.origin}) can be moved",
            code="runtime-image-form",
            hint="name it as repository@sha256:…",
        )
    return image.reference


def _output(settings: Mapping[str, Json], job: str) -> str:
    """The output folder of another job, as the pods see it."""
    claim = storage(settings)
    place = output_of(job).resolve()
    if claim is None or not place.is_relative_to(claim.resolve()):
        raise Unavailable(
            f"the output of {job} is in {place}, which the pods do not see",
            code="fleet-data",
            hint="set `claim` and `storage` of the fleet, and run both jobs there",
        )
    return str(Path(STORAGE) / place.relative_to(claim.resolve()))


def _image_of(item: Any) -> str:
    """The image that a workload names: the first, as all of them are alike."""
    if isinstance(item, Mapping):
        if isinstance(item.get("image"), str):
            return str(item["image"])
        return next(filter(None, map(_image_of, item.values())), "")
    if isinstance(item, list):
        return next(filter(None, map(_image_of, item)), "")
    return ""
