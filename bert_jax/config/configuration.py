"""Turns a config file and command-line overrides into a checked ConfigDict.

A config file defines `get_config()`, which returns a ConfigDict; or `extends = "base"`
(a name in configs/ or a path beside the file, with arguments if it takes any) and
`get_config(config)`, which changes the config it is given. Arguments after a colon
(`glue.py:task=mnli,size=large`) are passed to `get_config` by name.
"""

import functools
import importlib.util
import inspect
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from bert_jax import registry
from bert_jax.config import fields
from bert_jax.errors import Interrupted, UserError
from bert_jax.registry import FAMILIES

log = logging.getLogger(__name__)

_FAULTS = "bert_jax.config.faults"  # not loaded before there is one
# Of config.json: fields, in their groups -> the config file that defined the value.
DEFINED_IN = "defined_in"
# Fields of earlier versions, which a config.json may still have, and their substitutes.
WITHDRAWN = {
    "train.stall_seconds": "metrics.jsonl has the time of each line",
    "train.budget": "a short run gives the pace (docs/runs.md, In a given time)",
    "train.restarts": "train several seeds (train.seeds), or another config.seed",
    **dict.fromkeys(
        (
            *("corpus.clean", "corpus.clean_against", "corpus.clean_overlap_words"),
            *("corpus.clean_min_words", "corpus.clean_language"),
            "corpus.clean_similarity",
        ),
        "clean the text first, as examples/clean_text.py does (docs/data.md)",
    ),
}
# Defaults of those that a run no longer uses; prepared text stays cleaned.
_UNUSED = {"train.stall_seconds": 300.0, "train.budget": "", "train.restarts": 0}
CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def load(spec: str, overrides: Sequence[str]) -> ConfigDict:
    """Loads a config file and applies overrides.

    Args:
      spec: `path/to/file.py` or `path/to/file.py:name=value,...`; NAME is
        configs/NAME.py.
      overrides: `--config.FIELD=VALUE` arguments.

    Raises:
      UserError: a file is missing or fails, a field does not exist, or a value has the
        wrong type or is not allowed (bert_jax/config/fields.py).
    """
    registry.config_file = spec
    try:
        config = _load_file(spec)
    finally:
        registry.config_file = ""
    return checked(config, spec, overrides)


def checked(
    config: ConfigDict, name: str = "config", overrides: Sequence[str] = ()
) -> ConfigDict:
    """The config, if it has the right fields, after these overrides.

    Args:
      name: of the config, for errors.

    Raises:
      UserError: see `load`.
    """
    try:
        _check_fields(config, name)
        for text in overrides:
            override(config, text)
        fields.check(config)
    except RecursionError as error:
        raise UserError(f"{name}: the config contains itself") from error
    return config


def defaults() -> ConfigDict:
    """The config of configs/common.py: every field except the tasks' own."""
    return _load_file(str(CONFIGS / "common.py"))


def schema(task: str, architecture: Any) -> ConfigDict:
    """The defaults, plus the fields of the model's family, and the task's from
    configs/finetune/; pre-training and a user's own task have none there."""
    config = defaults()
    if isinstance(architecture, str) and architecture in FAMILIES:
        config.model.update(FAMILIES[architecture].model_fields)
    folder = CONFIGS / "finetune"
    files = {path.stem for path in folder.glob("*.py")}
    if task in _execute(folder / "glue.py").TASKS:
        config.task = _load_file(f"{folder / 'glue.py'}:task={task}").task
    elif task in files - {"__init__", "common", "glue"}:  # which name no task
        config.task = _load_file(f"{folder / task}.py").task
    elif task != config.task.name:
        config.task = ConfigDict({"name": task})
    return config


