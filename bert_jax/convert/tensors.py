"""The tensors of a folder, by the names of `transformers`: safetensors, msgpack, or
PyTorch's own files."""

import functools
import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flax import serialization, traverse_util
from safetensors import SafetensorError, safe_open

from bert_jax.convert.parameters import Array
from bert_jax.errors import UserError, first_line
from bert_jax.runtime import untrusted

# The files that identify a folder of weights. The first one that is there is read.
WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
FLAX = "flax_model.msgpack"
PICKLE = "pytorch_model.bin"
FILES = (WEIGHTS, INDEX, FLAX, PICKLE, f"{PICKLE}.index.json")

_FLOATS = {"F64", "F32", "F16", "BF16"}
_FLAX_NAMES = {"kernel": "weight", "scale": "weight", "embedding": "weight"}
# Prefixes that wrappers put before every name: DataParallel, torch.compile, Lightning
# and custom modules, Flax's variables.
_WRAPPERS = (
    *("module.", "_orig_mod.", "model.", "params."),
    *("0.auto_model.", "auto_model."),  # sentence-transformers
)
# A LayerNorm's names before `transformers` 1.0.
_OLD = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
_CONVERT = (
    'python -c "import torch, safetensors.torch as s; s.save_file({k: v.clone() '
    f"for k, v in torch.load('{PICKLE}', weights_only=True).items()}}, "
    f"'{WEIGHTS}', {{'format': 'pt'}})\""
)


class Entry(NamedTuple):
    """A tensor of a file."""

    name: str  # in the file
    shape: tuple[int, ...]  # as in PyTorch
    is_float: bool  # whether its numbers are floating-point ones
    read: Callable[[], np.ndarray]  # reads it


class Tensors:
    """Tensors under their current names, each read on request.

    Attributes:
      where: The file, for errors.
      shapes: Shape of each tensor.
    """

    def __init__(self, where: object, entries: Iterable[Entry], buffers: str = "$"):
        """Takes a wrapper's prefix off.

        Args:
          buffers: Pattern of names of saved tensors that are not parameters.
        """
        self.where, entries = str(where), list(entries)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._reads: dict[str, Callable[[], np.ndarray]] = {}
        names, wrapper = [entry.name for entry in entries], ""
        while names and (
            more := [
                w for w in _WRAPPERS if all(n.startswith(wrapper + w) for n in names)
            ]
        ):
            wrapper += more[0]
        for entry in entries:
            name = entry.name.removeprefix(wrapper)
            for old, new in _OLD.items():
                name = name.replace(old, new)
            if re.fullmatch(buffers, name):
                continue
            if not entry.is_float:
                raise UserError(f"{where}: {entry.name} has no floating-point numbers")
            self.shapes[name], self._reads[name] = entry.shape, entry.read

    @classmethod
    def open_folder(cls, folder: Path, buffers: str = "$") -> "Tensors":
        """Opens a folder. Raises UserError if a file is missing or damaged."""
        path = next((x for name in FILES if (x := folder / name).exists()), None)
        if path is None:
            raise UserError(f"{folder}: has no {WEIGHTS}")
        paths = [path]
        if path.suffix == ".json":
            shards = untrusted.read_object(path).get("weight_map", {})
            paths = [folder / shard for shard in sorted(set(shards.values()))]
            if missing := [shard.name for shard in paths if not shard.exists()]:
                raise UserError(
                    f"{path}: names {missing[0]!r}, which does not exist; download the "
                    "folder again"
                )
        where = paths[0] if len(paths) == 1 else folder
        for path in paths:
            untrusted.refuse_pointer(path)
        open_ = _READERS[paths[0].suffix]
        return cls(where, (entry for path in paths for entry in open_(path)), buffers)

    @classmethod
    def open_file(cls, path: Path, prefix: str) -> "Tensors":
        """Opens a file, and takes a prefix off its names."""
        entries = (
            entry._replace(name=entry.name.removeprefix(prefix))
            for entry in _READERS[path.suffix](path)
        )
        return cls(path, entries)

    def put(self, name: str, array: Array) -> None:
        """Adds a tensor, or changes it."""
        self.shapes[name], self._reads[name] = array.shape, lambda: array

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


def _flax(path: Path) -> Iterator[Entry]:
    """Yields the arrays of flax_model.msgpack, laid out as in PyTorch."""
    try:
        tree = traverse_util.flatten_dict(
            serialization.msgpack_restore(path.read_bytes())
        )
    except (ValueError, AssertionError) as error:
        raise UserError(
            f"{path}: {first_line(error)}; not a file of Flax's weights, or damaged: "
            "copy it again"
        ) from error
    for (*inner, last), leaf in tree.items():
        name = ".".join((*inner, _FLAX_NAMES.get(last, last)))
        array = np.asarray(leaf.T if last == "kernel" else leaf)
        is_float = array.dtype.kind in "fV"  # V: bfloat16
        yield Entry(name, array.shape, is_float, functools.partial(np.asarray, array))


def _torch(path: Path) -> Iterator[Entry]:
    """Yields the tensors of pytorch_model.bin, a pickle of which no code is run."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise UserError(
            f"{path}: needs torch (pip install torch); or convert it where torch is, "
            f"in that folder: {_CONVERT}"
        ) from error
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
        raise UserError(
            f"{path}: a pickle, from which torch {torch.__version__} may execute code "
            "(CVE-2025-32434); pip install 'torch>=2.6', or convert it where that is, "
            f"in that folder: {_CONVERT}"
        )

    def read(tensor: Any) -> np.ndarray:
        return np.asarray(tensor.detach().float())

    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
        entries = [
            Entry(name, (*x.shape,), x.is_floating_point(), functools.partial(read, x))
            for name, x in tensors.items()
        ]
    except (pickle.UnpicklingError, EOFError, RuntimeError, AttributeError) as error:
        raise UserError(
            f"{path}: {first_line(error)}; holds more than tensors, or is damaged: "
            "copy it again"
        ) from error
    yield from entries


_READERS = {".safetensors": _safetensors, ".msgpack": _flax, ".bin": _torch}
