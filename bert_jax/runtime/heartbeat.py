"""Shows that a run is alive, and what it waits for when it makes no progress."""

import json
import os
import threading
import time

from bert_jax.runtime.clock import Stopwatch
from bert_jax.runtime.storage import Path, write_atomically
from bert_jax.runtime.terminal import say

SECONDS = 5.0  # between two heartbeats

# The stopwatch's names -> what the run waits for, for the user.
_WAITS_FOR = {
    "data wait": "data",
    "compile": "the compiler",
    "step": "the devices to take a step",
    "checkpoint": "the checkpoint to be written",
    "evaluation": "the devices to evaluate",
    "": "the start, or work between two steps",
}


class Heartbeat:
    """A thread that watches the stopwatch, at no cost to the run.

    Every few seconds it writes `heartbeat.json` in the work directory: `time` and
    `since` (seconds since 1970: now, and the last time anything started or ended),
    `step`, `phase` (the stopwatch's name for what is running) and `pid`. An old `time`
    means a dead process; an old `since` means a hanging one.

    After `stall_seconds` without progress it prints what the run waits for; again after
    twice that time, four times, and so on; and when the run continues.

    Args:
      folder: the work directory.
      clock: the run's.
      stall_seconds: 0: never prints.
      process: its number; only 0 writes the file.
    """

    def __init__(
        self,
        folder: Path,
        clock: Stopwatch,
        stall_seconds: int | float,
        process: int = 0,
    ):
        self.step = 0  # set by the training loop
        self._path, self._clock = folder / "heartbeat.json", clock
        self._stall, self._process = stall_seconds, process
        self._turns, self._since = -1, (time.time(), time.monotonic())
        self._limit = stall_seconds
        self._written = True  # whether the last write succeeded
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(SECONDS)  # no longer: the disk may hang
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
        except OSError as error:  # not fatal, but often the first sign of a full disk
            if self._written:
                self._note(f"{self._path}: {error.strerror or error}")
            self._written = False
        else:
            self._written = True
