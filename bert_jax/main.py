"""python -m bert_jax.main --config=configs/base.py [--mode=MODE] [...]"""

from bert_jax.runtime import environment, signals

if __name__ == "__main__":  # what follows takes its time
    environment.prepare()
    signals.remember()

import logging
import os
import pathlib
import re
import sys
import traceback
from collections.abc import Sequence

from absl import flags
from absl import logging as absl_logging
from ml_collections import ConfigDict

from bert_jax.config import configuration
from bert_jax.errors import Interrupted, UserError
from bert_jax.runtime import processes, storage

ASKS = ("evaluate", "predict", "export")
MODES = ("train", "prepare", *ASKS, "describe")


def main(argv: Sequence[str]) -> int:
    """Runs one mode; gives the exit status."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("bert_jax").setLevel(logging.INFO)
    # What Orbax and Grain find in trouble they raise; what they only tell is noise.
    absl_logging.set_verbosity(absl_logging.FATAL)
    bring_back = signals.remember()
    try:
        try:
            _run(argv)
            processes.close()
        finally:
            signals.remember()  # and not raised any more, where it would be lost
        signals.check()
    except Interrupted as interrupted:
        processes.interrupted(interrupted.signal_number)
        return 128 + interrupted.signal_number
    except Exception as error:
        if isinstance(error, BrokenPipeError) and environment.output_is_closed():
            processes.fail(environment.CLOSED_PIPE, "nobody reads standard output")
            return environment.CLOSED_PIPE
        status, text = _told(error)
        # Before it is printed: what another process has to say may be the cause.
        processes.fail(status or 1, text)
        if status is None and processes.count() == 1:
            raise
        if status is None:
            traceback.print_exc()
        else:
            environment.say(f"error: {' '.join(text.splitlines())}")
        return status or 1
    finally:
        processes.leave()
        bring_back()
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
        case MemoryError():
            return 2, (
                "this machine's memory does not hold this: lower the batch size or "
                f"the size of the data ({str(error)[:150]})"
            )
        case RuntimeError() if "RESOURCE_EXHAUSTED" in str(error):  # JAX's
            return 2, (
                "the device's memory does not hold this: raise "
                "config.train.micro_batches or config.mesh.fsdp, lower "
                "config.train.batch_size, or set config.model.remat=full "
                f"({str(error).splitlines()[0][:150]})"
            )
        # A program that runs at once raises what JAX else wraps: a ValueError.
        case RuntimeError() | ValueError() if processes.is_loss(error):
            line = str(error).splitlines()[0][:150]
            return 1, f"another process of this run has ended ({line})"
    return None, f"{type(error).__name__}: {str(error)[:150]}"


def _run(argv: Sequence[str]) -> None:
    values, spec, overrides = _parse(argv)
    given = configuration.load(spec, overrides) if spec else None
    environment.check()
    processes.start()
    if not processes.is_first():
        logging.getLogger("bert_jax").setLevel(logging.ERROR)
    # Imported here so that bad flags fail before JAX is imported.
    import jax

    from bert_jax import describe, evaluate, predict, train
    from bert_jax.runtime import compilation_cache, notice
    from bert_jax.training import asked, initial
    from bert_jax.workdir import folder as workdirs

    signals.raise_interrupted()
    if values["mode"] != "prepare":
        environment.require_devices()
    mode, source, target = (values[name] for name in ("mode", "input", "output"))
    if (mode, source) == ("predict", "-"):
        _require_one_process(mode)
    values["workdir"] = _workdir(values["workdir"], spec)
    workdir = storage.path(values["workdir"])
    asks = mode in ASKS
    config = asked.config(workdir, given, overrides, asks=asks)
    _check_places(values, config)
    if mode == "export":
        _export(workdir, config, target)
        return
    compilation_cache.keep()
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
            predict.predict(task, workdir, source, target)
        case "describe":
            describe.describe(task, target)


def _export(workdir: storage.Path, config: ConfigDict, target: str) -> None:
    from bert_jax.convert import weights
    from bert_jax.training import asked
    from bert_jax.workdir.checkpoint import checkpoint_name, has_checkpoint

    _require_one_process("export")
    if target == "-":
        raise UserError("--output=DIR is required, the folder to write")
    is_run = has_checkpoint(workdir)
    source = workdir if is_run else asked.source(workdir, config)
    name = checkpoint_name(config) if is_run else ""
    weights.export(source, pathlib.Path(target), name)
    print(f"exported: {target}")


def _require_one_process(mode: str) -> None:
    if processes.count() > 1:
        raise UserError(
            f"--mode={mode}: several processes write no folder and share no standard "
            "input; start one, or name --input=FILE"
        )


def _parse(argv: Sequence[str]) -> tuple[dict[str, str], str, list[str]]:
    """The flags, the value of --config, and the `--config.FIELD=VALUE`."""
    values = flags.FlagValues()
    flags.DEFINE_multi_string("config", [], "a config file", flag_values=values)
    flags.DEFINE_string("workdir", "", "the run's folder", flag_values=values)
    flags.DEFINE_enum("mode", "train", MODES, "what to do", flag_values=values)
    flags.DEFINE_string("input", "-", "JSON lines, or -", flag_values=values)
    flags.DEFINE_string("output", "-", "file, folder or -", flag_values=values)
    is_field = re.compile("--?config[.]").match
    if any(re.match("--?undefok(=|$)", text) for text in argv):  # absl's own
        raise UserError("--undefok: every flag must be one that there is")
    try:
        positional = values(["bert_jax.main", *(x for x in argv if not is_field(x))])
    except flags.Error as error:
        text = " ".join(str(error).split())
        if re.search("flag 'config.", text):
            text += "; fields are set by --config.FIELD=VALUE"
        raise UserError(text) from error
    if positional[1:]:
        raise UserError(f"{positional[1]!r}: flags begin with --")
    given = values.flag_values_dict()
    for name in ("workdir", "input", "output"):
        if given[name].startswith("--"):  # the flag after one that ends the line early
            raise UserError(f"--{name} {given[name]}: --{name}=VALUE is required")
    specs: list[str] = given.pop("config")
    if len(specs) > 1 or "" in specs:
        raise UserError("--config=FILE is required once, and not more")
    return given, "".join(specs), [x for x in argv if is_field(x)]


def _workdir(given: str, spec: str) -> str:
    """The work directory; by default that of the config's name."""
    if given or not spec:
        return given or "runs"
    return f"runs/{configuration.name(spec)}"


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
    sources = [source.partition(":")[2] for source in config.corpus.sources]
    named = [("--config.corpus.sources", source) for source in sources]
    for flag, place in (*places.items(), *named):
        if place not in ("", "-"):
            storage.check(flag, place.removeprefix("tfds:"))


if __name__ == "__main__":
    environment.end(main(sys.argv[1:]))