def complete(
    recorded: Mapping[str, Any], where: str | os.PathLike, *, code: bool = True
) -> ConfigDict:
    """The config of a run's config.json; fields newer than the file get their value
    from configs/.

    Args:
      where: the file, for errors.
      code: what a config file of the user's defined must be there too.

    Raises:
      UserError: a value is not valid for its field, or is of a file not loaded.
    """
    task = recorded["task"].get("name")
    if not isinstance(task, str):
        raise UserError(f"{where}: damaged: it has no task.name")
    model = recorded.get("model")
    named = model.get("architecture") if isinstance(model, Mapping) else None
    config = schema(task, named)
    try:
        defined_in = dict(fields.each(ConfigDict(recorded.get(DEFINED_IN, {}))))
        config.update({n: _tuples(v) for n, v in recorded.items() if n != DEFINED_IN})
        _drop_withdrawn(config, where)
        if code and defined_in:
            registry.named(_FAULTS).require_code(dict(fields.each(config)), defined_in)
        fields.check(config, defined_in)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        text = " ".join(str(error).split())
        raise UserError(f"{where}: damaged: {text}") from error
    return config


def defined_in(config: ConfigDict) -> dict[str, str]:
    """The config file that defined a field's value, for each that one did."""
    files = {n: registry.ADDED.get(value) for n, value in fields.named(config).items()}
    return {name: file for name, file in files.items() if file}


def record(config: ConfigDict) -> dict[str, Any]:
    """What config.json holds, for `complete`."""
    files: dict[str, Any] = {}
    for name, file in defined_in(config).items():
        *groups, field = name.split(".")
        group = files
        for each in groups:
            group = group.setdefault(each, {})
        group[field] = file
    return config.to_dict() | ({DEFINED_IN: files} if files else {})


def _drop_withdrawn(config: ConfigDict, where: str | os.PathLike) -> None:
    """Deletes fields of earlier versions; says so if the run had set them."""
    for name in WITHDRAWN:
        group, field = name.split(".")
        default = _UNUSED.get(name)
        value = config[group].get(field, default)
        if field in config[group]:
            del config[group][field]
        if name in _UNUSED and value != default:
            _warn(f"{where}: config.{name}={value} is withdrawn and not used")
    if config.train.on_anomaly == "roll_back":
        _warn(f"{where}: config.train.on_anomaly=roll_back is withdrawn, now skip")
        config.train.on_anomaly = "skip"


@functools.cache
def _warn(line: str) -> None:
    log.warning("%s (CHANGELOG.md says what to use instead)", line)  # once


