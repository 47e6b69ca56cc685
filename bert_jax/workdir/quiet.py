"""What Orbax and TensorStore print of a failure that is raised as well."""

import contextlib
import gc
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

from absl import logging as absl_logging

log = logging.getLogger(__name__)


def but_closed_loops(hook: Callable[[Any], object], unraisable: Any) -> None:
    """Tells what nobody can catch, but for TensorStore's complaint, once for each write
    under way, that Orbax no longer listens: Orbax stops at the first write that fails,
    and that failure is raised where the save is waited for."""
    error = unraisable.exc_value
    if not (isinstance(error, RuntimeError) and str(error) == "Event loop is closed"):
        hook(unraisable)


def first_line(error: Exception) -> str:
    """Of what an error says, without TensorStore's appendix."""
    text = str(error).partition(" See full TensorStore details")[0]
    return next(iter(text.splitlines()), type(error).__name__)[:200]


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keeps Orbax's warnings back."""
    verbosity = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.FATAL)
    try:
        yield
    finally:
        absl_logging.set_verbosity(verbosity)


@contextlib.contextmanager
def reported_once() -> Iterator[None]:
    """Keeps Orbax from telling of one damaged file once for each of its readers."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: log.debug("%s", unraisable.exc_value)
    with quietly():
        try:
            yield
        except Exception:
            gc.collect()  # the readers report when they are collected
            raise
        finally:
            sys.unraisablehook = hook
