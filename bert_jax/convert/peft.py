"""LoRA's adapters in the form of Hugging Face's PEFT: `adapter_config.json` and
`adapter_model.safetensors`, which belong to the model of another folder."""

import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict
from safetensors.numpy import save_file

from bert_jax.convert.layout import Layout, Weights
from bert_jax.convert.parameters import Array, Parameter
from bert_jax.convert.tensors import Tensors
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.models import lora
from bert_jax.runtime import hub, untrusted
from bert_jax.runtime.storage import Path

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_A, _B = ".lora_A.weight", ".lora_B.weight"
# The end of an architecture's name, and PEFT's name of its task.
_TASKS = {
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
}


class Adapter:
    """A folder that PEFT saved.

    Attributes:
      base: Path of the folder, or hf:OWNER/NAME, of the model that it changes.
    """

    def __init__(self, folder: Path):
        """Reads adapter_config.json. Raises UserError if it is not a plain LoRA."""
        self._folder = pathlib.Path(folder)
        self._fields = fields = untrusted.read_object(self._folder / CONFIG)
        others = ("use_dora", "alpha_pattern", "layer_replication")
        self._alpha = fields.get("lora_alpha", 8)
        is_plain = fields.get("peft_type") == "LORA" and not any(
            map(fields.get, others)
        )
        if not is_plain or not isinstance(self._alpha, int | float):
            raise UserError(
                f"{self._folder / CONFIG}: only LoRA with one lora_alpha can be read"
            )
        name = str(fields.get("base_model_name_or_path"))
        revision = f"@{fields['revision']}" if fields.get("revision") else ""
        is_here = pathlib.Path(name).is_dir()
        self.base = name if is_here else f"{hub.PREFIX}{name}{revision}"

    def complete(self, fields: dict[str, Any], layout: Layout) -> None:
        """Sets the architecture and the number of labels among a config.json's
        fields."""
        for ending, task in _TASKS.items():
            if task == self._fields.get("task_type"):
                (name,) = (x for x in layout.architectures if x.endswith(ending))
                fields["architectures"] = [name]
        heads = re.compile(r"(^|\.)(classifier|score)\.(out_proj\.)?weight$")
        for name, (count, *_) in self._tensors().shapes.items():
            if heads.search(name) and len(fields.get("id2label") or ()) != count:
                fields["id2label"] = {str(i): f"LABEL_{i}" for i in range(count)}

    def apply(self, tensors: Tensors, layout: Layout) -> None:
        """Changes the tensors of the base.

        Raises:
          UserError: The base lacks a matrix, or has it with another shape.
        """
        saved = self._tensors()
        for name, shape in saved.shapes.items():
            module = name.removesuffix(_A).removesuffix(_B)
            if module == name and "lora_" in name:
                raise UserError(f"{saved.where}: {name}: only linear layers' are read")
            if module == name:
                tensors.put(_named(tensors, name, layout), saved.read(name))
            if not name.endswith(_A):
                continue
            rank, ours = shape[0], _named(tensors, f"{module}.weight", layout)
            power = 0.5 if self._fields.get("use_rslora") else 1
            product = saved.read(module + _B) @ saved.read(name)
            if re.match(layout.conv, f"{module}.weight"):
                product = product.T
            there = tensors.shapes.get(ours)
            if there != product.shape:
                raise UserError(
                    f"{saved.where}: changes {module}.weight of the shape "
                    f"{product.shape}, which is {there or 'missing'} in {self.base}"
                )
            scale = self._alpha / rank**power
            tensors.put(ours, tensors.read(ours) + np.float32(scale) * product)

    def _tensors(self) -> Tensors:
        return Tensors.of_file(self._folder / WEIGHTS, _PREFIX)


def _named(tensors: Tensors, name: str, layout: Layout) -> str:
    """Returns a tensor's name in a base, which may have been saved with a head or
    without."""
    names = (name, layout.prefix + name, name.removeprefix(layout.prefix))
    return next((x for x in names if x in tensors.shapes), name)


