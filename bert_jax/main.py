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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import logging as absl_logging
from ml_collections import ConfigDict

from bert_jax.config import command_line, configuration, files, help
from bert_jax.errors import Interrupted, escape_controls
from bert_jax.runtime import environment, failures, processes


def main(
    argv: Sequence[str], run: Callable[[Sequence[str]], None] | None = None
) -> int:
    """Runs one mode. Returns the exit status.

    Args:
      run: Another program than this one, with its log and its errors.
    """
    set_up_logging()
    try:
        (run or _run)(argv)
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


def read_config(
    line: command_line.CommandLine,
) -> tuple[ConfigDict | None, dict[str, Any], Mapping[str, bytes] | None]:
    """Returns the config of `--config` and its code, if any, and the other fields'
    values."""
    fields = configuration.parse_overrides(line.overrides)
    if not line.config:
        return None, fields, None
    file = files.load_file(line.config)
    config = configuration.override_and_check(file, line.config, fields)
    return config, fields, files.read_code(line.config)


def _run(argv: Sequence[str]) -> None:
    line = command_line.parse_flags(argv)
    if line.help:
        print(help.help_text(line.config), end="")
        return
    config, fields, code = read_config(line)
    processes.connect(line.mode == "train")
    from bert_jax import modes  # imports JAX: bad flags fail before

    if code is not None and line.mode in command_line.INFERENCE_MODES:
        modes.warn_of_changed_code(line.workdir, code)
    match line.mode:
        case "train":
            modes.train(config, line.workdir, fields, code)
        case "prepare":
            modes.prepare(config, line.workdir, fields)
        case "evaluate":
            modes.evaluate(config, line.workdir, fields)
        case "predict":
            modes.predict(config, line.workdir, line.input, line.output, fields)
        case "serve":
            modes.serve(config, line.workdir, line.host, line.port, fields)
        case "extract":
            modes.extract(config, line.workdir, line.input, line.output, fields)
        case "export":
            modes.export(config, line.workdir, line.output, fields, line.onnx)
        case "describe":
            modes.describe(config, line.workdir, line.output, fields)


if __name__ == "__main__":
    environment.end_process(main(sys.argv[1:]))
