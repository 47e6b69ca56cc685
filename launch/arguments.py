"""The command line of ./launch.sh tpu."""

import argparse
import difflib
import re
from collections.abc import Sequence

from launch.commands import Failure

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
_WITH_VALUE = {"run": "NAME", "setup": "COMMAND"}
# Names of folders, here and on the workers, too: Google Cloud's are narrower still.
_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_SEE = "; `./launch.sh tpu` says more"


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The parsed command line.

    Raises:
      Failure: it is wrong; says where.
    """
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
        elif name in _WITH_VALUE and value:
            setattr(options, name, value)
        elif name in _FLAGS and not equals:
            setattr(options, name.replace("-", "_"), True)
        else:
            raise Failure(f"{_shown(word)}: {_instead(name)}{_SEE}")
    if len(words) != 2:
        there = _shown(" ".join(words)) or "nothing"
        raise Failure(f"NAME and ZONE are needed before --, not {there}{_SEE}")
    options.name, options.zone = words
    _check_names(options)
    _check_together(options, separator)
    return options


def _shown(text: str) -> str:
    """What was given, short and on one line."""
    return "".join(c if c.isprintable() else "?" for c in text[:80])


def _instead(name: str) -> str:
    """What to write in the place of an option that is wrong."""
    if name in _FLAGS:
        return f"--{name} takes no value"
    if name in _WITH_VALUE:
        return f"write --{name}={_WITH_VALUE[name]}"
    near = difflib.get_close_matches(name, (*_FLAGS, *_WITH_VALUE), 1)
    return f"no such option{f'; did you mean --{near[0]}?' if near else ''}"


def _check_names(options: argparse.Namespace) -> None:
    names = {"NAME": options.name, "ZONE": options.zone, "--run": options.run}
    for what, name in names.items():
        if not _NAME.fullmatch(name):
            raise Failure(
                f"{what} is {name[:80]!r}: write at most 63 letters, digits, - and _, "
                f"a letter or digit first{_SEE}"
            )


def _check_together(options: argparse.Namespace, separator: bool) -> None:
    starts = not (options.attach or options.stop)
    if (starts or options.restart) and not separator:
        raise Failure(
            "no -- before the arguments of the command to start: write "
            f"./launch.sh tpu {options.name} {options.zone} -- --config=FILE{_SEE}"
        )
    if not starts and options.arguments and not options.restart:
        flag = "attach" if options.attach else "stop"
        raise Failure(f"--{flag} starts nothing: leave out what is after --{_SEE}")
    if options.recreate and not options.restart:
        raise Failure(f"--recreate is for --restart: add it{_SEE}")
