"""How a command ends: its status, or one line of error."""

import functools
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from absl import logging as absl_logging

from bert_jax.errors import printable
from bert_jax.runtime import failures


def command(main: Callable[[Sequence[str]], int]) -> Callable[[Sequence[str]], int]:
    """A command's `main`, whose errors that the user can mend become a line.

    Raises (when it is called):
      Exception: one that the user did not cause.
    """

    @functools.wraps(main)
    def run(argv: Sequence[str]) -> int:
        try:
            return main(argv)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            return 130
        except Exception as error:  # what the user did not cause is raised again
            found, text = failures.describe(error)
            if found is None:
                raise
            print(f"error: {printable(' '.join(text.splitlines()))}", file=sys.stderr)
            return found

    return run


def start(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Ends this process with the status of a command's `main`."""
    sys.exit(main(sys.argv[1:]))


def compute() -> None:
    """To be called by a command that computes in its own process."""
    from bert_jax.runtime import environment

    absl_logging.set_verbosity(absl_logging.FATAL)  # what Orbax logs is noise
    environment.keep_programs()


def printed(text: Callable[[Sequence[str]], str]) -> Callable[[Sequence[str]], int]:
    """As `command`, of a script that computes here and whose result is a text."""

    @functools.wraps(text)
    def run(argv: Sequence[str]) -> int:
        compute()
        print(printable(text(argv)))
        return 0

    return command(run)
