"""The command line: flags, and `--config.FIELD=VALUE`."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bert_jax.config import fields, files
from bert_jax.config.field import did_you_mean
from bert_jax.errors import UserError

# These train nothing.
INFERENCE_MODES = ("evaluate", "predict", "serve", "extract", "export")
MODES = ("train", "prepare", *INFERENCE_MODES, "describe")
ONNX_DTYPES = ("float32", "int8")  # of the weights in an exported ONNX graph


class CommandLine(NamedTuple):
    """The parsed command line. A field with a default is a flag."""

    overrides: list[str]  # each --config.FIELD=VALUE
    help: bool  # whether only the text of --help is requested
    mode: str = "train"
    workdir: str = ""
    input: str = "-"
    output: str = "-"
    host: str = "127.0.0.1"
    port: int = 8000
    onnx: str = ""
    config: str = ""  # empty if not given


def parse_flags(argv: Sequence[str]) -> CommandLine:
    """Reads the flags, without slow imports.

    Raises:
      UserError: a flag is unknown or has an invalid value.
    """
    parser = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False
    )
    choices = {"mode": MODES, "onnx": ONNX_DTYPES}
    for flag, default in CommandLine._field_defaults.items():
        kind, only = type(default), choices.get(flag)
        parser.add_argument(f"--{flag}", default=default, type=kind, choices=only)
    parser.add_argument("--help", "-h", action="store_true")
    try:
        parsed, rest = parser.parse_known_args(argv)
    except argparse.ArgumentError as error:
        raise UserError(str(error)) from error
    for text in rest:
        if re.match("--?config[.]", text):
            continue
        if not text.startswith("-"):
            raise UserError(f"{text!r}: flags begin with --")
        name = text.lstrip("-").partition("=")[0]  # a field, perhaps, without config.
        known = fields.FIELDS | fields.TASK
        flags = [*vars(parsed), *(f"config.{field}" for field in known)]
        raise UserError(f"--{name}: no such flag{did_you_mean(name, flags, '--')}")
    if not 0 <= parsed.port <= 65535:
        raise UserError(f"--port={parsed.port}: must be from 0 to 65535")
    if parsed.onnx and parsed.mode != "export":
        raise UserError(f"--onnx={parsed.onnx}: is for --mode=export")
    name = parsed.config and files.config_name(parsed.config)
    parsed.workdir = parsed.workdir or str(Path("runs", name))
    return CommandLine(overrides=rest, **vars(parsed))
