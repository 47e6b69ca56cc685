"""python -m bert_jax.main --config=configs/base.py [--mode=MODE] [...]"""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags
from absl import logging as absl_logging
from ml_collections import ConfigDict

from bert_jax import configuration, signals
from bert_jax.errors import Interrupted, UserError

MODES = ("train", "prepare", "evaluate", "predict", "export", "describe")


def main(argv: Sequence[str]) -> int:
    """Runs one mode; gives the exit status."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("bert_jax").setLevel(logging.INFO)
    # What Orbax and Grain find in trouble they raise; what they only tell is noise.
    absl_logging.set_verbosity(absl_logging.FATAL)
    signals.raise_interrupted()
    try:
        _run(argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, a folder that may not be written
        place = error.filename or "writing"
        print(f"error: {place}: {error.strerror or error}", file=sys.stderr)
        return 2
    except RuntimeError as error:  # JAX's, for one
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        print(
            "error: the device's memory does not hold this: raise "
            "config.train.micro_batches or config.mesh.fsdp, lower "
            "config.train.batch_size, or set config.model.remat "
            f"({str(error).splitlines()[0][:150]})",
            file=sys.stderr,
        )
        return 2
    except Interrupted as interrupted:
        return 128 + interrupted.signal_number
    return 0


def _run(argv: Sequence[str]) -> None:
    values, config = _parse(argv)
    _check_places(values, config)
    # Imported here so that a slip in the flags is told at once.
    from bert_jax import compilation_cache, describe, evaluate, initial, train, weights
    from bert_jax.checkpoint import checkpoint_name

    mode, source, target = (values[name] for name in ("mode", "input", "output"))
    workdir = Path(values["workdir"] or f"runs/{configuration.name(_spec(argv))}")
    if mode == "export":
        if target == "-":
            raise UserError("--output=DIR is wanted, the folder to write")
        weights.export(workdir, Path(target), checkpoint_name(config))
        print(f"exported: {target}")
        return
    compilation_cache.keep()
    asks = mode in ("predict", "evaluate")
    task = initial.resolve(config, workdir, from_data=not asks)
    match mode:
        case "train":
            train.train(task, workdir)
        case "prepare":
            for folder in task.prepare():
                print(f"prepared: {folder}")
        case "evaluate":
            evaluate.evaluate(task, workdir)
        case "predict":
            evaluate.predict(task, workdir, source, target)
        case "describe":
            describe.describe(task, target)


def _parse(argv: Sequence[str]) -> tuple[dict[str, str], ConfigDict]:
    values = flags.FlagValues()
    flags.DEFINE_string("workdir", "", "the run's folder", flag_values=values)
    flags.DEFINE_enum("mode", "train", MODES, "what to do", flag_values=values)
    flags.DEFINE_string("input", "-", "JSON lines, or -", flag_values=values)
    flags.DEFINE_string("output", "-", "file, folder or -", flag_values=values)
    fields = [arg for arg in argv if arg.lstrip("-").startswith("config.")]
    rest = [arg for arg in argv if not arg.lstrip("-").startswith("config")]
    try:
        positional = values(["bert_jax.main", *rest])[1:]
    except flags.Error as error:
        raise UserError(" ".join(str(error).split())) from error
    if positional:
        raise UserError(f"{positional[0]!r}: flags begin with --")
    return values.flag_values_dict(), configuration.load(_spec(argv), fields)


def _check_places(values: dict[str, str], config: ConfigDict) -> None:
    """A path such as gs://bucket/run would become a folder named gs: here."""
    places = {
        "--workdir": values["workdir"],
        "--output": values["output"],
        "--config.corpus.data_dir": config.corpus.data_dir,
        "--config.init_from": config.init_from,
    }
    for flag, place in places.items():
        if "://" in place:
            raise UserError(
                f"{flag}={place}: only folders of a file system that is mounted here "
                "are read and written; mount it, and name that folder"
            )


def _spec(argv: Sequence[str]) -> str:
    """The value of --config."""
    specs = [arg.partition("=")[2] for arg in argv if arg.startswith("--config=")]
    if len(specs) != 1 or not specs[0]:
        raise UserError(
            "--config=FILE is wanted once, such as --config=configs/base.py"
        )
    return specs[0]


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # After a failure threads may be left that compile or write; nothing waits for them.
    os._exit(status) if status else sys.exit(0)
