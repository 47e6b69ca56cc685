"""Where an ELMo to fine-tune comes from: released or exported files, or a run."""

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from bert_jax.config import configuration
from bert_jax.errors import UserError
from bert_jax.runtime.storage import Path
from bert_jax.workdir import folder as workdir
from families.elmo import released
from families.elmo.config import ElmoConfig

Fields = dict[str, Any]
# Those that a fine-tuning run takes from its weights.
FIELDS = (
    *("model.hidden_size", "model.intermediate_size", "model.num_hidden_layers"),
    *("task.filters", "task.activation", "task.highways", "task.character_size"),
    *("task.max_characters", "task.cell_clip", "task.projection_clip"),
    *("task.skip", "task.words"),
    *("tokenizer.lowercase", "tokenizer.strip_accents"),
)


class Found(NamedTuple):
    """What was read.

    Attributes:
      params: `elmo`, and of a fine-tuned one `mix`, `reader` and its head.
      labels: of its head.
      facts: what the run learned besides weights.
    """

    params: dict[str, Any]
    labels: tuple[str, ...] = ()
    facts: Mapping[str, Any] = {}


def shape(folder: Path) -> Fields:
    """The sizes, as fields of `config.model` and of `config.task`, by `GROUP.NAME`;
    of a run also how it cuts and writes words.

    Raises:
      UserError: a file is missing or damaged.
    """
    if not workdir.has_config(folder):
        return _fields(released.read_options(_local(folder)))
    recorded = workdir.read_config(folder)
    config = configuration.complete(recorded, folder / "config.json")
    found = _fields(ElmoConfig.of_run(config))
    found["task.words"] = config.task.words
    for name in ("lowercase", "strip_accents"):
        found[f"tokenizer.{name}"] = config.tokenizer[name]
    return found


def read(folder: Path, name: str = "", step: int | None = None) -> Found:
    """The parameters, as float32 NumPy arrays.

    Args:
      name: of a work directory's folder of checkpoints; empty: the run's config
        decides.
      step: of one in `checkpoints`; None: the newest.

    Raises:
      UserError: a file is missing or damaged, there is no checkpoint, or h5py, which
        weights.hdf5 needs, is not installed.
    """
    if not workdir.has_config(folder):
        return Found({"elmo": released.read(_local(folder))[1]})
    # Imported here: released weights do not need Orbax.
    from bert_jax.workdir.checkpoint import Checkpoints, checkpoint_name

    path = folder / "config.json"
    config = configuration.complete(workdir.read_config(folder), path)
    if config.train.seeds > 1:
        raise UserError(
            f"{folder}: a run of {config.train.seeds} seeds; name one seed's folder, "
            f"such as {folder / f'seed_{config.seed}'}"
        )
    name = "checkpoints" if step is not None else name or checkpoint_name(config)
    one = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    with Checkpoints.of_another(folder, name, step) as checkpoints:
        found = checkpoints.restore_saved(one)
    if found is None:
        raise UserError(f"{folder}: has no checkpoint yet")
    params = jax.device_get(found[0])
    params.pop("softmax", None)  # of pre-training
    labels = tuple(config.task.get("labels", ()))
    return Found(params, labels, workdir.read_facts(folder, found[1]))


def _fields(config: ElmoConfig) -> Fields:
    """The fields that `ElmoConfig.of_run` reads."""
    model = {
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
    }
    task = {
        "filters": tuple(f"{width}:{number}" for width, number in config.filters),
        **{"activation": config.activation, "highways": config.highways},
        "character_size": config.character_size,
        "max_characters": config.max_characters,
        **{"cell_clip": config.cell_clip, "projection_clip": config.projection_clip},
        "skip": config.skip,
    }
    return {
        **{f"model.{name}": value for name, value in model.items()},
        **{f"task.{name}": value for name, value in task.items()},
    }


def _local(folder: Path) -> pathlib.Path:
    return pathlib.Path(str(folder))  # HDF5 reads no buckets
