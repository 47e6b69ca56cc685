"""Shows worker 0's output here."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO


class Stream:
    """Shows worker 0's log from a given byte on, each byte once, despite disconnects.

    When a connection breaks, gcloud itself repeats its command, up to ten times, so
    tpu_worker.sh first prints the byte that its output starts at.
    """

    MARK = b"\x1ebert_jax-log "

    def __init__(self, shown: int):
        self.shown = shown
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    @property
    def open(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin(self, command: Sequence[str]) -> None:
        # A Ctrl-C during the start waits for its end, so that close() ends the process.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            # Its own process group: close() ends gcloud's ssh too, and Ctrl-C does not.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert self._process.stdout is not None
        self._thread = threading.Thread(
            target=self._copy, args=[self._process.stdout], daemon=True
        )
        self._thread.start()

    def _copy(self, source: IO[bytes]) -> None:
        place, held = -1, b""  # the log's byte that `held` starts at
        while some := os.read(source.fileno(), 65536):
            held += some
            while held:
                text, _, rest = held.partition(self.MARK[:1])
                place = self._show(text, place)
                held = held[len(text) :]
                number, newline, after = rest[len(self.MARK) - 1 :].partition(b"\n")
                if held.startswith(self.MARK) and newline:
                    place, held = int(number), after
                elif held[: len(self.MARK)] == self.MARK[: len(held)]:
                    break  # the rest of the mark may still arrive
                elif not held.startswith(self.MARK):
                    place, held = self._show(held[:1], place), held[1:]
                else:
                    break

    def _show(self, text: bytes, place: int) -> int:
        """Shows the new part of the bytes from `place` on; returns the place after."""
        if place < 0 or not text:
            return place  # not from the log
        new = text[max(0, self.shown - place) :]
        sys.stdout.buffer.write(new)
        sys.stdout.buffer.flush()
        self.shown = max(self.shown, place + len(text))
        return place + len(text)

    def wait(self, seconds: float) -> None:
        if self._thread is not None:
            self._thread.join(seconds)

    def close(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait()
            self.wait(5)
            self._process = self._thread = None
