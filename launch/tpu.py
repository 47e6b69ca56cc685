"""./launch.sh tpu: one command on every worker of a Cloud TPU VM slice.

Uses `gcloud compute tpus tpu-vm describe`, `scp`, `ssh`, `start`, `delete` and `create`
as their --help describes them (Google Cloud SDK 528), and only Python's standard
library, because nothing is installed yet. tpu_worker.sh does the work on each worker.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from launch.arguments import USAGE, parse
from launch.commands import ARCHIVE, Commands, Failure, State, last_line, run
from launch.files import own_folder, pack
from launch.node import Node, say
from launch.stream import Stream

# Seconds between polls of the workers; tests set it lower.
POLL = float(os.environ.get("BERT_JAX_TPU_POLL", "15"))
TRIES = 40  # failed attempts before giving up on a READY slice
SHOWN = 4000  # bytes of the log that --attach shows first
GRACE = 30  # seconds for the other workers to end after one has failed
SAVE = 300  # seconds for a stopped run to save itself
INTERRUPTED = (130, 143)  # main's exit statuses after a signal, with its step saved


class Preempted(Exception):
    """The slice or a worker was preempted or restarted."""


class Launch:
    """Starts, follows, restarts and stops a run on a slice."""

    def __init__(self, commands: Commands, root: Path, options: argparse.Namespace):
        self.commands, self.root, self.options = commands, root, options
        self.node = Node(commands, options.recreate, POLL)
        self.restarting = False
        self.stream: Stream | None = None

    def go(self) -> int:
        """Returns the run's exit status."""
        start = not self.options.attach
        while True:
            try:
                # If the slice was only unreachable, the run is still running.
                if self.restarting:
                    start = any(s.word != "running" for s in self._states())
                if start:
                    self._start()
                    self.stream = Stream(0)
                return self._follow()
            except Preempted as preempted:
                if not self.options.restart:
                    raise Failure(
                        f"{self.commands.name}: {preempted}; once it is READY, run the "
                        "same command to resume; --restart waits and does that itself",
                        1,
                    ) from None
                say(f"{self.commands.name}: {preempted}; waiting until it is READY")
                self.node.wait_until_ready()
                self.restarting = True

    def stop(self) -> int:
        self._require_ready()
        self._call(self.commands.stop(SAVE))
        say("stopped")
        return 0

    def _start(self) -> None:
        self._require_ready()
        busy = [i for i, s in enumerate(self._states()) if s.word == "running"]
        if busy and not self.restarting:
            raise Failure(
                f"{self.commands.name}: a run is under way on worker {busy[0]}; "
                "--attach follows it, --stop ends it"
            )
        if busy:  # some workers were lost, these still run
            self._call(self.commands.stop(GRACE))
        count = pack(self.root, self.commands.folder / ARCHIVE)
        say(f"copying {count} files to {self.node.workers} worker(s) and starting")
        self._call(self.commands.copy())
        self._call(self.commands.unpack())
        if self.options.setup:
            self._set_up()
        self._call(self.commands.start(self.options.arguments))

    def _set_up(self) -> None:
        done = run(self.commands.set_up(self.options.setup))
        if done.returncode:
            sys.stderr.buffer.write(done.stdout + done.stderr)
            self._require_ready()
            raise Failure("--setup failed; what it said is above", done.returncode)

    def _follow(self) -> int:
        if self.stream is None:  # attached: start near the log's end
            states = self._states()
            if all(state.word == "none" for state in states):
                raise Failure(f"{self.commands.name}: there is no run to attach to")
            self.stream = Stream(max(0, states[0].log_bytes - SHOWN))
        stream = self.stream
        try:
            while True:
                if not stream.open:
                    stream.begin(self.commands.follow(stream.shown))
                stream.wait(POLL)
                states = self._states()
                if any(s.word == "stopped" for s in states):
                    raise Failure(f"{self.commands.name}: the run was stopped", 143)
                again = any(s.word in ("none", "rebooted") for s in states)
                failed = any(state.failed for state in states)
                if again or failed:
                    self._check_not_preempted()
                if again or self._was_interrupted(states):
                    raise Preempted("a worker was restarted or preempted")
                if failed:
                    self._drain(stream, states)
                    return self._failed(states)
                if all(state.word == "ended" for state in states):
                    self._drain(stream, states)
                    return 0
        finally:
            stream.close()

    def _was_interrupted(self, states: Sequence[State]) -> bool:
        """Whether to restart: a signal of the system ended the run, its step saved."""
        ends = [state.status for state in states if state.failed]
        restart = self.options.restart and not any(s.word == "killed" for s in states)
        return bool(restart and ends and all(end in INTERRUPTED for end in ends))

    def _drain(self, stream: Stream, states: Sequence[State]) -> None:
        """Shows the rest of worker 0's log, if worker 0 has ended."""
        end = time.monotonic() + GRACE
        while time.monotonic() < end:
            if states[0].word == "running" or stream.shown >= states[0].log_bytes:
                return
            if not stream.open:
                stream.begin(self.commands.follow(stream.shown))
            stream.wait(POLL)

    def _failed(self, states: Sequence[State]) -> int:
        failed = [i for i, state in enumerate(states) if state.failed]
        # A worker that a signal ended is not the cause.
        worker = min(failed, key=lambda i: (states[i].status in INTERRUPTED, i))
        say(f"worker {worker} {states[worker]}; its last lines:")
        tail = subprocess.run(
            self.commands.tail(worker), stdin=subprocess.DEVNULL, capture_output=True
        )
        sys.stderr.buffer.write(tail.stdout)
        if any(state.word == "running" for state in states):
            say("stopping the other workers")
            self._call(self.commands.stop(GRACE))
        raise Failure(
            f"worker {worker} of {self.commands.name} {states[worker]}",
            states[worker].status or 1,
        )

    def _require_ready(self) -> None:
        state = self.node.state()
        self.node.check()
        if state == "READY":
            return
        if self.options.restart and self.node.is_there:
            raise Preempted(f"the slice is {state}")
        raise Failure(f"{self.commands.name} in {self.commands.zone} is {state}")

    def _states(self) -> list[State]:
        """Every worker's state.

        Raises:
          Preempted: the slice is not READY.
          Failure: it is, but cannot be reached.
        """
        if not self.node.workers:
            self._require_ready()
        folder = self.commands.folder / "status"
        folder.mkdir(parents=True, exist_ok=True)
        for tries in range(TRIES):
            for old in folder.iterdir():
                old.unlink()
            done = run(self.commands.status())
            logs = [folder / f"{worker}.log" for worker in range(self.node.workers)]
            texts = [log.read_text("utf-8", "replace") for log in logs if log.exists()]
            states = [state for text in texts if (state := State.parse(text))]
            if len(states) == self.node.workers:
                return states
            self._pause(done, tries)
        raise self._unreachable(done)

    def _call(self, command: Sequence[str]) -> None:
        """Calls a command until it succeeds; raises as `_states` does."""
        for tries in range(TRIES):
            done = run(command)
            if not done.returncode:
                return
            self._pause(done, tries)
        raise self._unreachable(done)

    def _check_not_preempted(self) -> None:
        state = self.node.state()
        if state != "READY" and self.node.is_there:
            raise Preempted(f"the slice is {state}")

    def _pause(self, done: subprocess.CompletedProcess, tries: int) -> None:
        self._check_not_preempted()
        if tries == 0:
            say(f"not every worker answers ({last_line(done.stderr)}); trying again")
        time.sleep(POLL)

    def _unreachable(self, done: subprocess.CompletedProcess) -> Exception:
        reason = f"cannot be reached ({last_line(done.stderr)})"
        if self.options.restart:
            return Preempted(reason)
        return Failure(
            f"{self.commands.name} {reason}; a started run continues: --attach follows "
            "it"
        )


