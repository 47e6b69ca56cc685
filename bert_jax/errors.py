"""Errors that end the program with one line: mistakes of the user, and signals."""


class UserError(Exception):
    """Prints its text, one line (what, where, what to do); exit status 2."""


class Interrupted(BaseException):
    """SIGTERM or Ctrl-C arrived; `main` ends with 128 + `signal_number`.

    Not an Exception, like KeyboardInterrupt: it can be raised anywhere, and code that
    catches a library's errors must not catch it.
    """

    def __init__(self, signal_number: int):
        super().__init__(f"stopped by signal {signal_number}")
        self.signal_number = signal_number


def first_line(error: BaseException) -> str:
    """The first line of an error of other code, at most 150 characters."""
    return str(error).strip().partition("\n")[0][:150] or type(error).__name__
