"""Reads and exports weights of every kind; chooses the reader by the folder."""

import dataclasses
from collections.abc import Callable
from typing import Any

from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.convert import config as config_json
from bert_jax.convert import layout, origins, reading, runs
from bert_jax.convert.layout import Weights
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.models.config import BertConfig
from bert_jax.runtime import untrusted
from bert_jax.runtime.storage import Path
from bert_jax.tokenization import folders
from bert_jax.workdir import folder as workdir

# The fields of `config.model` that must match for weights to be usable, besides the
# family's own; FIELDS by `GROUP.NAME`, as a run takes them from its weights.
SHAPE = config_json.DECISIVE
# A model's spare rows, which make their number a multiple, as NVIDIA's 30,528.
_PADDED, _SPARE = 8, 128
FIELDS = tuple(f"model.{name}" for name in SHAPE)


def read(
    path: str | Path,
    place: Callable[[layout.Array], Any] = reading.as_it_is,
    name: str = "",
) -> Weights:
    """Reads weights, as float32 NumPy arrays or what `place` returns for them.

    Args:
      path: a work directory, one of its checkpoints (RUN/checkpoints/STEP), a Hugging
        Face folder, a model on its Hub (hf:OWNER/NAME), or a folder with a checkpoint
        of Google's code.
      place: see `reading.build`.
      name: of a work directory's folder of checkpoints; empty: the run's config
        decides.

    Raises:
      UserError: the folder is none of these, or damaged.
    """
    folder, step = origins.located(path)
    match origins.kind(folder):
        case "google":
            from bert_jax.convert import google

            return google.read(folder, place)
        case "huggingface":
            from bert_jax.convert import huggingface

            return huggingface.read(folder, place)
        case _:
            _check_readable(folder)
            return runs.read(folder, name, step)[0]


def check(path: str | Path) -> None:
    """Raises UserError if `path` is not a folder of weights."""
    folder, step = origins.located(path)
    if origins.kind(folder) == "workdir" and step is not None:
        from bert_jax.workdir.checkpoint import Checkpoints

        with Checkpoints(folder, None, only=step):
            pass  # opening it checks that it is there


def read_tokenizer(
    path: str | Path, config: BertConfig | None = None
) -> Tokenizer | None:
    """The tokenizer beside the weights; None if there is none.

    Args:
      config: the model's, to check that the two match.

    Raises:
      UserError: it is damaged, or does not match the model.
    """
    folder, _ = origins.located(path)
    origin = origins.kind(folder)
    tokenizer = tokenization.of_folder(folder)
    if tokenizer is not None and config is not None:
        pieces, rows = tokenizer.get_vocab_size(), config.vocab_size
        padded = rows % _PADDED == 0 and 0 < rows - pieces < _SPARE
        fits = pieces == rows or (padded and folders.lacks_none(folder, tokenizer))
        if not fits and origin != "workdir":
            raise UserError(
                f"{folder}: its vocabulary has {pieces} pieces, but the model's "
                f"vocab_size is {rows}; is it of another model, or does vocab.txt lack "
                "lines? If they are at its end, add a line [unused...] of its own for "
                "each there"
            )
    return tokenizer


def read_labels(path: str | Path) -> tuple[str, ...]:
    """The names of a fine-tuned model's outputs, if the folder has any."""
    folder, _ = origins.located(path)
    match origins.kind(folder):
        case "workdir":
            return tuple(workdir.read_config(folder)["task"].get("labels", ()))
        case "huggingface":
            from bert_jax.convert import huggingface

            fields = untrusted.read_json(folder, "config.json")
            return huggingface.read_labels(fields, folder / "config.json")
        case "google":
            from bert_jax.convert import google

            return google.read_architecture(folder)[1]
        case _:
            return ()


def read_heads(path: str | Path) -> tuple[str, ...]:
    """The heads of weights without a run; none where the folder does not say."""
    folder, _ = origins.located(path)
    match origins.kind(folder):
        case "huggingface":
            from bert_jax.convert import huggingface

            fields = untrusted.read_json(folder, "config.json")
            return huggingface.read_heads(fields, folder / "config.json")
        case "google":
            from bert_jax.convert import google

            return layout.ARCHITECTURES[google.read_architecture(folder)[0]]
        case _:
            return ()


def read_kind(path: str | Path) -> str | None:
    """The `task.kind` of a text classifier, if its folder says it."""
    folder, _ = origins.located(path)
    if origins.kind(folder) != "huggingface":
        return None
    from bert_jax.convert import huggingface

    return huggingface.read_kind(untrusted.read_json(folder, "config.json"))


