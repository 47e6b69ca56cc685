"""The command `bert-jax`, the same as `python -m bert_jax.main`."""

import sys
from typing import NoReturn

from bert_jax.runtime import signals


def run() -> NoReturn:
    """Runs the command line, and ends the process with its exit status."""
    signals.set_handlers()
    from bert_jax.runtime import environment

    environment.prepare_memory()
    from bert_jax.main import main  # slow, and to be imported after that

    environment.end_process(main(sys.argv[1:]))


if __name__ == "__main__":
    run()
