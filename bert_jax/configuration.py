"""From a config file and command-line overrides to a checked ConfigDict.

A config file defines `get_config()`, which returns a ConfigDict, or `extends = "base"`
(a name in configs/, or a path beside the file, with arguments if it takes some) and
`get_config(config)`, which changes the config it is given. Arguments after a colon
(`glue.py:task=mnli,size=large`) reach `get_config` by name.
"""

import importlib.util
import inspect
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from absl import flags
from ml_collections import ConfigDict, config_flags

from bert_jax.errors import UserError

# Of the fields that no part of the program has a reason to look at more closely.
_LEAST = {
    "seed": 0,
    "train.num_steps": 0,  # by train.num_epochs
    "train.log_every": 1,
    "train.num_epochs": 0,
    "train.eval_every": 0,
    "train.early_stop": 0,
    "train.restarts": 0,
    "train.seeds": 1,
    "phase2.batch_size": 0,
    "phase2.warmup_steps": 0,
    "checkpoint.save_every": 1,
    "checkpoint.keep": 1,
    "predict.top_k": 1,
    "predict.batch_size": 1,
}

CONFIGS = Path(__file__).resolve().parent.parent / "configs"


def load(spec: str, overrides: Sequence[str]) -> ConfigDict:
    """Loads a config file and applies overrides.

    Args:
      spec: `path/to/file.py` or `path/to/file.py:name=value,...`.
      overrides: `--config.FIELD=VALUE` arguments.

    Raises:
      UserError: a file that is missing or fails, a field that does not exist, a value
        of another type.
    """
    config = _load_file(spec)
    _check_fields(config, _load_file(str(CONFIGS / "common.py")), spec)
    for override in overrides:
        _override(config, override)
    for field, least in _LEAST.items():
        group, _, name = field.rpartition(".")
        value = config[group][name] if group else config[name]
        if value < least:
            raise UserError(f"config.{field}={value}: must be at least {least}")
    return config


def name(spec: str) -> str:
    """The config's name, after which the default work directory is called."""
    path, _, arguments = spec.partition(":")
    parts = [part.partition("=")[2] or part for part in arguments.split(",") if part]
    return "-".join([Path(path).stem, *parts])


def _load_file(spec: str) -> ConfigDict:
    path_text, _, arguments = spec.partition(":")
    path = Path(path_text)
    if not path.is_file():
        raise UserError(f"--config={spec}: no file {path}")
    given = dict(_argument(part, spec) for part in arguments.split(",") if part)
    try:
        module = _execute(path)
        function = module.get_config
        parameters = list(inspect.signature(function).parameters)
        base = getattr(module, "extends", None)
        if base is None:
            args = []
        else:
            name, colon, values = base.partition(":")
            args = [_load_file(f"{_find(name, path)}{colon}{values}").lock()]
            args[0].task.unlock()  # a task has fields of its own
            parameters = parameters[1:]
        unknown = sorted(set(given) - set(parameters))
        if unknown:
            raise UserError(
                f"--config={spec}: unknown argument {unknown[0]!r}; it takes "
                f"{', '.join(parameters) or 'none'}"
            )
        config = function(*args, **given)
    except UserError:
        raise
    # The file is the user's code: whatever it raises is told with its line.
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        here = path.resolve()
        lines = [f.lineno for f in frames if Path(f.filename).resolve() == here] or [1]
        if isinstance(error, SyntaxError):
            lines = [error.lineno or 1]
        text = " ".join(str(error).split())
        raise UserError(
            f"{path}:{lines[-1]}: {type(error).__name__}: {text}"
        ) from error
    if config is None and base is not None:
        config = args[0]
    if not isinstance(config, ConfigDict):
        raise UserError(f"{path}: get_config returned no ConfigDict")
    return config.unlock()


def _argument(part: str, spec: str) -> tuple[str, str]:
    key, equals, value = part.partition("=")
    if not equals:
        raise UserError(f"--config={spec}: {part!r} is not of the form name=value")
    return key, value


def _execute(path: Path) -> ModuleType:
    module_spec = importlib.util.spec_from_file_location(path.stem, path)
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return module


def _find(base: str, path: Path) -> Path:
    """The file that `extends` names: beside `path`, or in configs/."""
    file = Path(base if base.endswith(".py") else f"{base}.py")
    for folder in (path.parent, CONFIGS):
        if (folder / file).is_file() and (folder / file).resolve() != path.resolve():
            return folder / file
    raise UserError(f"{path}: extends={base!r}: no such file beside it or in configs/")


def _check_fields(config: ConfigDict, schema: ConfigDict, spec: str) -> None:
    """A field that common.py does not have is a slip of the pen; a task has its own."""
    for group, fields in config.items():
        if group == "task":
            continue
        known = schema.get(group)
        if group not in schema or isinstance(known, ConfigDict) != isinstance(
            fields, ConfigDict
        ):
            raise UserError(f"{spec}: no field config.{group} in configs/common.py")
        if isinstance(fields, ConfigDict):
            for field in sorted(set(fields) - set(known)):
                raise UserError(
                    f"{spec}: no field config.{group}.{field}; "
                    f"config.{group} has {', '.join(sorted(known))}"
                )


def _override(config: ConfigDict, override: str) -> None:
    """Applies one `--config.FIELD=VALUE`."""
    path, _, value = override.lstrip("-").partition("=")
    *groups, field = path.split(".")[1:]
    where: object = config
    for group in groups:
        where = where.get(group) if isinstance(where, ConfigDict) else None
    if not isinstance(where, ConfigDict) or field not in where:
        known = where if isinstance(where, ConfigDict) else config
        raise UserError(
            f"--{path}: no such field; there are {', '.join(sorted(known))}"
        )
    if isinstance(where[field], ConfigDict):
        raise UserError(f"--{path}: a group; set one of {', '.join(where[field])}")
    values = flags.FlagValues()
    args = ["", override]
    try:
        config_flags.DEFINE_config_dict(
            "config", config, flag_values=values, lock_config=False, sys_argv=args
        )
        values(args)
    except (flags.Error, TypeError, ValueError) as error:
        kind = type(where[field]).__name__
        raise UserError(
            f"--{path}={value}: {path} takes a value of type {kind}"
        ) from error
