"""python -m bert_jax.main --config=configs/base.py [--mode=MODE] [...]"""

import logging
import os
import pathlib
import sys
import traceback
from collections.abc import Sequence

from absl import flags
from absl import logging as absl_logging
from ml_collections import ConfigDict

from bert_jax import configuration, processes, signals, storage
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
        processes.close()
    except Interrupted as interrupted:
        processes.interrupted(interrupted.signal_number)
        return 128 + interrupted.signal_number
    except Exception as error:
        status, text = _told(error)
        # Before it is printed: what another process has to say may be the cause.
        processes.fail(status or 1, text)
        if status is None and processes.count() == 1:
            raise
        if status is None:
            traceback.print_exc()
        else:
            print(f"error: {' '.join(text.splitlines())}", file=sys.stderr)
        return status or 1
    return 0


def _told(error: Exception) -> tuple[int | None, str]:
    """Exit status and line for an error that a user can cause; None for another."""
    match error:
        case UserError():
            return 2, str(error)
        case _ if storage.is_trouble(error):
            return 2, (
                f"Google Cloud Storage: {type(error).__name__}: {str(error)[:300]}; is "
                "the bucket's name right, and may this machine use it (gcloud auth "
                "application-default login)?"
            )
        case OSError():  # a full disk, a folder that may not be written
            place = error.filename or "writing"
            return 2, f"{place}: {error.strerror or error}"
        case RuntimeError() if "RESOURCE_EXHAUSTED" in str(error):  # JAX's
            return 2, (
                "the device's memory does not hold this: raise "
                "config.train.micro_batches or config.mesh.fsdp, lower "
                "config.train.batch_size, or set config.model.remat=full "
                f"({str(error).splitlines()[0][:150]})"
            )
        # A program that runs at once raises what JAX else wraps: a ValueError.
        case RuntimeError() | ValueError() if processes.is_loss(error):
            processes.hear()
            line = str(error).splitlines()[0][:150]
            return 1, f"another process of this run has ended ({line})"
    return None, f"{type(error).__name__}: {str(error)[:150]}"


def _run(argv: Sequence[str]) -> None:
    values, config = _parse(argv)
    _check_places(values, config)
    processes.start()
    if not processes.is_first():
        logging.getLogger("bert_jax").setLevel(logging.ERROR)
    # Imported here so that a slip in the flags is told at once.
    import jax

    from bert_jax import (
        compilation_cache,
        describe,
        evaluate,
        initial,
        notice,
        train,
        weights,
    )
    from bert_jax import workdir as workdirs
    from bert_jax.checkpoint import checkpoint_name

    mode, source, target = (values[name] for name in ("mode", "input", "output"))
    if processes.count() > 1 and (
        mode == "export" or (mode, source) == ("predict", "-")
    ):
        raise UserError(
            f"--mode={mode}: several processes write no folder and share no standard "
            "input; start one, or name --input=FILE"
        )
    workdir = storage.path(
        values["workdir"] or f"runs/{configuration.name(_spec(argv))}"
    )
    if mode == "export":
        if target == "-":
            raise UserError("--output=DIR is wanted, the folder to write")
        weights.export(workdir, pathlib.Path(target), checkpoint_name(config))
        print(f"exported: {target}")
        return
    compilation_cache.keep()
    asks = mode in ("predict", "evaluate")
    task = initial.resolve(config, workdir, from_data=not asks)
    processes.check_same("the config", workdirs.fields(task.config))
    match mode:
        case "train":
            notice.watch(jax.default_backend())
            train.train(task, workdir)
        case "prepare":
            with processes.first_alone():
                folders = task.prepare()
            for folder in folders if processes.is_first() else ():
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
    """Raises UserError where a place is of a kind that cannot be used there."""
    if values["mode"] == "export" and "://" in values["output"]:
        raise UserError(
            f"--output={values['output']}: an export is a folder of this machine; "
            "write it here and copy it"
        )
    places = {f"--{name}": values[name] for name in ("workdir", "input", "output")}
    places |= {
        "--config.corpus.data_dir": config.corpus.data_dir,
        "--config.init_from": config.init_from,
        "--config.tokenizer.vocab_file": config.tokenizer.vocab_file,
    }
    places |= {
        f"--config.task.{name}": value
        for name, value in config.task.items()
        if isinstance(value, str)
    }
    for name in ("JAX_COMPILATION_CACHE_DIR", "TFDS_DATA_DIR"):
        places[name] = os.environ.get(name, "")
    for flag, place in places.items():
        storage.check(flag, place.removeprefix("tfds:"))
    for source in config.corpus.sources:
        storage.check("--config.corpus.sources", source.partition(":")[2])


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
