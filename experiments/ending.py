"""How a script that runs in one go ends: its text, or one line of error."""

import sys
from collections.abc import Callable

from absl import logging as absl_logging

from bert_jax.runtime import compilation_cache, failures


def status(work: Callable[[], str]) -> int:
    """Prints what `work` returns, or its error; gives the exit status.

    Raises:
      Exception: one that the user did not cause.
    """
    absl_logging.set_verbosity(absl_logging.FATAL)  # what Orbax logs is noise
    compilation_cache.keep()
    try:
        print(work())
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except Exception as error:
        found, text = failures.describe(error)
        if found is None:
            raise
        print(f"error: {' '.join(text.splitlines())}", file=sys.stderr)
        return found
    return 0
