"""The slice itself: its state, and how to bring it back after preemption."""

import json
import shlex
import sys
import time
from typing import Any

from launch.commands import Commands, Failure, last_line, run

GONE = "NOT_FOUND"


class Node:
    """A slice; makes it READY again after preemption.

    Args:
      recreate: delete and recreate a preempted slice: Google does not restart one
        (https://cloud.google.com/tpu/docs/preemptible).
      poll: seconds between polls.
    """

    def __init__(self, commands: Commands, recreate: bool, poll: float):
        self.commands, self.recreate, self.poll = commands, recreate, poll
        self.workers = 0
        self.is_there = False  # at the last poll
        self._described: dict[str, Any] = {}
        self._told = ""

    def state(self) -> str:
        """Returns READY, PREEMPTED and so on; also updates the number of workers."""
        done = run(self.commands.describe())
        self.is_there = not done.returncode
        if done.returncode:
            if b"[project]" in done.stderr:
                raise Failure(
                    "gcloud has no project: `gcloud config set project PROJECT`, or "
                    "set CLOUDSDK_CORE_PROJECT"
                )
            gone = b"NOT_FOUND" in done.stderr
            return GONE if gone else f"not described: {last_line(done.stderr)}"
        try:
            self._described = dict(json.loads(done.stdout))
        except (ValueError, TypeError):
            return f"not described: not JSON: {last_line(done.stdout)[:80]}"
        self.workers = len(self._described.get("networkEndpoints") or [0])
        return self._described.get("state", "UNKNOWN")

    def check(self) -> None:
        """Raises Failure if it could not be created again."""
        if not (self.recreate and self._described):
            return
        if "queuedResource" in self._described:
            raise Failure(
                f"{self.commands.name}: --recreate: it belongs to a queued resource, "
                "which only you can delete and create again; use --restart"
            )
        for field in ("acceleratorType", "runtimeVersion"):
            if field not in self._described:
                raise Failure(
                    f"{self.commands.name}: --recreate: `describe` shows no {field}, "
                    "which is required to create it again; use --restart"
                )

    def wait_until_ready(self) -> None:
        """Starts a stopped slice; waits for one that is gone."""
        said = ""
        while (state := self.state()) != "READY":
            if state != said:
                say(f"{self.commands.name} is {state}")
                said = state
            if state == "STOPPED":
                run(self.commands.start_node())
            if state == "PREEMPTED" and self.recreate:
                self._create_again()
                continue
            time.sleep(self.poll)

    def _create_again(self) -> None:
        delete, create = self.commands.delete(), self.commands.create(self._described)
        # Print both first: a user who stops this program in between needs the second.
        # Omit the metadata, which may have keys.
        shown = [word for word in create if not word.startswith("--metadata=")]
        say(f"{shlex.join(delete)}\n{shlex.join(shown)}")
        # Either command may have worked even if gcloud reports a failure.
        while (done := run(delete)).returncode:
            self._tell(f"not deleted ({last_line(done.stderr)})")
            state = self.state()
            if state == GONE:
                break
            if self.is_there and state not in ("PREEMPTED", "DELETING"):
                return
        while (done := run(create)).returncode:
            self._tell(f"not created ({last_line(done.stderr)})")
            self.state()
            if self.is_there:
                return

    def _tell(self, reason: str) -> None:
        """Prints the reason for a retry, once, and waits."""
        if reason != self._told:
            say(f"{reason}; trying again")
            self._told = reason
        time.sleep(self.poll)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
