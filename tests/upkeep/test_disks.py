"""Whether a store's file would be on a file system that machines share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from promptkeel.upkeep.disks import file_system_of, is_networked, kind_of_mount

MOUNTS = r"""21 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 21 0:26 / /mnt rw - tmpfs tmpfs rw
31 30 0:27 / /mnt/shared\040folder rw,noatime shared:4 - nfs4 server:/export rw
32 21 0:28 / /data rw - xfs /dev/vdb rw
33 32 0:29 / /data rw - fuse.sshfs host:/ rw
a broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/a.db", "ext4"),
        ("/mnt/a.db", "tmpfs"),
        ("/mnt/shared folder/x/a.db", "nfs4"),
        ("/mnt/shared folderish/a.db", "tmpfs"),
        ("/data/a.db", "fuse.sshfs"),
        ("/database/a.db", "ext4"),
    ],
)
def test_the_deepest_and_latest_mount_counts(path, kind):
    assert kind_of_mount(path, MOUNTS) == kind


def test_without_mounts_nothing_is_known():
    assert kind_of_mount("/a.db", "") is None


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "fuse.sshfs", "lustre", "vboxsf"])
def test_network_file_systems_are_known(kind):
    assert is_networked(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "apfs", "fuse.ext4", "nfsd2x"])
def test_local_ones_are_not_taken_for_them(kind):
    assert not is_networked(kind)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists its mounts in a file")
def test_this_machine_says_what_a_file_is_on(tmp_path):
    assert file_system_of(tmp_path / "not there" / "a.db") == kind_of_mount(
        str(tmp_path.resolve()), Path("/proc/self/mountinfo").read_text()
    )
    assert file_system_of(Path("/proc/self/maps")) == "proc"
