"""Silences what Orbax and TensorStore print about a failure that is also raised."""

import contextlib
import gc
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

from absl import logging as absl_logging

log = logging.getLogger(__name__)


def but_closed_loops(hook: Callable[[Any], object], unraisable: Any) -> None:
    """An unraisable hook that drops "Event loop is closed", which TensorStore raises
    for each write in progress after the first failed one."""
    if str(unraisable.exc_value) != "Event loop is closed":
        hook(unraisable)


def first_line(error: Exception) -> str:
    """The first line of an error's message, without TensorStore's appendix."""
    text = str(error).partition(" See full TensorStore details")[0]
    return next(iter(text.splitlines()), type(error).__name__)[:200]


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Silences Orbax's warnings, and its reports of a damaged file, one per reader."""
    verbosity, hook = absl_logging.get_verbosity(), sys.unraisablehook
    absl_logging.set_verbosity(absl_logging.FATAL)
    sys.unraisablehook = lambda unraisable: log.debug("%s", unraisable.exc_value)
    try:
        yield
    except Exception:  # any: it is raised again
        gc.collect()  # the readers report when they are collected
        raise
    finally:
        absl_logging.set_verbosity(verbosity)
        sys.unraisablehook = hook
