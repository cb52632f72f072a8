"""Writes deploy/docker: an image of each framework whose releases come without one, from the releases' pins.

`python tools/dockerfiles.py` writes Dockerfile.<framework> and requirements/<runtime>.txt. A test holds the
files to what this would write, and a linter to what is good practice.
"""

from __future__ import annotations

from pathlib import Path

from packaging.specifiers import SpecifierSet
from tuneport.registry import catalog
from tuneport.runtimes.variants import Variant, choose_variant, runtime_id, variants

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "deploy/docker"
PYTHONS = ("3.12", "3.11")
# A card of any kind: the variant for accelerators, whatever the release calls it.
SERIES = "any"

DOCKERFILE = """\
# Written by tools/dockerfiles.py from the manifests: change those, then run it again.
# A release of {framework} as an image: the pinned set that `tp runtime install {framework}@RELEASE` builds.
# RELEASE is one of {releases}.
#
#   docker build -f {folder}/Dockerfile.{framework} --build-arg RELEASE={default} \\
#     -t tuneport/{framework}:{default} .
#   export TUNEPORT_IMAGE_{variable}=tuneport/{framework}:{default}
FROM python:{python}-slim

ARG RELEASE={default}

# Triton compiles the launchers of its kernels when they are first needed; some packages come as source alone.
# hadolint ignore=DL3008
RUN apt-get update \\
 && apt-get install --yes --no-install-recommends g++ \\
 && rm -rf /var/lib/apt/lists/*

COPY {folder}/requirements/{framework}-${{RELEASE}}.txt /tmp/requirements.txt
RUN pip install --no-cache-dir --requirement /tmp/requirements.txt && pip check

ENV PYTHONUNBUFFERED=1
RUN useradd --create-home --uid 1000 tuneport
USER 1000
WORKDIR /home/tuneport
"""

# What has to be compiled is compiled in a stage of its own, with CUDA's compilers beside the torch that is
# pinned; only the environment goes on. The setup of flash-attn would otherwise fetch a wheel elsewhere, and
# DeepSpeed would compile its optimizers when a job starts.
COMPILED = """\
# Written by tools/dockerfiles.py from the manifests: change those, then run it again.
# A release of {framework} as an image: the set that its manifest pins under `oci.build`.
# RELEASE is one of {releases}. JOBS compilers run at once, each of which takes up to 10 GB of memory.
#
#   docker build -f {folder}/Dockerfile.{framework} --build-arg RELEASE={default} \\
#     -t tuneport/{framework}:{default} .
#   export TUNEPORT_IMAGE_{variable}=tuneport/{framework}:{default}
FROM nvidia/cuda:{cuda}-devel-ubuntu24.04 AS cuda

FROM python:{python}-bookworm AS builder

ARG RELEASE={default}
ARG JOBS=4

COPY --from=cuda /usr/local/cuda-{series} /usr/local/cuda
ENV CUDA_HOME=/usr/local/cuda \\
    PATH=/opt/venv/bin:/usr/local/cuda/bin:$PATH \\
    TORCH_CUDA_ARCH_LIST="8.0;9.0;10.0" \\
    FLASH_ATTN_CUDA_ARCHS="80;90;100" \\
    FLASH_ATTENTION_FORCE_BUILD=TRUE \\
    DS_BUILD_FUSED_ADAM=1 \\
    DS_BUILD_CPU_ADAM=1

RUN python -m venv /opt/venv
COPY {folder}/requirements/{framework}-${{RELEASE}}.txt /tmp/requirements.txt
RUN pip install --no-cache-dir --no-deps --requirement /tmp/requirements.txt
COPY {folder}/requirements/{framework}-${{RELEASE}}-compiled.txt /tmp/compiled.txt
RUN MAX_JOBS="${{JOBS}}" pip install --no-cache-dir --no-deps --no-build-isolation \\
      --requirement /tmp/compiled.txt \\
 && pip check

FROM python:{python}-slim-bookworm

# Triton compiles the launchers of its kernels when they are first needed.
# hadolint ignore=DL3008
RUN apt-get update \\
 && apt-get install --yes --no-install-recommends g++ \\
 && rm -rf /var/lib/apt/lists/*

COPY --from=builder /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH \\
    PYTHONUNBUFFERED=1
RUN useradd --create-home --uid 1000 tuneport
USER 1000
WORKDIR /home/tuneport
"""


def files() -> dict[str, str]:
    """File name -> content of everything in the folder."""
    found = {}
    for framework in catalog.frameworks():
        releases = catalog.releases(framework)
        found |= _compiled(framework)
        sets = {release: pinned for release in releases if (pinned := _set(framework, release))}
        if not sets:
            continue
        for release, variant in sets.items():
            name = f"{FOLDER}/requirements/{framework}-{release}.txt"
            found[name] = "\n".join(sorted(variant.requirements, key=str.lower)) + "\n"
        default = catalog.default_release(framework)
        found[f"{FOLDER}/Dockerfile.{framework}"] = DOCKERFILE.format(
            framework=framework,
            folder=FOLDER,
            releases=", ".join(sets),
            default=default if default in sets else list(sets)[-1],
            variable=framework.upper().replace("-", "_"),
            python=_python(sets),
        )
    return found


def _compiled(framework: str) -> dict[str, str]:
    """The files of a framework whose releases need some of it compiled, all with one Python and CUDA."""
    builds = {
        release: catalog.release_spec(framework, release)["runtime"].get("oci", {}).get("build")
        for release in catalog.releases(framework)
    }
    builds = {release: build for release, build in builds.items() if build}
    if not builds:
        return {}
    ((python, cuda),) = {(build["python"], build["cuda"]) for build in builds.values()}
    found = {}
    for release, build in builds.items():
        for suffix, pins in (("", build["requirements"]), ("-compiled", build["compiled"])):
            name = f"{FOLDER}/requirements/{framework}-{release}{suffix}.txt"
            # what is compiled keeps its order: later ones may need earlier ones
            found[name] = "\n".join(pins if suffix else sorted(pins, key=str.lower)) + "\n"
    default = catalog.default_release(framework)
    found[f"{FOLDER}/Dockerfile.{framework}"] = COMPILED.format(
        framework=framework,
        folder=FOLDER,
        releases=", ".join(builds),
        default=default if default in builds else list(builds)[-1],
        variable=framework.upper().replace("-", "_"),
        python=python,
        cuda=cuda,
        series=cuda.rpartition(".")[0],
    )
    return found


def _set(framework: str, release: str) -> Variant | None:
    """The pinned set that an image of the release would hold; None where it has an image, or needs none."""
    spec = catalog.release_spec(framework, release)
    name = choose_variant(spec, SERIES)
    if "image" in spec["runtime"].get("oci", {}) or not name:
        return None
    assert runtime_id(spec) == f"{framework}-{release}"
    return variants(spec, framework)[name]


def _python(sets: dict[str, Variant]) -> str:
    """The newest of the Pythons for which all of these packages have wheels that every set allows."""
    specifiers = [SpecifierSet(variant.python) for variant in sets.values()]
    return next(python for python in PYTHONS if all(python in specifier for specifier in specifiers))


if __name__ == "__main__":
    for name, content in files().items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(content, "utf-8")
        print(f"written {name}")
