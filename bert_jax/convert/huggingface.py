"""Reads Hugging Face model folders: config.json, weights and tokenizer files.

What a family's files say is read by its own module: BERT's is bert.py.

Executes nothing from such a folder: it reads only JSON, safetensors and msgpack.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bert_jax.convert import layout, reading
from bert_jax.convert.tensors import Tensors
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES, Family
from bert_jax.models.config import BertConfig
from bert_jax.runtime import untrusted

# The field of config.json that says which run a model is from, and marks a folder as an
# export.
PROVENANCE = "bert_jax"


def read(
    folder: Path, place: Callable[[layout.Array], Any] = reading.as_it_is
) -> layout.Weights:
    """Reads a model that `transformers` saved, as float32.

    Args:
      place: see `reading.build`.

    Raises:
      UserError: a file is missing or damaged, or no family has such models.
    """
    path = folder / "config.json"
    fields = untrusted.read_json(folder, "config.json")
    form = _family(fields, path).huggingface
    tensors = Tensors(folder, form.BUFFER)
    weights: layout.Weights = form.read(
        tensors, fields, folder, read_labels(fields, path), place
    )
    problem = fields.get("problem_type")
    return dataclasses.replace(
        weights,
        problem_type=problem if isinstance(problem, str) else None,
        facts=_provenance(fields, path).get("task", {}),
    )


def read_config(folder: Path) -> BertConfig:
    """The model's sizes; raises UserError if they are wrong or not supported."""
    fields = untrusted.read_json(folder, "config.json")
    config: BertConfig = _family(
        fields, folder / "config.json"
    ).huggingface.read_config(fields, folder)
    return config


def _family(fields: Mapping[str, Any], path: Path) -> Family:
    """The family of a config.json's model_type; none names a BERT, in old folders.

    Raises:
      UserError: no family has such models.
    """
    kind = fields.get("model_type", "bert")
    for family in FAMILIES.values():
        if kind and family.model_type == kind:
            return family
    raise UserError(
        f"{path}: model_type is {untrusted.shown(kind)}; only "
        f"{', '.join(f.model_type for f in FAMILIES.values() if f.model_type)} can be "
        "read"
    )


def provenance(folder: Path) -> dict[str, Any]:
    """The `step`, `config`, facts (`task`) and `scores` (of each split) of the run that
    `export` wrote to the folder; each may be missing.

    Raises:
      UserError: one has the wrong type.
    """
    return _provenance(
        untrusted.read_json(folder, "config.json"), folder / "config.json"
    )


def is_export(fields: Mapping[str, Any]) -> bool:
    """Whether config.json is of an export; `transformers`, which may have trained the
    model since, keeps our field and adds its version."""
    return PROVENANCE in fields and "transformers_version" not in fields


def _provenance(fields: dict[str, Any], path: Path) -> dict[str, Any]:
    recorded = fields[PROVENANCE] if is_export(fields) else {}
    named = recorded if isinstance(recorded, dict) else {"config": None}
    config, facts = named.get("config", {"task": {}}), named.get("task", {})
    if not (
        isinstance(facts, dict)
        and isinstance(config, dict)
        and isinstance(config.get("task"), dict)
        and isinstance(config["task"].get("name", ""), str)
        and isinstance(config["task"].get("labels", []), list)
        and isinstance(named.get("step", 0), int)
        and isinstance(length := named.get("max_seq_length", 1), int)
        and length > 0
        and _are_scores(named.get("scores", {}))
    ):
        raise UserError(
            f"{path}: {PROVENANCE}={untrusted.shown(recorded)} is not from an export; "
            "remove this field"
        )
    return recorded


def _are_scores(by_split: Any) -> bool:
    """Whether it is a number by name, for each split."""
    return isinstance(by_split, dict) and all(
        isinstance(scores, dict)
        and all(isinstance(value, int | float) for value in scores.values())
        and all(isinstance(x, float) or abs(x) < 1 << 63 for x in scores.values())
        for scores in by_split.values()
    )


def read_labels(fields: dict[str, Any], path: Path) -> tuple[str, ...]:
    """The names of a classifier's outputs; LABEL_0 ... if unnamed."""
    names = fields.get("id2label")
    if names is None:
        number = fields.get("num_labels", 2)
        if not isinstance(number, int) or not 0 < number <= 100_000:
            raise UserError(
                f"{path}: num_labels={untrusted.shown(number)} is not a number of "
                "labels"
            )
        return layout.default_labels(number)
    try:
        labels = [str(names[str(index)]) for index in range(len(names))]
    except (KeyError, TypeError) as error:
        raise UserError(f"{path}: id2label must name the labels 0, 1, ...") from error
    for index, label in enumerate(labels):
        if label in labels[:index]:
            raise UserError(
                f"{path}: id2label names both {labels.index(label)} and {index} "
                f"{untrusted.shown(label)}; give each a name of its own"
            )
    return tuple(labels)


def read_heads(fields: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """The heads of the architecture that config.json names; none if it is not known."""
    named = fields.get("architectures")
    architecture = named[0] if isinstance(named, list) and named else ""
    heads: tuple[str, ...] = _family(fields, path).layout.ARCHITECTURES.get(
        architecture, ()
    )
    return heads


def read_kind(fields: Mapping[str, Any]) -> str | None:
    """The `task.kind` of a text classifier; None where problem_type does not say."""
    kinds = {problem: kind for kind, problem in layout.PROBLEM_TYPES.items()}
    problem = fields.get("problem_type")
    return kinds.get(problem) if isinstance(problem, str) else None
