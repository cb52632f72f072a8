"""How a plan's commands are started on a node: in an environment, by Apptainer, or by pyxis."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuneport.errors import Invalid, Unavailable
from tuneport.fleets.resolve import interpreter
from tuneport.types import Json, LaunchPlan

FORMS = {"apptainer": ("sif", "oci"), "pyxis": ("sqsh", "oci")}


@dataclass(frozen=True, slots=True)
class Runtime:
    """`python` is what the reference of that name becomes; `venv` the root of an environment, if it is one;
    `image` a container's, started by `tool`."""

    python: str
    venv: str = ""
    tool: str = ""
    image: str = ""
    binds: tuple[str, ...] = ()

    def step_options(self, work: Path) -> list[str]:
        """Options of srun, quoted."""
        if self.tool != "pyxis":
            return []
        mounts = ",".join(bind if ":" in bind else f"{bind}:{bind}" for bind in self.binds)
        return [
            shlex.quote(f"--container-image={self.image}"),
            shlex.quote(f"--container-mounts={mounts}"),
            shlex.quote(f"--container-workdir={work}"),
        ]

    def wrapped(self, words: Sequence[str], work: Path, *, gpus: bool) -> list[str]:
        """The quoted words of a command as a node runs them."""
        if self.tool != "apptainer":
            return list(words)
        binds = [part for bind in self.binds for part in ("--bind", shlex.quote(bind))]
        card = ["--nv"] if gpus else []
        return [
            "apptainer",
            "exec",
            *card,
            *binds,
            "--pwd",
            shlex.quote(str(work)),
            shlex.quote(self.image),
            *words,
        ]


def choose(plan: LaunchPlan, settings: Mapping[str, Json], folders: Sequence[Path]) -> Runtime:
    """The runtime of a plan on this fleet: the image that was named, else an image where the fleet's
    `containers` asks for one, else the environment of the release, or the user's own.

    Args:
        folders: what a container has to see.

    Raises:
        Unavailable: the environment or the image is not here. Invalid: a path that its tool cannot bind.
    """
    need, tool = plan.runtime, settings.get("containers", "")
    if need.host or not (need.image or tool):
        python = interpreter(need)
        return Runtime(str(python), venv="" if need.host else str(python.parent.parent))
    from tuneport.runtimes import is_digest, resolve_image_details

    image = resolve_image_details(need, *FORMS.get(tool, ("sif", "sqsh", "oci")))
    policy = settings.get("images", "any")
    if policy == "none":
        raise Unavailable(
            f"this fleet runs no images, and {image.reference} ({image.origin}) was named",
            code="runtime-image-form",
            hint="leave the image out, or change `images` of the fleet",
        )
    if policy == "digest" and not (is_digest(image.reference) or image.digest):
        raise Unavailable(
            f"this fleet takes images by digest, and {image.reference} ({image.origin}) can be moved",
            code="runtime-image-form",
            hint="name it as repository@sha256:…, or register the digest of the file",
        )
    tool = tool or ("pyxis" if image.form == "sqsh" else "apptainer")
    binds = [*map(str, folders), *settings.get("mounts", ()), *plan.mounts]
    for path in map(str, folders):
        if any(c in path for c in ":,"):
            raise Invalid(
                f"{path!r} cannot be mounted into a container: it holds a colon or comma",
                code="value-unusable",
                hint="set `storage` of the fleet to another folder",
            )
    reference = image.reference
    if image.form == "oci":
        reference = f"docker://{reference}" if tool == "apptainer" else _enroot(reference)
    return Runtime("python3", tool=tool, image=reference, binds=tuple(dict.fromkeys(binds)))


def _enroot(reference: str) -> str:
    """An image's name as enroot wants it: a hash mark after the registry's host."""
    host, slash, rest = reference.partition("/")
    named = slash and ("." in host or ":" in host or host == "localhost")
    return f"{host}#{rest}" if named else reference
