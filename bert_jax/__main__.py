"""The command `bert-jax`, the same as `python -m bert_jax`: one of `commands.NAMES`, or
the flags of `python -m bert_jax.main`."""

import importlib
import sys
from typing import NoReturn

from bert_jax import commands
from bert_jax.runtime import signals


def run() -> NoReturn:
    """Runs the command line, and ends the process with its exit status."""
    name, *arguments = sys.argv[1:] or [""]
    is_command = name in commands.NAMES
    if not is_command:  # which handle signals themselves
        signals.set_handlers()
    from bert_jax.runtime import environment

    environment.prepare_memory()  # the imports below are slow, and come after that
    if is_command:
        module = importlib.import_module(f"bert_jax.commands.{name.replace('-', '_')}")
        environment.collect_garbage()
        environment.end_process(module.main(arguments))
    from bert_jax.main import main

    environment.end_process(main(sys.argv[1:]))


if __name__ == "__main__":
    run()
