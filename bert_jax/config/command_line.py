"""The command line: flags, and `--config.FIELD=VALUE`."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from absl import flags

from bert_jax.config import faults, files
from bert_jax.errors import UserError

INFERENCE_MODES = (
    "evaluate",
    "predict",
    "serve",
    "extract",
    "export",
)  # these train nothing
# Types of an export's weights: as it was trained, or rounded to half the bytes.
DTYPES = ("float32", "float16")
MODES = ("train", "prepare", *INFERENCE_MODES, "describe")


class CommandLine(NamedTuple):
    """The parsed command line."""

    mode: str
    workdir: str
    input: str
    output: str
    host: str
    port: int
    dtype: str  # type of an export's weights
    config: str  # the value of --config, empty if not given
    overrides: list[str]  # each --config.FIELD=VALUE
    help: bool  # whether only the text of --help is requested


def parse_flags(argv: Sequence[str]) -> CommandLine:
    """Reads the flags, without slow imports.

    Raises:
      UserError: a flag is unknown or has an invalid value.
    """
    values = flags.FlagValues()
    flags.DEFINE_multi_string("config", [], "a config file", flag_values=values)
    flags.DEFINE_string("workdir", "", "the run's folder", flag_values=values)
    flags.DEFINE_enum("mode", "train", MODES, "what to do", flag_values=values)
    flags.DEFINE_string("input", "-", "a file of rows, or -", flag_values=values)
    flags.DEFINE_string("output", "-", "file, folder or -", flag_values=values)
    flags.DEFINE_string("host", "127.0.0.1", "of --mode=serve", flag_values=values)
    flags.DEFINE_integer("port", 8000, "of --mode=serve", 0, 65535, flag_values=values)
    flags.DEFINE_enum(
        "dtype", DTYPES[0], DTYPES, "of the weights, of export", flag_values=values
    )
    flags.DEFINE_bool("help", False, "explain", short_name="h", flag_values=values)
    is_field = re.compile("--?config[.]").match
    if any(re.match("--?undefok(=|$)", text) for text in argv):  # absl's own
        raise UserError("--undefok: not supported; every flag must exist")
    try:
        positional = values(["bert_jax.main", *(x for x in argv if not is_field(x))])
    except flags.Error as error:
        raise faults.no_flag(error) from error
    if positional[1:]:
        raise UserError(f"{positional[1]!r}: flags begin with --")
    parsed = values.flag_values_dict()
    for name in ("workdir", "input", "output"):
        if parsed[name].startswith("--"):  # a flag without a value took the next flag
            raise UserError(f"--{name} {parsed[name]}: --{name}=VALUE is required")
    if parsed["dtype"] != DTYPES[0] and parsed["mode"] != "export":
        raise UserError(f"--dtype={parsed['dtype']}: is for --mode=export")
    specs: list[str] = parsed.pop("config")
    if len(specs) > 1 or "" in specs:
        raise UserError("--config=FILE: give it exactly once")
    spec = "".join(specs)
    default = f"runs/{files.config_name(spec)}" if spec else "runs"
    parsed["workdir"] = parsed["workdir"] or default
    del parsed["h"]  # the short form of help
    return CommandLine(
        config=spec, overrides=[x for x in argv if is_field(x)], **parsed
    )
