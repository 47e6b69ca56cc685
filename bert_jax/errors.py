"""What a user can cause, and how it ends: one line, exit status 2."""


class UserError(Exception):
    """Its text is the line to print: what is wrong, where, and what to do."""


class Interrupted(BaseException):
    """SIGTERM or Ctrl-C arrived; `main` ends with 128 + `signal_number`.

    No Exception, for the same reason as KeyboardInterrupt: it may come anywhere, and
    is nothing that whoever guards against a library's errors should catch.
    """

    def __init__(self, signal_number: int):
        super().__init__(f"stopped by signal {signal_number}")
        self.signal_number = signal_number
