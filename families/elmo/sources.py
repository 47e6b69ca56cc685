"""Where an ELMo comes from, released or exported files or a run; and its export.

A module as `bert_jax.convert.weights`, for `bert_jax.family.Family.weights`.
"""

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from bert_jax.convert import layout, origins, runs
from bert_jax.convert.merge import Report, take
from bert_jax.errors import UserError
from bert_jax.runtime.storage import Path
from bert_jax.tasks.task import Task
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


class Loaded(NamedTuple):
    """What was read.

    Attributes:
      params: `elmo`, and of a fine-tuned one `mix`, `reader` and its head.
      labels: of its head.
      facts: what the run learned besides weights.
    """

    params: dict[str, Any]
    labels: tuple[str, ...] = ()
    facts: Mapping[str, Any] = {}


def shape(path: str | Path) -> Fields:
    """The sizes, as fields of `config.model` and of `config.task`, by `GROUP.NAME`;
    of a run also how it cuts and writes words.

    Raises:
      UserError: a file is missing or damaged.
    """
    folder, _ = origins.located(path)
    if not is_run(folder):
        return _fields(released.read_options(_local(folder)))
    config = workdir.recorded(folder, code=False)
    fields = _fields(ElmoConfig.of_run(config))
    fields["task.words"] = config.task.words
    for name in ("lowercase", "strip_accents"):
        fields[f"tokenizer.{name}"] = config.tokenizer[name]
    return fields


def read(path: str | Path, name: str = "") -> Loaded:
    """The parameters, as float32 NumPy arrays; arguments as in `weights.read`.

    Raises:
      UserError: it is no ELMo, a file is missing or damaged, there is no checkpoint, or
        h5py, which weights.hdf5 needs, is not installed.
    """
    folder, step = origins.located(path)
    if origins.family_of(path).weights.__name__ != __name__:
        raise UserError(
            f"{folder}: not an ELMo's weights; name a folder with options.json and "
            "weights.hdf5, or a run of configs/elmo.py"
        )
    if not is_run(folder):
        return Loaded({"elmo": released.read(_local(folder))[1]})
    config, saved, at = runs.saved(folder, name, step)
    # Without the softmax of pre-training, which is as large as the vocabulary.
    params = jax.device_get({k: v for k, v in saved.items() if k != "softmax"})
    labels = tuple(config.task.get("labels", ()))
    return Loaded(params, labels, workdir.read_facts(folder, at))


def start(task: Task, abstract: Any, name: str = "") -> tuple[dict[str, Any], Report]:
    """As `weights.start`, of an ELMo below other layers or alone."""
    source = task.config.init_from
    weights = read(source, name)
    params, left_over = dict(weights.params), []
    others = tuple(task.config.task.get("labels", ())) != weights.labels
    for part in sorted(weights.params.keys() & abstract.keys() - {"elmo"}):
        ours, saved = (
            jax.tree.map(lambda leaf: leaf.shape, tree[part])
            for tree in (abstract, params)
        )
        if ours != saved or (others and part in layout.LABELLED_HEADS):
            params.pop(part)
            left_over.append(f"{part} (of another task or system)")
    from bert_jax.runtime import hub

    resolved = hub.resolved(source)
    return take(abstract, params, resolved, "ELMo", left_over, weights.facts)


def export(source: Path, folder: Path, name: str = "", dtype: str = "float32") -> str:
    """Writes a pre-trained run's options.json and weights.hdf5, as bilm does, and its
    vocabulary; arguments as in `weights.export`.

    Raises:
      UserError: a run of another task, or without a checkpoint; the folder has files;
        h5py is missing.
    """
    if not is_run(source) or _task(source) != "elmo":
        raise refusal(source)
    if dtype != "float32":
        raise UserError(f"--dtype={dtype}: an ELMo's weights are float32")
    target = folder.absolute()
    released.check_target(target)
    config = workdir.recorded(source)
    params = read(source, name).params["elmo"]
    words = (source / "vocab.txt").read_bytes()
    sizes, rows = ElmoConfig.of_run(config), config.train.batch_size
    released.export(target, sizes, params, words, batch_size=rows)
    return f"{released.OPTIONS}, {released.WEIGHTS}, vocab.txt"


def refusal(folder: Path) -> UserError:
    """For a folder with an ELMo, where a BERT or GPT is required."""
    if is_run(folder) and (name := _task(folder)) != "elmo":
        return UserError(
            f"{folder}: {name} with an ELMo; Hugging Face has no such model, so it "
            "is neither exported nor loaded; ask it with --mode=predict"
        )
    return UserError(
        f"{folder}: ELMo's weights; families.elmo.load opens them, and configs of "
        "configs/finetune/ with model=elmo start from them"
    )


def is_run(folder: Path) -> bool:
    """Whether it is a run; beside options.json a config.json is another program's."""
    return workdir.has_config(folder) and not (folder / released.OPTIONS).exists()


def _task(folder: Path) -> str:
    return str(workdir.read_config(folder)["task"].get("name"))


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
