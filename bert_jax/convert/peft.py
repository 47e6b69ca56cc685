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
_PICKLE = "adapter_model.bin"  # of older versions
_PREFIX = "base_model.model."
_A, _B = ".lora_A.weight", ".lora_B.weight"
# Fields of adapter_config.json that may have any value: they describe how an adapter
# was trained, or its tensors show them.
_ANY = {
    *("peft_type", "task_type", "auto_mapping", "peft_version", "inference_mode"),
    *("base_model_name_or_path", "revision", "r", "target_modules", "exclude_modules"),
    *("lora_alpha", "lora_dropout", "fan_in_fan_out", "bias", "use_rslora"),
    *("modules_to_save", "layers_to_transform", "layers_pattern", "rank_pattern"),
    *("megatron_core", "qalora_group_size", "eva_config", "ensure_weight_tying"),
}
# The first values that leave the base as it is. With others PEFT changes it too.
_PLAIN_STARTS = (None, True, False, "gaussian", "eva", "orthogonal")
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
        self._alpha = fields.get("lora_alpha", 8)
        start = fields.get("init_lora_weights")
        odd = [n for n in fields if n not in {*_ANY, "init_lora_weights"} and fields[n]]
        odd += ["init_lora_weights"] * (start not in _PLAIN_STARTS)
        odd += ["peft_type"] * (fields.get("peft_type") != "LORA")
        odd += ["lora_alpha"] * (not isinstance(self._alpha, int | float))
        if odd:
            raise UserError(
                f"{self._folder / CONFIG}: only LoRA with one lora_alpha can be read, "
                f"and it has {odd[0]}={fields.get(odd[0])!r:.80}; merge it with PEFT "
                "(merge_and_unload), and save the model"
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
            if module == name and ".original_module." not in name:  # the base's own
                self._put(tensors, name, saved.read(name), layout)
            if not name.endswith(_A):
                continue
            rank, ours = shape[0], _find_name(tensors, f"{module}.weight", layout)
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

    def _put(self, tensors: Tensors, name: str, array: Array, layout: Layout) -> None:
        """Replaces a tensor of the base. A tied copy of it stays as it is."""
        plain = name.replace(".base_layer.", ".").replace(".modules_to_save.", ".")
        ours = _find_name(tensors, plain, layout)
        for copy, original in layout.tied.items():
            is_tied = ours in (original, original.removeprefix(layout.prefix))
            if is_tied and copy not in tensors.shapes and ours in tensors.shapes:
                tensors.put(copy, tensors.read(ours))
        tensors.put(ours, array)

    def check_read(self, weights: Weights, layout: Layout) -> None:
        """Raises UserError if a model lacks a tensor of the adapter."""
        left = {name.removeprefix(layout.prefix) for name in weights.left_over}
        for name in self._tensors().shapes:
            if name.removeprefix(layout.prefix) in left:
                raise UserError(
                    f"{self._folder / WEIGHTS}: {name} has no place in a "
                    f"{weights.architecture} here; merge the adapter with PEFT "
                    "(merge_and_unload), and save the model"
                )

    def _tensors(self) -> Tensors:
        is_older = not (self._folder / WEIGHTS).exists()
        name = _PICKLE if is_older and (self._folder / _PICKLE).exists() else WEIGHTS
        return Tensors.open_file(self._folder / name, _PREFIX)


def _find_name(tensors: Tensors, name: str, layout: Layout) -> str:
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
    if (found := _collect_learned(weights)) is None:
        return False
    adapted, saved = found
    layout: Layout = FAMILIES[weights.config.architecture].layout
    # Heads are whole modules, such as RoBERTa's classifier of two layers.
    modules = {name.rpartition(".")[0] for name in saved}
    heads = {x if x.startswith(layout.prefix) else x.split(".")[0] for x in modules}
    rank = next(iter(adapted.values()))[0][1].shape[-1]
    rows = rank * max(map(len, adapted.values()))
    for module, group in adapted.items():
        saved[module + _A], saved[module + _B] = _join_adapters(group, rank, rows)
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


def _collect_learned(
    weights: Weights,
) -> tuple[dict[str, _Group], dict[str, Array]] | None:
    """Returns the adapters by their module in `transformers`, and the tensors of all
    else that has learned. None means that `transformers` lacks one of these, or that
    PEFT would save the embeddings with it, as with the masked LM's."""
    layout, learned = FAMILIES[weights.config.architecture].layout, weights.learned
    parts = layout.architectures[weights.architecture]
    bare = not {*parts} - {"pooler"}
    adapted: dict[str, _Group] = {}
    saved: dict[str, Array] = {}
    flat = {path: np.asarray(x) for path, x in flatten_dict(learned).items()}
    for part in ("bert", *parts):
        for parameter in layout.parameters(part, weights.config, len(weights.labels)):
            name = (
                parameter.name.removeprefix(layout.prefix) if bare else parameter.name
            )
            path = (lora.NAME, *parameter.path[:-1])
            if parameter.path[-1] == "kernel" and (*path, "a") in flat:
                group = adapted.setdefault(name.removesuffix(".weight"), [])
                group.append((parameter, flat[*path, "a"], flat[*path, "b"]))
            elif parameter.path in flat and (not name or part == "masked_lm"):
                return None
            elif parameter.path in flat:
                saved[name] = parameter.convert_to_torch(flat[parameter.path])
    return adapted, saved


def _join_adapters(group: _Group, rank: int, rows: int) -> tuple[Array, Array]:
    """Returns PEFT's two matrices of one tensor, [rows, inputs] and [outputs, rows]:
    the adapters (of query, key and value) one after the other, then zeros."""
    first = group[0][0]
    inputs, outputs = first.flat_shape
    down = np.zeros((rows, inputs), np.float32)
    up = np.zeros((first.fused[1], outputs, rows), np.float32)
    for number, (each, a, b) in enumerate(group):
        at = slice(number * rank, (number + 1) * rank)
        down[at] = a.reshape(inputs, rank).T
        up[each.fused[0], :, at] = b.reshape(rank, outputs).T
    return down, up.reshape(-1, rows)