# Parameters whose matrices are one tensor, each with its adapter's `a` and `b`.
_Group = list[tuple[Parameter, Array, Array]]


def write(weights: Weights, base: str, alpha: float, folder: pathlib.Path) -> bool:
    """Writes what a run with LoRA has learned, its adapters and heads, if PEFT has a
    form for all of it. Returns whether it has.

    Args:
      weights: The model, with `learned`.
      base: Path of the base, or hf:OWNER/NAME.
      alpha: Numerator of the adapters' factor.
      folder: A new folder.
    """
    if (found := _learned(weights)) is None:
        return False
    adapted, saved = found
    layout: Layout = FAMILIES[weights.config.architecture].layout
    # Heads are whole modules, such as RoBERTa's classifier of two layers.
    modules = {name.rpartition(".")[0] for name in saved}
    heads = {x if x.startswith(layout.prefix) else x.split(".")[0] for x in modules}
    rank = next(iter(adapted.values()))[0][1].shape[-1]
    rows = rank * max(map(len, adapted.values()))
    for module, group in adapted.items():
        saved[module + _A], saved[module + _B] = _joined(group, rank, rows)
    name, _, revision = base.removeprefix(hub.PREFIX).partition("@")
    fields: Mapping[str, Any] = {
        "peft_type": "LORA",
        "task_type": _TASKS.get(f"For{weights.architecture.partition('For')[2]}"),
        "base_model_name_or_path": name,
        "revision": revision or None,
        "r": rows,
        "lora_alpha": alpha * rows / rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": any(group[0][0].conv for group in adapted.values()),
        "target_modules": sorted(adapted),
        "modules_to_save": sorted(heads) or None,
        "inference_mode": True,
    }
    tensors = {_PREFIX + name: x for name, x in saved.items()}
    folder.mkdir()
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    text = json.dumps(fields, indent=2) + "\n"
    (folder / CONFIG).write_text(text, encoding="utf-8")
    return True


def _learned(weights: Weights) -> tuple[dict[str, _Group], dict[str, Array]] | None:
    """Returns the adapters by their module in `transformers`, and the tensors of all
    else that has learned. None means that `transformers` lacks one of these, or that
    PEFT would save the embeddings with it, as with the masked LM's."""
    layout, own = FAMILIES[weights.config.architecture].layout, weights.learned
    parts = layout.architectures[weights.architecture]
    bare = not {*parts} - {"pooler"}
    adapted: dict[str, _Group] = {}
    saved: dict[str, Array] = {}
    flat = {path: np.asarray(x) for path, x in flatten_dict(own).items()}
    for part in ("bert", *parts):
        for each in layout.parameters(part, weights.config, len(weights.labels)):
            name = each.name.removeprefix(layout.prefix) if bare else each.name
            path = (lora.NAME, *each.path[:-1])
            if each.path[-1] == "kernel" and (*path, "a") in flat:
                group = adapted.setdefault(name.removesuffix(".weight"), [])
                group.append((each, flat[*path, "a"], flat[*path, "b"]))
            elif each.path in flat and (not name or part == "masked_lm"):
                return None
            elif each.path in flat:
                saved[name] = each.give(flat[each.path])
    return adapted, saved


def _joined(group: _Group, rank: int, rows: int) -> tuple[Array, Array]:
    """Returns PEFT's two matrices of one tensor, [rows, inputs] and [outputs, rows]:
    the adapters (of query, key and value) one after the other, then zeros."""
    first = group[0][0]
    inputs, outputs = first.flat
    down = np.zeros((rows, inputs), np.float32)
    up = np.zeros((first.fused[1], outputs, rows), np.float32)
    for number, (each, a, b) in enumerate(group):
        at = slice(number * rank, (number + 1) * rank)
        down[at] = a.reshape(inputs, rank).T
        up[each.fused[0], :, at] = b.reshape(rank, outputs).T
    return down, up.reshape(-1, rows)
