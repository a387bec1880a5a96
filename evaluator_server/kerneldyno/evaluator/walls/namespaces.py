"""Separate namespaces for a candidate: processes, network, IPC, mounts, users. The warden and the runner enter them."""

from __future__ import annotations

import os

from ..shared import linux, proc

#: The uid and gid of candidates when the evaluator runs as root ("nobody").
NOBODY = 65534
#: The kinds of namespaces that `enter` creates, by their names in /proc/self/ns.
KINDS = ("user", "pid", "net", "ipc", "mnt")


def host_is_root() -> bool:
    """Return True if this process can become another user. Root of a container may have no other user."""
    if os.geteuid() != 0:
        return False
    return any(first <= NOBODY < first + count for first, _, count in proc.uid_ranges())


def enter() -> None:
    """Enter new namespaces. Children of this process will be in a new pid namespace. Raises OSError."""
    flags = linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS
    if host_is_root():
        # Root mounts first and enters a user namespace later, as nobody. Then even a candidate that gains every
        # capability of its own user namespace cannot change the mounts, because the host's root made them.
        linux.unshare(flags)
    else:
        uid, gid = os.getuid(), os.getgid()
        linux.unshare(flags | linux.CLONE_NEWUSER)
        _map_ids((uid or NOBODY, uid), (gid or NOBODY, gid))


def enter_user_namespace() -> None:
    """Enter a user namespace in which only this process's own user exists."""
    linux.unshare(linux.CLONE_NEWUSER)
    _map_ids((NOBODY, NOBODY), (NOBODY, NOBODY))


def _map_ids(uid: tuple[int, int], gid: tuple[int, int]) -> None:
    """Map the uid and the gid, each given as (inside, outside), in the user namespace that was just entered."""
    texts = {"setgroups": "deny", "uid_map": f"{uid[0]} {uid[1]} 1", "gid_map": f"{gid[0]} {gid[1]} 1"}
    for name, text in texts.items():
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
