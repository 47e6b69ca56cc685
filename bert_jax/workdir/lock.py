"""Lets one process at a time train in a work directory; tells a second one which.

In a file system the kernel holds the lock, and releases it when the process ends in any
way. A bucket has no locks: the process replaces an object there every few seconds, and
a process that finds one waits to see whether it still changes.
"""

import contextlib
import json
import logging
import os
import pathlib
import platform
import secrets
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from bert_jax.errors import UserError
from bert_jax.runtime import environment, storage, temporary, untrusted
from bert_jax.runtime.storage import Path

NAME = ".lock"
BEAT_SECONDS = 15.0
STALE_SECONDS = 60.0  # without a beat

log = logging.getLogger(__name__)


@contextlib.contextmanager
def locked(workdir: Path) -> Iterator[None]:
    """Holds the work directory; creates it, and deletes it if it is empty at the end.

    Raises:
      UserError: another process holds it, or it cannot be written.
    """
    if storage.in_bucket(workdir):
        with _Object(workdir):
            yield
        return
    folder = pathlib.Path(workdir)
    made = [x for x in (folder, *folder.parents) if not x.exists()]
    file = None
    try:
        file = _lock(folder)
        if file is not None:
            _write(file, workdir)
        yield
    finally:
        if file is not None:
            (folder / NAME).unlink(missing_ok=True)
            os.close(file)
        for path in made:
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()


def _lock(folder: pathlib.Path) -> int | None:
    """The locked file, open; None if the file system has no locks.

    Raises:
      UserError: another process holds it, or it cannot be written.
    """
    try:
        storage.make_folder(folder)
        file = temporary.lock(folder / NAME)
    except (FileExistsError, NotADirectoryError) as error:
        raise UserError(f"--workdir={folder}: not a folder") from error
    except OSError as error:
        if error.errno not in temporary.NO_LOCKS:
            raise UserError(f"--workdir={folder}: {error.strerror}") from error
        log.warning(
            "%s: its file system has no locks; start only one run at a time there",
            folder,
        )
        return None
    if file is None:
        raise _refusal(folder, _holder(_content(folder / NAME)))
    return file


def _me() -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"host": platform.node(), "pid": os.getpid(), "since": now}


def _write(file: int, workdir: Path) -> None:
    try:
        os.ftruncate(file, 0)
        os.write(file, json.dumps(_me()).encode())
    except OSError as error:
        raise UserError(f"--workdir={workdir}: {error.strerror}") from error


def _content(path: pathlib.Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:  # its holder has just ended
        return b""


def _holder(content: bytes) -> dict[str, Any]:
    """The holder's fields from the lock file; empty if it is damaged."""
    try:
        holder = untrusted.loads(content)
    except (ValueError, RecursionError):  # half written, or not ours
        return {}
    return holder if isinstance(holder, dict) else {}


def _refusal(workdir: Path, holder: dict[str, Any]) -> UserError:
    host, pid, since = (holder.get(name, "?") for name in ("host", "pid", "since"))
    return UserError(
        f"--workdir={workdir}: process {pid} on host {host} has been training there "
        f"since {since}; stop it, wait until it ends, or use another --workdir"
    )


class _Object:
    """A lock on a bucket's folder, held while the context lasts."""

    def __init__(self, workdir: Path):
        from google.cloud import storage as client

        self._workdir = workdir
        _, _, bucket, *names = os.fspath(workdir).split("/", 3)
        self._bucket = client.Client().bucket(bucket)
        self._name = "/".join([*names, NAME])
        self._me = _me() | {"machine": _machine(), "token": secrets.token_hex(8)}
        self._generation = 0  # of the object; 0: there is none
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def __enter__(self) -> None:
        self._await_end_of_other()
        if not self._replace():
            raise _refusal(self._workdir, self._look()[1])
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        # An error here does no harm: without a beat the lock is soon stale.
        with contextlib.suppress(Exception):
            blob = self._bucket.blob(self._name)
            blob.delete(if_generation_match=self._generation)

    def _await_end_of_other(self) -> None:
        """Waits for another holder's lock to go stale; UserError if it is alive."""
        first, holder = self._look()
        self._generation = first
        if not first or _has_ended(holder):
            return
        log.warning(
            "%s: process %s on host %s may be training there; waiting %.0f seconds to "
            "see whether it is",
            *(self._workdir, holder.get("pid"), holder.get("host"), STALE_SECONDS),
        )
        end = time.monotonic() + STALE_SECONDS
        while time.monotonic() < end:
            time.sleep(BEAT_SECONDS / 10)
            self._generation, holder = self._look()
            if not self._generation:
                return
            if self._generation != first:
                raise _refusal(self._workdir, holder)

    def _look(self) -> tuple[int, dict[str, Any]]:
        """The object's generation, 0 for none, and who wrote it."""
        blob = self._bucket.get_blob(self._name)
        if blob is None:
            return 0, {}
        return blob.generation, _holder(blob.download_as_bytes())

    def _replace(self, **options: Any) -> bool:
        """Replaces the object; False if another process was faster."""
        from google.api_core.exceptions import PreconditionFailed

        blob = self._bucket.blob(self._name)
        try:
            text = json.dumps(self._me)
            blob.upload_from_string(
                text, if_generation_match=self._generation, **options
            )
        except PreconditionFailed:
            # Perhaps this process wrote it, in an attempt whose answer was lost.
            generation, holder = self._look()
            if holder.get("token") != self._me["token"]:
                return False
            self._generation = generation
        else:
            self._generation = blob.generation
        return True

    def _go_on(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            # A client may raise anything when the network fails; the next beat retries.
            with contextlib.suppress(Exception):
                if not self._replace(retry=None, timeout=BEAT_SECONDS):
                    # Both would write the same checkpoints, so this older one ends.
                    environment.say(
                        f"error: --workdir={self._workdir}: another process has taken "
                        f"it over, because this one could not reach it for "
                        f"{STALE_SECONDS:.0f} seconds; start only one run at a time"
                    )
                    os._exit(2)


def _machine() -> str:
    """The scope in which a process id is unique: one boot and one container."""
    with contextlib.suppress(OSError):
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return ""


def _has_ended(holder: dict[str, Any]) -> bool:
    """Whether the holder's process is known to have ended; only on this machine."""
    if not holder.get("machine") or holder["machine"] != _machine():
        return False
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return True
    except (PermissionError, KeyError, TypeError, OverflowError):
        pass  # it runs as another user, or its pid is invalid
    return False
