"""python -m bert_jax.main --config=configs/base.py [--mode=MODE] [...]"""

from bert_jax.runtime import signals

if __name__ == "__main__":  # before the slow imports
    signals.set_handlers()
    from bert_jax.runtime import environment

    environment.prepare_memory()

import logging
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging as absl_logging
from ml_collections import ConfigDict

from bert_jax.config import command_line, configuration, files, help
from bert_jax.errors import Interrupted, escape_controls
from bert_jax.runtime import environment, failures, processes, storage


def main(argv: Sequence[str]) -> int:
    """Runs one mode. Returns the exit status."""
    set_up_logging()
    try:
        _run(argv)
        sys.stdout.flush()
        processes.disconnect()
    except Interrupted as interrupted:
        return 128 + interrupted.signal_number
    except BaseException as error:
        if isinstance(error, BrokenPipeError):  # nobody reads standard output
            return 128 + signal.SIGPIPE
        status, text = failures.describe_failure(error)
        if status is None and processes.process_count() == 1:
            raise
        if status is None:
            traceback.print_exc()  # and no wait for the other processes
        else:
            print(
                f"error: {escape_controls(' '.join(text.splitlines()))}",
                file=sys.stderr,
            )
        return status or 1
    finally:
        processes.disconnect(seconds=5.0)
    return 0


def set_up_logging() -> None:
    """Logs only messages, to standard error."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("bert_jax").setLevel(logging.INFO)
    # Orbax and Grain raise their real errors. Messages that they only log are noise.
    absl_logging.set_verbosity(absl_logging.FATAL)


def _run(argv: Sequence[str]) -> None:
    line = command_line.parse_flags(argv)
    if line.help:
        print(help.help_text(line.config), end="")
        return
    if not line.config:
        run_mode(line, None)
        return
    config = configuration.load_config(line.config, line.overrides)
    run_mode(line, config, files.read_code(line.config))


def run_mode(
    line: command_line.CommandLine,
    config_argument: ConfigDict | None,
    code: Mapping[str, bytes] | None = None,
) -> int | None:
    """Runs a mode. Returns the result of `train.train`.

    Args:
      config_argument: The config. None means the work directory's.
      code: Result of `files.read_code`, of which a run keeps a copy.
    """
    processes.connect(line.mode == "train")
    if not processes.is_first():
        logging.getLogger("bert_jax").setLevel(logging.ERROR)
    if line.mode == "serve":
        from bert_jax.serving import server  # names the packages that it lacks
    # Imported here so that bad flags fail before JAX is imported.
    from bert_jax import describe, evaluate, export, extract, predict, train
    from bert_jax.training import run_config, setup
    from bert_jax.workdir import folder as workdirs

    if line.mode != "prepare":
        environment.require_devices()
    workdir = storage.storage_path(line.workdir)
    is_inference = line.mode in command_line.INFERENCE_MODES
    if line.mode == "describe" and config_argument is None:
        is_inference = not workdirs.has_config(workdir)  # then: what `init_from` names
    config = run_config.config_of(
        workdir, config_argument, line.overrides, is_inference=is_inference
    )
    run_config.check_places(line, config.corpus.data_dir)
    environment.collect_garbage()
    if line.mode == "export":
        export.export(workdir, config, line.output)
        return None
    environment.keep_programs()
    task = setup.build_task(config, workdir, from_data=not is_inference)
    processes.check_same("the config", workdirs.agreed_fields(task.config))
    match line.mode:
        case "train":
            return train.train(task, workdir, code)
        case "prepare":
            _prepare(task)
        case "evaluate":
            evaluate.evaluate(task, workdir)
        case "predict":
            predict.predict(task, workdir, line.input, line.output)
        case "serve":
            server.serve(task, workdir, line.host, line.port)
        case "extract":
            extract.extract(task, workdir, line.input, line.output)
        case "describe":
            describe.describe(task, line.output)
    return None


def _prepare(task: Any) -> None:
    with processes.first_alone():
        data = task.training_data()
    if processes.is_first():
        for folder in data.folders:
            print(data.report(storage.storage_path(folder)), file=sys.stderr)
            print(f"prepared: {folder}")


if __name__ == "__main__":
    environment.end_process(main(sys.argv[1:]))
