"""The command `bert-jax`, the same as `python -m bert_jax.main`."""

import sys

from bert_jax.runtime import environment


def run() -> None:
    """Runs the command line, and ends the process with its exit status."""
    environment.prepare_memory()
    from bert_jax.main import main  # slow, and to be imported after that

    environment.end_process(main(sys.argv[1:]))


if __name__ == "__main__":
    run()
