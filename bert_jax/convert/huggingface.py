"""Weights in a Hugging Face model folder: config.json, weights and tokenizer files.

How a family's files are written is its `Layout`. Executes nothing from such a folder:
it reads only JSON, safetensors and msgpack.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.convert import layout
from bert_jax.convert.export import PROVENANCE, is_export
from bert_jax.convert.layout import Layout, Place, Weights, as_it_is
from bert_jax.convert.source import Source
from bert_jax.convert.tensors import Tensors
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES, Family
from bert_jax.models.config import BertConfig
from bert_jax.runtime import untrusted


class HuggingFace(Source):
    """A model that `transformers` or an export saved."""

    def __init__(self, folder: Path):
        """Reads config.json; raises UserError if no family has such models."""
        self._path = folder / "config.json"
        self._fields = untrusted.read_json(folder, self._path.name)
        super().__init__(folder, _family(self._fields, self._path))
        self._layout: Layout = self.family.layout

    def config(self) -> BertConfig:
        return self._layout.config(self._fields, self._path)

    def labels(self) -> tuple[str, ...]:
        """Returns the names of a classifier's outputs; LABEL_0 ... if unnamed.

        Raises:
          UserError: `id2label` does not name every output.
        """
        names = self._fields.get("id2label")
        if names is None:
            return layout.default_labels(self._fields.get("num_labels", 2))
        try:
            labels = tuple(str(names[str(index)]) for index in range(len(names)))
        except (KeyError, TypeError) as error:
            raise UserError(
                f"{self._path}: id2label must name the labels 0, 1, ..."
            ) from error
        if double := [name for name in labels if labels.count(name) > 1]:
            raise UserError(
                f"{self._path}: id2label names {double[0]!r:.60} twice; give each "
                "output a name of its own"
            )
        return labels

    def heads(self) -> tuple[str, ...]:
        named = self._fields.get("architectures")
        architecture = named[0] if isinstance(named, list) and named else ""
        return self._layout.architectures.get(architecture, ())

    def kind(self) -> str | None:
        kinds = {problem: kind for kind, problem in layout.PROBLEM_TYPES.items()}
        return kinds.get(self._fields.get("problem_type") or "")

    def recorded(self) -> dict[str, Any] | None:
        config: dict[str, Any] | None = self._provenance().get("config")
        labels = (config or {}).get("task", {}).get("labels", ())
        named = self.labels()
        if config and labels and len(named) == len(labels):
            config["task"]["labels"] = list(named)  # they may have better names now
        return config

    def read(self, place: Place = as_it_is, name: str = "") -> Weights:
        tensors = Tensors(self.folder, self._layout.buffers)
        fields, labels = self._fields, self.labels()
        return dataclasses.replace(
            self._layout.read(tensors, fields, self._path, labels, place),
            problem_type=fields.get("problem_type"),
            facts=self._provenance().get("task", {}),
        )

    def exported(self, name: str) -> tuple[Weights, Mapping[str, Any]]:
        return self.read(), self._provenance()

    def _provenance(self) -> dict[str, Any]:
        """Returns the `step`, `config`, facts (`task`) and `scores` (of each split) of
        the run that was exported; each may be missing."""
        return self._fields[PROVENANCE] if is_export(self._fields) else {}


def _family(fields: Mapping[str, Any], path: Path) -> Family:
    """Returns the family of a model_type; old folders of BERTs name none."""
    kind = fields.get("model_type") or "bert"
    known = {family.model_type: family for family in FAMILIES.values()}
    known.pop("", None)  # of families that `transformers` does not have
    if kind not in [*known]:
        raise UserError(
            f"{path}: model_type is {untrusted.shown(kind)}; only {', '.join(known)} "
            "can be read"
        )
    return known[kind]
