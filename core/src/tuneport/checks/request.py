"""Judges the request itself: what the method needs, what it has no use for, what must lie beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tuneport.types import Finding, Location, Method, Request, Severity, Topology


def check(
    method: Method, request: Request, topology: Topology, files: Mapping[str, str], *, composed: bool = False
) -> Iterator[Finding]:
    """Findings about model, data, files, image and hardware. `composed`: the release composes its
    configuration from groups, which is what `native` of job.yaml speaks about."""
    yield from _bindings(method, request, ("model", "train_data", "validation_data"))
    if request.native and not composed:
        message = f"{method.id} has no use for `native`: its configuration is not composed of groups"
        yield Finding("native-unused", "error", message, "set the keys in config.yaml", "native")
    yield from _files(method, files)
    yield from _environment(method, request)
    if not topology.pools:
        message = "no hardware was named, so what depends on it is undecided"
        yield Finding(
            "profile-missing",
            "note",
            message,
            "give --profile h200:8, or cpu:2 for two processes",
            "--profile",
        )


def check_aside(method: Method, request: Request, uses: Iterable[str]) -> Iterator[Finding]:
    """Findings about the request of a job that does not train, such as an export. `uses`: what it takes of
    model, train_data and validation_data."""
    yield from _bindings(method, request, uses)
    yield from _environment(method, request)


def _environment(method: Method, request: Request) -> Iterator[Finding]:
    """Variables and image."""
    for name, value in method.spec.get("launch", {}).get("env", {}).items():
        if isinstance(value, Mapping) and name in request.env:
            message = f"the variable {name} is written by the platform"
            yield Finding("env-platform", "error", message, "delete it from `env`", f"env.{name}")
    if method.spec.get("image") == "required" and not request.image:
        yield from _image(method, request)
    elif request.image and not _is_digest(request.image):
        message = f"the image {request.image} is named by a tag, which can be moved"
        severity: Severity = "note"
        if request.digest_only:
            severity, message = "error", f"{message}; fleet {request.fleet} takes digests only"
        yield Finding("image-tag", severity, message, "name it as repository@sha256:…", "--image")


def _bindings(method: Method, request: Request, names: Iterable[str]) -> Iterator[Finding]:
    bind = method.spec.get("bind", {})
    for name in names:
        location: Location | None = getattr(request, name)
        flag = f"--{name.replace('_', '-')}"
        binding = bind.get(name)
        if binding is None:
            if location is not None:
                message = f"{method.id} has no use for {flag}"
                yield Finding("flag-unused", "error", message, f"leave {flag} out", flag)
        elif location is None:
            if binding.get("required"):
                hint = binding.get("hint") or f"give {flag}, or the matching field of job.yaml"
                yield Finding("request-missing", "error", f"{method.id} needs {flag}", hint, flag)
        elif "\0" in location.value:
            yield Finding("request-nul", "error", f"{flag} contains a NUL character", "", flag)
        elif location.others and not binding.get("several"):
            message = f"{method.id} takes one place for {flag}, not {1 + len(location.others)}"
            yield Finding("data-several", "error", message, "put the data into one file or folder", flag)


def _files(method: Method, files: Mapping[str, str]) -> Iterator[Finding]:
    needed = dict(method.spec.get("requires_files", {}))
    for name in (
        method.spec.get("launch", {}).get("run", {}).get("file"),
        method.spec.get("surface", {}).get("script"),
    ):
        if name:
            needed.setdefault(name, "the method runs it")
    for name, what in needed.items():
        if name not in files:
            yield Finding(
                "file-missing", "error", f"the experiment has no {name}", f"write {name}: {what}", name, name
            )


def _image(method: Method, request: Request) -> Iterator[Finding]:
    if not request.own_environment:
        message = f"{method.id} brings its own image and none was named"
        yield Finding("image-missing", "error", message, "give --image, or `image:` in job.yaml", "--image")
    else:
        message = f"{method.id} runs in the environment that tp itself runs in: no image was named"
        yield Finding("host-runtime", "note", message, "--image names a container instead", "--image")


def _is_digest(image: str) -> bool:
    return "@sha256:" in image
