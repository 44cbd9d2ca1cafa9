"""Which kind of file system a file is on: a store's file must not be on one that is shared over a network.

SQLite relies on locks and on shared memory that such file systems do not keep between machines. Known is what the
operating system says of its mounts; where it does not say, the answer is None.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Final

_NETWORKED: Final = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|smb3|9p|afs|ncpfs|ceph|glusterfs|lustre|beegfs|gpfs|ocfs2?|gfs2?|virtiofs"
    r"|fuse\.(sshfs|s3fs|gcsfuse|rclone|glusterfs|ceph|davfs|mergerfs|blobfuse2?|juicefs)|davfs2?|prl_fs|vboxsf"
)
_MOUNTS: Final = Path("/proc/self/mountinfo")
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


def is_networked(kind: str) -> bool:
    """Whether a file system of this kind is shared with other machines."""
    return _NETWORKED.fullmatch(kind) is not None


def file_system_of(path: Path) -> str | None:
    """The kind of the file system that a file is on, or would be on; None where the system does not say."""
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return None
    return kind_of_mount(str(path.resolve()), mounts)


def kind_of_mount(path: str, mounts: str) -> str | None:
    """The kind of the file system at an absolute path, by the lines of Linux's ``mountinfo``; None without one."""
    found, kind = -1, None
    place = PurePosixPath(path)
    for line in mounts.splitlines():
        before, dash, after = line.partition(" - ")
        words = before.split(" ")
        if not dash or len(words) < 5:
            continue
        point = PurePosixPath(_ESCAPE.sub(lambda octal: chr(int(octal[1], 8)), words[4]))
        # Of two mounts at one point, the later one hides the earlier.
        if place.is_relative_to(point) and len(point.parts) >= found:
            found, kind = len(point.parts), after.split(" ", 1)[0]
    return kind
