"""The tensors of a Hugging Face folder: safetensors, or Flax's msgpack."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from bert_jax.convert.parameters import Array
from bert_jax.errors import UserError, first_line
from bert_jax.runtime import untrusted

# The files by which a folder of weights is known.
WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
FLAX = "flax_model.msgpack"
PICKLE = "pytorch_model.bin"
FILES = (WEIGHTS, INDEX, FLAX, PICKLE, f"{PICKLE}.index.json")

_FLOATS = {"F64", "F32", "F16", "BF16"}
_FLAX_NAMES = {"kernel": "weight", "scale": "weight", "embedding": "weight"}
# What wrappers put before every name: DataParallel, torch.compile, Lightning and
# modules of one's own, Flax's variables.
_WRAPPERS = ("module.", "_orig_mod.", "model.", "params.")
# A LayerNorm's names of before `transformers` 1.0.
_OLD = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
# `weights_only` executes nothing.
_CONVERT = (
    'python -c "import torch, safetensors.torch as s; s.save_file({k: v.clone() '
    f"for k, v in torch.load('{PICKLE}', weights_only=True).items()}}, "
    f"'{WEIGHTS}', {{'format': 'pt'}})\""
)


class Tensors:
    """The tensors of one or more files, under current names.

    Attributes:
      where: the file, for errors.
      shapes: each one's shape.
    """

    def __init__(self, folder: Path, buffers: str = "$"):
        """Reads the names and shapes.

        Args:
          buffers: a pattern of names of what is saved and is no parameter.
        """
        self._saved: dict[str, tuple[Path, str]] = {}
        self._rows: dict[str, Array] = {}  # that follow those of the file
        self._arrays: dict[str, np.ndarray] = {}  # of Flax's file, which is read whole
        self.shapes: dict[str, tuple[int, ...]] = {}
        paths = _weight_files(folder)
        self.where = str(paths[0] if len(paths) == 1 else folder / WEIGHTS)
        if paths[0].name == FLAX:
            self._arrays = _flax_arrays(paths[0])
        headers = [(path, *x) for path in paths for x in _header(path, self._arrays)]
        wrapper = _wrapper([name for _, name, *_ in headers])
        for path, name, shape, is_float in headers:
            ours = name.removeprefix(wrapper)
            for old, new in _OLD.items():
                ours = ours.removesuffix(old) + new if ours.endswith(old) else ours
            if re.fullmatch(buffers, ours):
                continue
            if not is_float:
                raise UserError(f"{path}: {name} has no floating-point numbers")
            self._saved[ours], self.shapes[ours] = (path, name), shape

    def read(self, name: str) -> Array:
        """Returns a tensor, as float32."""
        path, saved_name = self._saved[name]
        if saved_name in self._arrays:
            array = self._arrays[saved_name].astype(np.float32, copy=False)
        else:
            # Opens the file for each tensor, so that the rest does not stay in memory.
            with safe_open(path, "np") as file, np.errstate(over="ignore"):
                array = file.get_tensor(saved_name).astype(np.float32, copy=False)
        if name in self._rows:
            array = np.concatenate([array, self._rows[name]])
        return array

    def rename(self, name: str, other: str) -> None:
        """Renames a tensor to `other`, if it exists."""
        if name in self.shapes:
            self.shapes[other] = self.shapes.pop(name)
            self._saved[other] = self._saved.pop(name)

    def append(self, name: str, rows: Array) -> None:
        """Adds rows to a tensor."""
        count, *rest = self.shapes[name]
        self._rows[name] = rows
        self.shapes[name] = (count + len(rows), *rest)


def _wrapper(names: Sequence[str]) -> str:
    """Returns the prefix of all names that a wrapper of the model has put there."""
    prefix = ""
    while names and (
        more := [w for w in _WRAPPERS if all(n.startswith(prefix + w) for n in names)]
    ):
        prefix += more[0]
    return prefix


def _flax_arrays(path: Path) -> dict[str, np.ndarray]:
    """Returns the arrays of a flax_model.msgpack, named and laid out as in PyTorch."""
    from flax import serialization, traverse_util

    try:
        tree = traverse_util.flatten_dict(
            serialization.msgpack_restore(path.read_bytes())
        )
    except (ValueError, AssertionError) as error:
        raise UserError(
            f"{path}: {first_line(error)}; not a file of Flax's weights, or damaged: "
            "copy it again"
        ) from error
    return {
        ".".join((*inner, _FLAX_NAMES.get(last, last))): np.asarray(
            array.T if last == "kernel" else array
        )
        for (*inner, last), array in tree.items()
    }


def _weight_files(folder: Path) -> list[Path]:
    for name in (WEIGHTS, INDEX, FLAX):
        path = folder / name
        if path.exists() and name != INDEX:
            return [path]
        if path.exists():
            shards = untrusted.read_object(path).get("weight_map", {})
            paths = [folder / shard for shard in sorted(set(shards.values()))]
            for shard in paths:
                if not shard.exists():
                    raise UserError(
                        f"{path}: names {shard.name!r}, which does not exist; download "
                        "the folder again"
                    )
            return paths
    if any((folder / name).exists() for name in FILES):
        raise UserError(
            f"{folder}: {PICKLE} is a pickle, which can execute code, so it is not "
            f"read; convert it, in that folder: {_CONVERT}"
        )
    raise UserError(f"{folder}: has no {WEIGHTS}")


def _header(
    path: Path, arrays: dict[str, np.ndarray]
) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """Yields name and shape of each tensor, and whether it has floating-point numbers.

    Args:
      arrays: of a file of Flax's, which is no safetensors file.
    """
    for name, array in arrays.items():
        yield name, array.shape, array.dtype.kind in "fV"  # V: bfloat16
    if arrays:
        return
    try:
        with safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118 (not a dict)
                piece = file.get_slice(name)
                yield name, tuple(piece.get_shape()), piece.get_dtype() in _FLOATS
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"{path}: {first_line(error)}; damaged: export or copy it again; if it is "
            f"in the Hub's cache, delete {path.resolve()}, and name hf:OWNER/NAME again"
        ) from error
