"""What is uploaded with a job: its experiment, the plan's files, the driver. Named by its content."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from importlib.resources import files as package_files
from pathlib import Path

from tuneport.errors import Invalid

DRIVER, LAUNCH = "tuneport-driver.py", "tuneport-launch.json"
MAX_BYTES = 100 * 1024 * 1024
"""What Ray's dashboard takes (ray/_private/ray_constants.py, DASHBOARD_CLIENT_MAX_SIZE)."""


def texts(launch: Mapping[str, object], written: Mapping[str, str]) -> dict[str, str]:
    """The files that are not the experiment's, by name; `written` are the plan's."""
    from tuneport import report

    return {
        **written,
        LAUNCH: json.dumps(launch, indent=1, sort_keys=True, ensure_ascii=False),
        DRIVER: package_files("tuneport_fleet_ray").joinpath("driver.py").read_text("utf-8"),
        "tuneport_report.py": Path(report.__file__).read_text("utf-8"),
    }


def name(digests: Mapping[str, str], more: Mapping[str, str]) -> str:
    """The package's name: the same for the same content."""
    content = json.dumps([dict(digests), dict(more)], sort_keys=True).encode("utf-8", "surrogatepass")
    return f"_ray_pkg_{hashlib.sha256(content).hexdigest()[:32]}.zip"


def build(source: Path, digests: Mapping[str, str], more: Mapping[str, str]) -> bytes:
    """The bytes of the package.

    Raises:
        Invalid: it is larger than Ray takes.
    """
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as package:
        for path in sorted({*digests, *more}):
            data = more[path].encode() if path in more else (source / path).read_bytes()
            entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            mode = 0o644 if path in more else (source / path).stat().st_mode & 0o777 | 0o600
            entry.external_attr = (0o100000 | mode) << 16
            package.writestr(entry, data)
    if memory.tell() > MAX_BYTES:
        raise Invalid(
            f"the experiment is {memory.tell() >> 20} MiB, and Ray takes {MAX_BYTES >> 20} MiB with a job",
            code="upload-too-large",
            hint="keep data and checkpoints outside, where the cluster can read them",
        )
    return memory.getvalue()
