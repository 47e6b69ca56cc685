"""usage: python -m bert_jax.families.elmo --config=configs/elmo.py [--mode=MODE] [...]

modes
  train     (the default) prepares the text, trains or resumes, evaluates
  prepare   only prepares the text
  evaluate  scores the newest checkpoint on the held-out text
  extract   JSON lines with "text" or "words" in, vectors of the words out: those of a
            run, or of released files in the folder --workdir
  export    writes options.json, weights.hdf5 and vocab.txt

The flags are those of bert_jax.main. --config=configs/elmo.py --help shows the fields.
"""

from bert_jax.runtime import signals

if __name__ == "__main__":  # before the slow imports
    signals.set_handlers()
    from bert_jax.runtime import environment

    environment.prepare_memory()

import sys
from collections.abc import Sequence

from bert_jax import main
from bert_jax.config import command_line, help
from bert_jax.errors import UserError
from bert_jax.families.elmo import fields
from bert_jax.runtime import environment, processes


def run(argv: Sequence[str]) -> None:
    """Runs one mode.

    Raises:
      UserError: A problem that the user can fix.
    """
    fields.register()
    line = command_line.parse_flags(argv)
    if line.help:
        print(help.help_text(line.config) if line.config else __doc__, end="")
        return
    config, values, code = main.read_config(line)
    if config is not None and config.task.name != fields.NAME:
        raise UserError(
            f"--config={line.config}: is of the task {config.task.name!r}, which "
            "python -m bert_jax.main runs"
        )
    processes.connect(line.mode == "train")
    from bert_jax.families.elmo import modes  # imports JAX: bad flags fail before

    match line.mode:
        case "train":
            modes.train(config, line.workdir, values, code)
        case "prepare":
            modes.prepare(config, line.workdir, values)
        case "evaluate":
            modes.evaluate(config, line.workdir, values)
        case "extract":
            modes.extract(line.workdir, line.input, line.output, values)
        case "export" if line.onnx:
            raise UserError(f"--onnx={line.onnx}: an ELMo has no ONNX graph")
        case "export":
            modes.export(line.workdir, line.output)
        case other:
            raise UserError(
                f"--mode={other}: an ELMo has train, prepare, evaluate, extract, export"
            )


if __name__ == "__main__":
    environment.end_process(main.main(sys.argv[1:], run))