def _tuples(value: Any) -> Any:
    """Turns JSON's lists back into tuples."""
    if isinstance(value, Mapping):
        return {name: _tuples(each) for name, each in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def name(spec: str) -> str:
    """The config's name, which names the default work directory."""
    path, _, arguments = spec.partition(":")
    parts = [part.partition("=")[2] or part for part in arguments.split(",") if part]
    return "-".join([Path(path).stem, *parts])


def _load_file(spec: str, above: tuple[Path, ...] = ()) -> ConfigDict:
    path_text, _, arguments = spec.partition(":")
    path = named_file(path_text)
    if not path.is_file():
        raise registry.named(_FAULTS).no_file(spec, path)
    if path.resolve() in above:
        raise UserError(f"{path}: extends itself through {above[-1].name}")
    named_arguments = dict(
        _argument(part, spec) for part in arguments.split(",") if part
    )
    args: list[ConfigDict] = []
    try:
        module = _execute(path)
        function = module.get_config
        parameters = list(inspect.signature(function).parameters)
        base = getattr(module, "extends", None)
        if base is not None:
            name, colon, values = base.partition(":")
            file = f"{_find(name, path)}{colon}{values}"
            args = [_load_file(file, (*above, path.resolve())).lock()]
            args[0].task.unlock()  # a task may add fields
            parameters = parameters[1:]
        unknown = sorted(set(named_arguments) - set(parameters))
        if unknown:
            raise UserError(
                f"--config={spec}: unknown argument {unknown[0]!r}; it takes "
                f"{', '.join(parameters) or 'none'}"
            )
        config = function(*args, **named_arguments)
        if config is None and base is not None:
            config = args[0]
        if isinstance(config, ConfigDict):
            return config.unlock()
    except (UserError, Interrupted):
        raise
    # The file is the user's code: it may raise anything, SystemExit too.
    except BaseException as error:
        raise registry.named(_FAULTS).raised(path, error, *args) from error
    raise UserError(f"{path}: get_config must return a ConfigDict")


def named_file(text: str) -> Path:
    """The config file that `text` names: its path, or NAME for configs/NAME.py."""
    ours = CONFIGS / f"{text}.py"
    return ours if ours.is_file() else Path(text)


def _argument(part: str, spec: str) -> tuple[str, str]:
    key, equals, value = part.partition("=")
    if not equals:
        raise UserError(f"--config={spec}: {part!r} is not of the form name=value")
    return key, value


def _execute(path: Path) -> ModuleType:
    module_spec = importlib.util.spec_from_file_location(path.stem, path)
    assert module_spec is not None
    module = importlib.util.module_from_spec(module_spec)
    # Not `exec_module`: its cache misses an edit of the same size in the same second.
    exec(compile(path.read_bytes(), path, "exec"), vars(module))
    return module


def _find(base: str, path: Path) -> Path:
    """The file that `extends` names, beside `path` or in configs/."""
    file = Path(base if base.endswith(".py") else f"{base}.py")
    for folder in (path.parent, CONFIGS):
        if (folder / file).is_file() and (folder / file).resolve() != path.resolve():
            return folder / file
    raise UserError(f"{path}: extends={base!r}: no such file beside it or in configs/")


def _check_fields(config: ConfigDict, spec: str) -> None:
    """Checks that the config has the fields and types of configs/; a family's has more,
    and what a config file has added may read fields of its own in `task`.

    Raises:
      UserError: a field is missing or unknown, or has the wrong type.
    """
    task, model = (
        each if isinstance(each := config.get(group), ConfigDict) else ConfigDict()
        for group in ("task", "model")
    )
    known_fields = schema(str(task.get("name")), model.get("architecture"))
    for group in known_fields:
        if group not in config:
            raise UserError(f"{spec}: no group {group}; add it as in configs/common.py")
    known, values = dict(fields.each(known_fields)), dict(fields.each(config))
    for name in sorted(values.keys() - known - fields.of_family(config).keys()):
        # What a config file has added may read fields of its own.
        if not name.startswith("task.") or not fields.has_added(config):
            raise registry.named(_FAULTS).no_field(
                known_fields, name, f"{spec}: config.{name}"
            )
    for name, default in known.items():
        if name not in values:
            raise UserError(f"{spec}: no field config.{name}; add it as in configs/")
        kind = type(default)
        if type(values[name]) is not kind and (kind, type(values[name])) != (
            float,
            int,
        ):
            raise UserError(
                f"{spec}: config.{name}={values[name]!r:.80}: must be of type "
                f"{kind.__name__}"
            )


def field_of(text: str) -> str:
    """The field in a `--config.FIELD=VALUE`, such as train.num_steps."""
    return text.lstrip("-").partition("=")[0].partition(".")[2]


def override(config: ConfigDict, text: str) -> tuple[str, Any, Any]:
    """Applies one `--config.FIELD=VALUE`.

    Returns:
      the field, its value before and its value now.

    Raises:
      UserError: the field does not exist, or the value has the wrong type.
    """
    path, equals, value = text.lstrip("-").partition("=")
    *groups, field = path.split(".")[1:]
    where: object = config
    for group in groups:
        where = where.get(group) if isinstance(where, ConfigDict) else None
    if not isinstance(where, ConfigDict) or field not in where:
        raise registry.named(_FAULTS).no_field(config, field_of(text), f"--{path}")
    if isinstance(where[field], ConfigDict):
        raise UserError(f"--{path}: a group; set one of {', '.join(where[field])}")
    values = flags.FlagValues()
    args = ["", f"--config.{field}{equals}{value}"]
    before = where[field]
    try:
        # The field's group alone: all that is defined is also written out as YAML.
        config_flags.DEFINE_config_dict(
            "config", where, flag_values=values, lock_config=False, sys_argv=args
        )
        values(args)
    except (flags.Error, TypeError, ValueError) as error:
        kind = type(where[field]).__name__
        raise UserError(
            f"--{path}={value}: {path} takes a value of type {kind}"
        ) from error
    return path.partition(".")[2], before, where[field]
