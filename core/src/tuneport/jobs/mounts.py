"""Whether a folder is on a file system that several machines share."""

from __future__ import annotations

import os
import re
from pathlib import Path

_NETWORK = (
    "nfs",
    "cifs",
    "smb",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "glusterfs",
    "9p",
    "afs",
    "ncpfs",
    "sshfs",
)


def network_file_system(folder: Path, table: str | None = None) -> str:
    """The type of the file system that `folder` is on where it is a shared one, else "".

    `table` is the text of /proc/self/mountinfo; where there is none every file system counts as local.
    """
    if table is None:
        try:
            table = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        except OSError:
            return ""
    place = os.path.realpath(folder)
    best, kind = "", ""
    for line in table.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        mount = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])
        inside = place == mount or place.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):  # the later of two on one place hides the earlier
            best, kind = mount, right.split(" ")[0]
    name = kind.removeprefix("fuse.")
    return kind if any(name.startswith(prefix) for prefix in _NETWORK) else ""
