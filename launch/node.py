"""The slice itself: in what state it is, and how it comes back after preemption."""

import json
import shlex
import sys
import time
from typing import Any

from launch.commands import Commands, Failure, last_line, run


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
        self._described: dict[str, Any] = {}

    def state(self) -> str:
        """READY, PREEMPTED and so on; looks how many workers there are, too."""
        done = run(self.commands.describe())
        if done.returncode:
            self.workers = 0
            return f"not described: {last_line(done.stderr)}"
        self._described = json.loads(done.stdout)
        self.workers = len(self._described.get("networkEndpoints", [0]))
        return self._described.get("state", "UNKNOWN")

    def check(self) -> None:
        """Raises Failure where it could not be created again as it is."""
        if self.recreate and "queuedResource" in self._described:
            raise Failure(
                f"{self.commands.name}: --recreate: it belongs to a queued resource, "
                "which only you can delete and create again; take --restart"
            )

    def wait_until_ready(self) -> None:
        """A slice that was stopped is started; one that is gone is waited for."""
        told = ""
        while (state := self.state()) != "READY":
            if state != told:
                say(f"{self.commands.name} is {state}")
                told = state
            if state == "STOPPED":
                run(self.commands.start_node())
            if state == "PREEMPTED" and self.recreate:
                self._create_again()
                continue
            time.sleep(self.poll)

    def _create_again(self) -> None:
        create, told = self.commands.create(self._described), ""
        # Told first: whoever ends this program in between needs the second one.
        for command in (self.commands.delete(), create):
            say(shlex.join(command))
        while (done := run(self.commands.delete())).returncode:
            if self.state() != "PREEMPTED":
                return
            say(f"not deleted ({last_line(done.stderr)}); trying again")
            time.sleep(self.poll)
        while (done := run(create)).returncode:
            if (reason := last_line(done.stderr)) != told:
                say(f"not created ({reason}); trying again")
                told = reason
            time.sleep(self.poll)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
