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
    """An unraisable hook that drops "Event loop is closed". TensorStore raises it for
    each write in progress once Orbax has stopped at the first failed write; waiting for
    the save raises that first failure."""
    error = unraisable.exc_value
    if not (isinstance(error, RuntimeError) and str(error) == "Event loop is closed"):
        hook(unraisable)


def first_line(error: Exception) -> str:
    """The first line of an error's message, without TensorStore's appendix."""
    text = str(error).partition(" See full TensorStore details")[0]
    return next(iter(text.splitlines()), type(error).__name__)[:200]


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Silences Orbax's warnings."""
    verbosity = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.FATAL)
    try:
        yield
    finally:
        absl_logging.set_verbosity(verbosity)


@contextlib.contextmanager
def reported_once() -> Iterator[None]:
    """Keeps Orbax from reporting one damaged file once per reader."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: log.debug("%s", unraisable.exc_value)
    with quietly():
        try:
            yield
        except Exception:  # any: it is raised again
            gc.collect()  # the readers report when they are collected
            raise
        finally:
            sys.unraisablehook = hook