def printed(commands: Commands, options: argparse.Namespace) -> Iterator[str]:
    """The commands in order, with comments on when they are called."""
    if options.stop:
        yield from map(shlex.join, (commands.describe(), commands.stop(SAVE)))
        return
    yield shlex.join(commands.describe())
    yield shlex.join(commands.status())
    if not options.attach:
        yield from map(shlex.join, (commands.copy(), commands.unpack()))
        if options.setup:
            yield shlex.join(commands.set_up(options.setup))
        yield shlex.join(commands.start(options.arguments))
    yield "# worker 0's output; after a disconnect, from the byte where it stopped"
    yield shlex.join(commands.follow(0))
    yield f"# every {POLL:g} seconds until the run has ended everywhere"
    yield shlex.join(commands.status())
    if options.recreate:
        yield "# if it was preempted; then `create`, with what `describe` showed"
        yield shlex.join(commands.delete())
    yield "# if a worker has failed (here worker 0)"
    yield from map(shlex.join, (commands.tail(0), commands.stop(GRACE)))


def main(root: Path, argv: Sequence[str]) -> int:
    if not argv:
        sys.stderr.write(USAGE)
        return 2
    try:
        options = parse(argv)
        folder, lock = own_folder(options.name)
        with lock:
            commands = Commands(
                options.name, options.zone, options.run, root.name, folder
            )
            if options.dry_run:
                print("\n".join(printed(commands, options)))
                return 0
            launch = Launch(commands, root, options)
            return launch.stop() if options.stop else launch.go()
    except Failure as failure:
        say(f"error: {failure}")
        return failure.status
    except OSError as error:
        if isinstance(error, FileNotFoundError) and error.filename == "gcloud":
            say("error: gcloud is not installed: see the Google Cloud SDK")
        else:  # a full disk, a folder that cannot be written
            place = error.filename or tempfile.gettempdir()
            say(f"error: {place}: {error.strerror}")
        return 2
    except KeyboardInterrupt:
        say("detached; the run continues: --attach follows it, --stop ends it")
        return 130


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