def read_shape(path: str | Path) -> dict[str, Any]:
    """The fields of SHAPE that the weights have, and the family's own.

    Raises:
      UserError: see `read`.
    """
    folder, _ = origins.located(path)
    match origins.kind(folder):
        case "workdir":
            fields = workdir.read_config(folder)["model"]
            names = (*SHAPE, *origins.family_of(folder).model_fields)
            return {name: fields[name] for name in names if name in fields}
        case "huggingface":
            from bert_jax.convert import huggingface

            model = huggingface.read_config(folder)
        case "google":
            from bert_jax.convert import google

            model = google.read_config(folder)
        case _:
            raise origins.family_of(folder).weights.refusal(folder)
    return {name: getattr(model, name) for name in SHAPE} | dict(model.family_fields)


def shape(path: str | Path) -> dict[str, Any]:
    """As `read_shape`, by `GROUP.NAME`."""
    return {f"model.{name}": value for name, value in read_shape(path).items()}


def start(task: Any, abstract: Any, name: str = "") -> tuple[dict[str, Any], Any]:
    """See `training.setup.init_weights`, which asks the task's family."""
    from bert_jax.convert.merge import check_tokenizer, merge
    from bert_jax.runtime import hub

    source = task.config.init_from
    weights = read(source, name=name)
    check_tokenizer(task.tokenizer, read_tokenizer(source, weights.config), source)
    labels = tuple(task.config.task.get("labels", ()))
    if labels and not _same(weights.labels, labels):
        weights = _without(weights, layout.LABELLED_HEADS)
    return merge(abstract, weights, task.model_config, hub.resolved(source))


def recorded(path: str | Path) -> dict[str, Any] | None:
    """The config of the run that wrote these weights; None if unknown."""
    folder, _ = origins.located(path)
    match origins.kind(folder):
        case "workdir":
            return workdir.read_config(folder)
        case "huggingface":
            from bert_jax.convert import huggingface

            config = huggingface.provenance(folder).get("config")
            labels = (config or {}).get("task", {}).get("labels", ())
            named = read_labels(path)
            if config and labels and len(named) == len(labels):
                config["task"]["labels"] = list(named)  # they may have better names now
            return config
        case _:
            return None


def export(
    source: Path,
    folder: Path,
    name: str = "",
    dtype: str = "float32",
) -> str:
    """Writes weights as a Hugging Face model folder; returns its lengths, in words.

    Args:
      source: a work directory, a Hugging Face folder or one of Google's.
      name: of a work directory's folder of checkpoints; empty: the run's config
        decides.
      dtype: float32, or float16 to round them.

    Raises:
      UserError: there are no weights; the folder has other files.
    """
    from bert_jax.convert import export as huggingface_export
    from bert_jax.convert import huggingface, model_card

    huggingface_export.check_target(folder.absolute())
    match origins.kind(source):
        case "workdir":
            _check_readable(source)
            weights, step = runs.read(source, name)
            config = workdir.read_config(source)
            user_parts = [f"head {name}" for name in weights.left_over]
            if user_parts := user_parts + weights.config.of_your_own():
                raise UserError(
                    f"{source}: the {' and '.join(user_parts)} of your own cannot be "
                    "exported; Hugging Face's BERT has no such part"
                )
            if why := FAMILIES[weights.config.architecture].unexported(config["task"]):
                raise UserError(
                    f"{source}: {why}, so it cannot be exported; ask it with "
                    "--mode=predict"
                )
            provenance = {
                "step": step,
                "config": config,
                "task": dict(weights.facts),
                "scores": runs.scores(source, step, config["evaluate"]["splits"]),
                **runs.trained_length(source, step),
            }
        case "huggingface":
            weights, provenance = read(source), huggingface.provenance(source)
        case _:
            weights, provenance = read(source), {}
    tokenizer = read_tokenizer(source, weights.config)
    huggingface_export.export(weights, tokenizer, folder, provenance, dtype)
    return model_card.lengths(weights.config, provenance)


def refusal(folder: Path) -> UserError:
    """For a folder with these weights, where another family's are required."""
    return UserError(f"{folder}: weights of {origins.family_of(folder).title}")


def _check_readable(folder: Path) -> None:
    """Raises UserError if another family's own module reads the folder."""
    family = origins.family_of(folder)
    if family.weights.__name__ != __name__:
        raise family.weights.refusal(folder)


def _same(saved: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """Whether the labels are the same; LABEL_0, ... count as unnamed."""
    unnamed = saved == layout.default_labels(len(saved))
    return saved == wanted or (unnamed and len(saved) == len(wanted))


def _without(weights: Weights, heads: tuple[str, ...]) -> Weights:
    """The weights without the classifier heads, whose labels are not the task's."""
    gone = tuple(
        f"{head} (of other labels)" for head in heads if head in weights.params
    )
    return dataclasses.replace(
        weights,
        params={k: v for k, v in weights.params.items() if k not in heads},
        left_over=(*gone, *weights.left_over),
    )
