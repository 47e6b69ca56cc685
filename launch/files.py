"""What lies here for a while: the repository, packed, and what the workers say."""

import fcntl
import os
import tarfile
import tempfile
from pathlib import Path
from typing import IO

from launch.commands import Failure, last_line, run


def pack(root: Path, archive: Path) -> int:
    """Packs what git tracks, and what it would not ignore; gives the number of files.

    Raises:
      Failure: `root` is no git checkout.
    """
    git = ("git", "-C", str(root), "ls-files", "-z")
    listed = run([*git, "--cached", "--others", "--exclude-standard", "--deduplicate"])
    if listed.returncode:
        raise Failure(
            f"{root}: git cannot list it ({last_line(listed.stderr)}); only a git "
            "checkout is copied to a slice"
        )
    archive.parent.mkdir(parents=True, exist_ok=True)
    names = [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    there = [name for name in sorted(names) if os.path.lexists(root / name)]
    with tarfile.open(archive, "w:gz") as tar:
        for name in there:
            tar.add(root / name, arcname=name, recursive=False)
    return len(there)


def own_folder(name: str) -> tuple[Path, IO[str]]:
    """A folder that no other call on this machine uses, and the lock that says so."""
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
    raise Failure(f"{tempfile.gettempdir()}: no folder to be had there for {name}")
