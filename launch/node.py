"""The slice itself: in what state it is, and how it comes back after preemption."""

import json
import shlex
import sys
import time
from typing import Any

from launch.commands import Commands, Failure, last_line, run

GONE = "NOT_FOUND"


class Node:
    """A slice, and what is done to make it READY again.

    Args:
      recreate: whether one that was preempted is deleted and created again: Google
        starts none again (https://cloud.google.com/tpu/docs/preemptible).
      poll: seconds between two looks.
    """

    def __init__(self, commands: Commands, recreate: bool, poll: float):
        self.commands, self.recreate, self.poll = commands, recreate, poll
        self.workers = 0
        self.is_there = False  # when it was last looked at
        self._described: dict[str, Any] = {}
        self._told = ""

    def state(self) -> str:
        """READY, PREEMPTED and so on; looks how many workers there are, too."""
        done = run(self.commands.describe())
        self.is_there = not done.returncode
        if done.returncode:
            gone = b"NOT_FOUND" in done.stderr
            return GONE if gone else f"not described: {last_line(done.stderr)}"
        self._described = json.loads(done.stdout)
        self.workers = len(self._described.get("networkEndpoints") or [0])
        return self._described.get("state", "UNKNOWN")

    def check(self) -> None:
        """Raises Failure where it could not be created again."""
        if not (self.recreate and self._described):
            return
        if "queuedResource" in self._described:
            raise Failure(
                f"{self.commands.name}: --recreate: it belongs to a queued resource, "
                "which only you can delete and create again; take --restart"
            )
        for field in ("acceleratorType", "runtimeVersion"):
            if field not in self._described:
                raise Failure(
                    f"{self.commands.name}: --recreate: `describe` tells no {field}, "
                    "without which it cannot be created again; take --restart"
                )

    def wait_until_ready(self) -> None:
        """A slice that was stopped is started; one that is gone is waited for."""
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
        # Printed first: whoever ends this program in between needs the second one. The
        # metadata may hold keys.
        shown = [word for word in create if not word.startswith("--metadata=")]
        say(f"{shlex.join(delete)}\n{shlex.join(shown)}")
        # Either may have done its work where gcloud says that it failed.
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
        """Says why something is tried again, once, and waits."""
        if reason != self._told:
            say(f"{reason}; trying again")
            self._told = reason
        time.sleep(self.poll)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
