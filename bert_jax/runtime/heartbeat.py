"""That a run is alive, and what it waits for where nothing goes on."""

import json
import os
import threading
import time
from types import TracebackType

from bert_jax.runtime.clock import Stopwatch
from bert_jax.runtime.storage import Path, write_atomically
from bert_jax.runtime.terminal import say

SECONDS = 5.0  # between two heartbeats

# Names of the stopwatch -> what is waited for, in the user's words.
_WAITS_FOR = {
    "data wait": "data",
    "compile": "the compiler",
    "step": "the devices to take a step",
    "checkpoint": "the checkpoint to be written",
    "evaluation": "the devices to evaluate",
    "": "the start, or work between two steps",
}


class Heartbeat:
    """A thread that looks at the stopwatch, and costs the run nothing.

    Every few seconds it writes `heartbeat.json` in the work directory: `time` and
    `since` (seconds since 1970: now, and when something was last begun or finished),
    `step`, `phase` (the stopwatch's name for what is under way) and `pid`. An old
    `time` tells of a dead process, an old `since` of one that hangs.

    A run without progress for `stall_seconds` says what it waits for, then again after
    twice that time, four times, and so on; and that it goes on.

    Args:
      folder: the work directory.
      clock: the run's.
      stall_seconds: 0: nothing is said.
      process: its number; only 0 writes the file.
    """

    def __init__(
        self,
        folder: Path,
        clock: Stopwatch,
        stall_seconds: int | float,
        process: int = 0,
    ):
        self.step = 0  # for the loop to set
        self._path, self._clock = folder / "heartbeat.json", clock
        self._stall, self._process = stall_seconds, process
        self._turns, self._since = -1, (time.time(), time.monotonic())
        self._limit = stall_seconds
        self._written = True  # the last one could be
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(SECONDS)  # no longer: its disk may be what hangs
        if not self._thread.is_alive():
            self._write("ended")

    def _run(self) -> None:
        wait = min(SECONDS, self._stall / 4) if self._stall else SECONDS
        while not self._ended.is_set():
            turns, phase = self._clock.state()
            self._look(turns, phase)
            self._write(phase)
            self._ended.wait(wait)

    def _look(self, turns: int, phase: str) -> None:
        seconds = time.monotonic() - self._since[1]
        if turns != self._turns:
            if self._limit > self._stall:
                self._note(f"going on after {seconds:.0f} s")
            self._turns, self._since = turns, (time.time(), time.monotonic())
            self._limit = self._stall
        elif self._stall and seconds >= self._limit:
            self._note(
                f"no progress for {seconds:.0f} s at step {self.step}: waiting for "
                f"{_WAITS_FOR.get(phase, phase)}"
            )
            self._limit = 2 * max(seconds, self._limit)

    def _note(self, text: str) -> None:
        say(f"process {self._process}: {text}" if self._process else text)

    def _write(self, phase: str) -> None:
        if self._process:
            return
        beat: dict[str, float | str] = {
            "time": time.time(),
            "since": self._since[0],
            "step": self.step,
        }
        beat |= {"phase": phase, "pid": os.getpid()}
        try:
            write_atomically(self._path, json.dumps(beat) + "\n")
        except OSError as error:  # no reason to end a run, but often the first to know
            if self._written:
                self._note(f"{self._path}: {error.strerror or error}")
            self._written = False
        else:
            self._written = True
