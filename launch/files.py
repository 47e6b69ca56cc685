"""Temporary files on this machine: the packed repository and the workers' answers."""

import fcntl
import os
import tarfile
import tempfile
from pathlib import Path
from typing import IO

from launch.commands import Failure, last_line, run


def pack(root: Path, archive: Path) -> int:
    """Packs what git tracks or would not ignore; returns the number of files.

    Raises:
      Failure: `root` is not a git checkout.
    """
    git = ("git", "-C", str(root), "ls-files", "-z")
    listed = run([*git, "--cached", "--others", "--exclude-standard", "--deduplicate"])
    if listed.returncode:
        raise Failure(
            f"{root}: git cannot list it ({last_line(listed.stderr)}); only a git "
            "checkout can be copied to a slice"
        )
    archive.parent.mkdir(parents=True, exist_ok=True)
    names = [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    there = [name for name in sorted(names) if os.path.lexists(root / name)]
    with tarfile.open(archive, "w:gz") as tar:
        for name in there:
            tar.add(root / name, arcname=name, recursive=False)
    return len(there)


def own_folder(name: str) -> tuple[Path, IO[str]]:
    """A folder that no other call on this machine uses, and its lock."""
    for number in range(100):
        suffix = f"_{number}" if number else ""
        user = os.getuid()
        folder = Path(tempfile.gettempdir()) / f"bert_jax_tpu_{user}_{name}{suffix}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != user:
            continue
        lock = (folder / "lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        return folder, lock
    raise Failure(f"{tempfile.gettempdir()}: no free folder for {name}; delete one")
