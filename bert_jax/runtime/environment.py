"""A process's environment: locale, standard streams, JAX's variables."""

import contextlib
import functools
import gc
import os
import select
import subprocess
import sys
from typing import NoReturn, TextIO

from bert_jax.errors import UserError

CLOSED_PIPE = 141  # a shell's status for a program that SIGPIPE ended
# XLA's CPU buffers in huge pages: without them a fourth of a small model's step goes
# into fetching memory from the system, 4 kB at a time (glibc >= 2.35). Freed buffers of
# up to 32 MB stay with the process, 256 MB in all: else each call fetches them anew.
MALLOC = (
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432"
    ":glibc.malloc.trim_threshold=268435456"
)


def prepare() -> None:
    """Prepares memory and the standard streams; call it first, in the main program.

    It may start the program again, in the same process: glibc reads `MALLOC` only then,
    and text is UTF-8 in any locale, because data, rows and file names are. A stream
    that the caller has closed becomes the null device; otherwise a file of the run
    could take its number and receive what libraries print.

    Turns Python's garbage collector off, until `started`.
    """
    is_utf8 = sys.getfilesystemencoding() == "utf-8"  # not: PYTHONUTF8=0 LC_ALL=C
    debugged = bool({"pdb", "debugpy"} & sys.modules.keys())  # would lose the program
    untuned = sys.platform == "linux" and "GLIBC_TUNABLES" not in os.environ
    if not is_utf8 or (untuned and not debugged):
        os.environ.setdefault("GLIBC_TUNABLES", MALLOC)
        options = () if is_utf8 else ("-X", "utf8")
        os.execv(sys.executable, [sys.executable, *options, *sys.orig_argv[1:]])
    gc.disable()  # imports leave no garbage, and looking for it takes a sixth of them
    while (null := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(null)
    sys.stdout = sys.stdout or _open(1)
    sys.stderr = sys.stderr or _open(2)
    if hasattr(sys.stdout, "reconfigure"):
        # File names may not be UTF-8.
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")


def started() -> None:
    """Call it after the slow imports: Python looks for garbage again, but never among
    what they made, which stays."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def check() -> None:
    """Checks the environment variables of JAX and XLA.

    Raises:
      UserError: JAX or XLA rejects one; XLA would abort the process.
    """
    try:
        import jax  # noqa: F401 (the import is the check)
    except ValueError as error:
        raise UserError(f"JAX does not start: {error}") from error
    _check_xla_flags(os.environ.get("XLA_FLAGS", ""))


@functools.cache
def _check_xla_flags(flags: str) -> None:
    if not flags.strip():
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
        raise UserError(f"XLA_FLAGS={flags}: {lines[0].partition('] ')[2][:200]}")


def require_devices() -> None:
    """Finds the devices.

    Raises:
      UserError: JAX_PLATFORMS names a device that is not available.
    """
    import jax

    try:
        jax.devices()
    # JAX asserts that a platform that it knows is available.
    except (RuntimeError, AssertionError) as error:
        platforms = os.environ.get("JAX_PLATFORMS", "")
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"JAX_PLATFORMS={platforms}: no such device can be used here"
            f"{f' ({reason})' if reason else ''}; unset the variable and JAX uses what "
            "is available"
        ) from error


def output_is_closed() -> bool:
    """Whether the reader of standard output or error is gone (`| head -1`)."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # not a real file
            poll.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def end(status: int) -> NoReturn:
    """Flushes the streams and ends the process."""
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
        # Does not wait for threads that may still compile or write.
        os._exit(status)
    gc.freeze()  # Python would look through all objects; the process's end frees them
    sys.exit()


def say(line: str) -> None:
    """Prints to standard error; ignores a reader that is gone."""
    with contextlib.suppress(BrokenPipeError):
        print(line, file=sys.stderr)


def _open(number: int) -> TextIO:
    return os.fdopen(number, "w", encoding="utf-8", errors="surrogateescape")
