"""The tensors of a folder, by the names of `transformers`."""

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from bert_jax.convert.parameters import Array
from bert_jax.errors import UserError, first_line
from bert_jax.runtime import untrusted

# The files that identify a folder of weights.
WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
FLAX = "flax_model.msgpack"
PICKLE = "pytorch_model.bin"
FILES = (WEIGHTS, INDEX, FLAX, PICKLE, f"{PICKLE}.index.json")

_FLOATS = {"F64", "F32", "F16", "BF16"}
# A LayerNorm's names before `transformers` 1.0.
_OLD = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
# `weights_only` executes nothing.
_CONVERT = (
    'python -c "import torch, safetensors.torch as s; s.save_file({k: v.clone() '
    f"for k, v in torch.load('{PICKLE}', weights_only=True).items()}}, "
    f"'{WEIGHTS}', {{'format': 'pt'}})\""
)


class Entry(NamedTuple):
    """A tensor of a file."""

    name: str
    shape: tuple[int, ...]
    is_float: bool
    read: Callable[[], np.ndarray]


class Tensors:
    """Tensors under their current names, each read on request.

    Attributes:
      where: The file, for errors.
      shapes: Shape of each tensor.
    """

    def __init__(self, where: object, entries: Iterable[Entry], buffers: str = "$"):
        """Stores the tensors.

        Args:
          buffers: Pattern of names of saved tensors that are not parameters.
        """
        self.where = str(where)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._reads: dict[str, Callable[[], np.ndarray]] = {}
        for entry in entries:
            name = entry.name
            for old, new in _OLD.items():
                name = name.replace(old, new)
            if re.fullmatch(buffers, name):
                continue
            if not entry.is_float:
                raise UserError(f"{where}: {entry.name} has no floating-point numbers")
            self.shapes[name], self._reads[name] = entry.shape, entry.read

    @classmethod
    def of_folder(cls, folder: Path, buffers: str = "$") -> "Tensors":
        """Opens a folder. Raises UserError if a file is missing or damaged."""
        paths = _weight_files(folder)
        where = paths[0] if len(paths) == 1 else folder / WEIGHTS
        entries = (entry for path in paths for entry in _safetensors(path))
        return cls(where, entries, buffers)

    def read(self, name: str) -> Array:
        """Returns a tensor, as float32."""
        with np.errstate(over="ignore"):
            return self._reads[name]().astype(np.float32, copy=False)

    def rename(self, name: str, other: str) -> None:
        """Renames a tensor to `other`, if it exists."""
        if name in self.shapes:
            self.shapes[other] = self.shapes.pop(name)
            self._reads[other] = self._reads.pop(name)

    def append(self, name: str, rows: Array) -> None:
        """Adds rows to a tensor."""
        count, *rest = self.shapes[name]
        self.shapes[name] = (count + len(rows), *rest)
        read = self._reads[name]
        self._reads[name] = lambda: np.concatenate([read(), rows])


def _weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    if (path := folder / INDEX).exists():
        shards = untrusted.read_object(path).get("weight_map", {})
        paths = [folder / shard for shard in sorted(set(shards.values()))]
        if missing := [shard.name for shard in paths if not shard.exists()]:
            raise UserError(
                f"{path}: names {missing[0]!r}, which does not exist; download the "
                "folder again"
            )
        return paths
    if (folder / FLAX).exists():
        raise UserError(
            f"{folder}: {FLAX} is not read; convert it: AutoModelForMaskedLM."
            "from_pretrained(FOLDER, from_flax=True).save_pretrained(FOLDER), with "
            "transformers 4"
        )
    if any((folder / name).exists() for name in FILES):
        raise UserError(
            f"{folder}: {PICKLE} is a pickle, which can execute code, so it is not "
            f"read; convert it, in that folder: {_CONVERT}"
        )
    raise UserError(f"{folder}: has no {WEIGHTS}")


def _safetensors(path: Path) -> Iterator[Entry]:
    def read(name: str) -> np.ndarray:
        # Opens the file for each tensor, so that the rest does not stay in memory.
        with safe_open(path, "np") as file:
            return np.asarray(file.get_tensor(name))

    try:
        with safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118 (not a dict)
                piece = file.get_slice(name)
                shape, is_float = piece.get_shape(), piece.get_dtype() in _FLOATS
                yield Entry(name, (*shape,), is_float, functools.partial(read, name))
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"{path}: {first_line(error)}; damaged: export or copy it again; if it is "
            f"in the Hub's cache, delete {path.resolve()}, and name hf:OWNER/NAME again"
        ) from error
