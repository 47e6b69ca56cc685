"""How a command ends: its status, or one line of error."""

import sys
from collections.abc import Callable

from absl import logging as absl_logging

from bert_jax.errors import printable
from bert_jax.runtime import failures


def status(work: Callable[[], int], stopped: str) -> int:
    """The exit status of `work`; prints an error that the user can mend in one line.

    Args:
      stopped: what to print after Ctrl-C.

    Raises:
      Exception: one that the user did not cause.
    """
    try:
        return work()
    except KeyboardInterrupt:
        print(stopped, file=sys.stderr)
        return 130
    except Exception as error:
        found, text = failures.describe(error)
        if found is None:
            raise
        print(f"error: {printable(' '.join(text.splitlines()))}", file=sys.stderr)
        return found


def printed(work: Callable[[], str]) -> int:
    """As `status`, of a script that computes here and whose result is a text."""
    from bert_jax.runtime import compilation_cache  # brings JAX, half a second

    absl_logging.set_verbosity(absl_logging.FATAL)  # what Orbax logs is noise
    compilation_cache.keep()

    def run() -> int:
        print(work())
        return 0

    return status(run, "stopped")
