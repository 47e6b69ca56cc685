"""What a process finds around it: locale, standard streams, JAX's own variables."""

import contextlib
import functools
import os
import select
import subprocess
import sys
from typing import NoReturn, TextIO

from bert_jax.errors import UserError

CLOSED_PIPE = 141  # what a shell gives for a program that SIGPIPE has ended


def prepare() -> None:
    """Makes the streams fit for use; for a process of its own, before all else.

    Text is UTF-8, whatever the locale says: data, rows and file names are. A stream
    that the caller has closed becomes the null device, so that no file of the run is
    opened in its place and gets what libraries print.
    """
    if sys.getfilesystemencoding() != "utf-8":  # PYTHONUTF8=0 LC_ALL=C
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    while (null := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(null)
    sys.stdout = sys.stdout or _open(1)
    sys.stderr = sys.stderr or _open(2)
    if hasattr(sys.stdout, "reconfigure"):
        # File names may be no UTF-8.
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")


def check() -> None:
    """Looks at the variables by which JAX and XLA are set.

    Raises:
      UserError: one that they refuse; XLA would end the process.
    """
    try:
        import jax  # noqa: F401
    except ValueError as error:
        raise UserError(f"JAX does not start: {error}") from error
    _check_xla_flags(os.environ.get("XLA_FLAGS", ""))


@functools.cache
def _check_xla_flags(given: str) -> None:
    if not given.strip():
        return
    program = "from jaxlib import xla_client; xla_client.CompileOptions()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [""]
        raise UserError(f"XLA_FLAGS={given}: {lines[0].partition('] ')[2][:200]}")


def require_devices() -> None:
    """Finds the devices.

    Raises:
      UserError: JAX_PLATFORMS names one that is not there.
    """
    import jax

    try:
        jax.devices()
    # JAX asserts that a platform that it knows is there.
    except (RuntimeError, AssertionError) as error:
        given = os.environ.get("JAX_PLATFORMS", "")
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"JAX_PLATFORMS={given}: no such device can be used here"
            f"{f' ({reason})' if reason else ''}; without that variable JAX takes what "
            "is there"
        ) from error


def output_is_closed() -> bool:
    """Whether nobody reads any more what is printed (`| head -1`)."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # none that the system knows
            poll.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def end(status: int) -> NoReturn:
    """Ends the process, with what is still to be printed."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as error:
        if not status and output_is_closed():
            status = CLOSED_PIPE
        elif not status:
            status = 2
            say(f"error: standard output: {error.strerror}")
        os._exit(status)
    if status:
        # Threads may be left that compile or write; nothing waits for them.
        os._exit(status)
    sys.exit()


def say(line: str) -> None:
    """Prints to standard error, as long as somebody reads it."""
    with contextlib.suppress(BrokenPipeError):
        print(line, file=sys.stderr)


def _open(number: int) -> TextIO:
    return os.fdopen(number, "w", encoding="utf-8", errors="surrogateescape")
