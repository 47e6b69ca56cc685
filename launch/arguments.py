"""The command line of ./launch.sh tpu."""

import argparse
from collections.abc import Sequence

USAGE = """\
usage: ./launch.sh tpu NAME ZONE [options] -- [arguments]
  copies this repository to every worker of the slice, runs `./launch.sh arguments`
  there, and shows worker 0's output. The run outlives this command.

  --attach    follows the current run; copies and starts nothing
  --restart   continues after preemption: waits until the slice is READY again, copies
              and starts the same command, which resumes
  --recreate  with --restart: deletes a preempted slice and creates an equal one; what
              is on its boot disks is lost
  --stop      ends the run (SIGTERM: it saves its step)
  --setup=COMMAND
              runs first on every worker, in the repository, to mount a disk for example
  --run=NAME  tells runs apart (default: run)
  --dry-run   prints the commands instead
"""

_FLAGS = ("attach", "restart", "recreate", "stop", "dry-run")


def parse(argv: Sequence[str]) -> argparse.Namespace | None:
    """The parsed command line; None if it is invalid."""
    own, separator, rest = list(argv), False, []
    if "--" in own:
        at = own.index("--")
        own, separator, rest = own[:at], True, own[at + 1 :]
    options = argparse.Namespace(run="run", setup="", arguments=rest)
    for name in _FLAGS:
        setattr(options, name.replace("-", "_"), False)
    words = []
    for word in own:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("-"):
            words.append(word)
        elif name == "run" and value and value.replace("-", "").isalnum():
            options.run = value
        elif name == "setup" and value:
            options.setup = value
        elif name in _FLAGS and not equals:
            setattr(options, name.replace("-", "_"), True)
        else:
            return None
    starts = not (options.attach or options.stop)
    # To start or restart, the command must be given.
    if len(words) != 2 or ((starts or options.restart) and not separator):
        return None
    if (options.attach or options.stop) and rest and not options.restart:
        return None
    if options.recreate and not options.restart:
        return None
    options.name, options.zone = words
    return options
