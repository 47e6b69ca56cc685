"""Errors that end the program with one line: mistakes of the user, and signals."""

import re


class UserError(Exception):
    """A mistake of the user: one line (what, where, what to do), exit status 2."""


class Interrupted(BaseException):
    """SIGTERM or Ctrl-C arrived. `main` ends with 128 + `signal_number`.

    Not an Exception, like KeyboardInterrupt: it can be raised anywhere, and code that
    catches a library's errors must not catch it.
    """

    def __init__(self, signal_number: int):
        super().__init__(f"stopped by signal {signal_number}")
        self.signal_number = signal_number


def first_line(error: BaseException) -> str:
    """Returns the first line of other code's error, at most 150 characters."""
    return str(error).strip().partition("\n")[0][:150] or type(error).__name__


def escape_controls(text: str) -> str:
    """Escapes characters that a terminal obeys or writes backward."""
    obeyed = "[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
    return re.sub(obeyed, lambda match: ascii(match[0])[1:-1], text)
