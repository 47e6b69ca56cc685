"""The tensors of a Hugging Face folder: safetensors, or Flax's msgpack."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from bert_jax.convert import layout
from bert_jax.convert.reading import FLAX, INDEX, PICKLE, WEIGHTS
from bert_jax.errors import UserError
from bert_jax.runtime import untrusted

_FLOATS = {"F64", "F32", "F16", "BF16"}
_FLAX_NAMES = {"kernel": "weight", "scale": "weight", "embedding": "weight"}
# What wrappers put before every name: DataParallel, torch.compile, Lightning and
# modules of one's own, Flax's variables.
_WRAPPERS = ("module.", "_orig_mod.", "model.", "params.")
_TRUNK = ("embeddings.", "encoder.", "pooler.")
# `weights_only` executes nothing.
_CONVERT = (
    'python -c "import torch, safetensors.torch as s; s.save_file({k: v.clone() '
    f"for k, v in torch.load('{PICKLE}', weights_only=True).items()}}, "
    f"'{WEIGHTS}', {{'format': 'pt'}})\""
)


class Tensors:
    """The tensors of one or more files, under current names."""

    def __init__(self, folder: Path, buffer: re.Pattern[str] | None = None):
        """Reads the names and shapes.

        Args:
          buffer: names of what is saved but is no parameter.
        """
        self._saved: dict[str, tuple[Path, str]] = {}
        self._arrays: dict[str, np.ndarray] = {}  # of Flax's file, which is read whole
        self.shapes: dict[str, tuple[int, ...]] = {}
        paths = _weight_files(folder)
        self.where = str(paths[0] if len(paths) == 1 else folder / WEIGHTS)
        headers = []
        for path in paths:
            if path.name == FLAX:
                self._arrays = _flax_arrays(path)
                for name, array in self._arrays.items():
                    floats = array.dtype.kind in "fV"  # V: bfloat16
                    kind = "F32" if floats else str(array.dtype)
                    headers.append((path, name, array.shape, kind))
            else:
                headers += [(path, *header) for header in _header(path)]
        wrapper = _wrapper([name for _, name, *_ in headers])
        for path, name, shape, kind in headers:
            ours = _current(name.removeprefix(wrapper))
            if buffer is None or not buffer.fullmatch(ours):
                self._add(ours, path, name, shape, kind)

    def _add(
        self, ours: str, path: Path, name: str, shape: tuple[int, ...], kind: str
    ) -> None:
        if ours in self.shapes:
            raise UserError(
                f"{path}: has {untrusted.shown(name)} twice, under two names"
            )
        if kind not in _FLOATS:
            raise UserError(
                f"{path}: {untrusted.shown(name)} holds {kind}, not floating-point "
                "numbers"
            )
        self._saved[ours] = (path, name)
        self.shapes[ours] = shape

    def read(self, name: str) -> layout.Array:
        path, saved_name = self._saved[name]
        if saved_name in self._arrays:
            return self._arrays[saved_name].astype(np.float32, copy=False)
        # Opens the file for each tensor, so that the rest does not stay in memory.
        try:
            with safe_open(path, "np") as file, np.errstate(over="ignore"):
                return file.get_tensor(saved_name).astype(np.float32, copy=False)
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path}: {_one_line(error)}") from error

    def replace(self, name: str, other: str) -> None:
        """Renames `other` to `name`, if it exists."""
        if other in self.shapes:
            self.shapes[name] = self.shapes.pop(other)
            self._saved[name] = self._saved.pop(other)


def _wrapper(names: Sequence[str]) -> str:
    """The prefix of all names that a wrapper of the model has put there."""
    prefix = ""
    while names and (
        more := [w for w in _WRAPPERS if all(n.startswith(prefix + w) for n in names)]
    ):
        prefix += more[0]
    return prefix


def _current(name: str) -> str:
    """A tensor's name as `transformers` has it today, in a model with heads."""
    ours = f"bert.{name}" if name.startswith(_TRUNK) else name
    for old, new in (("LayerNorm.gamma", "weight"), ("LayerNorm.beta", "bias")):
        if ours.endswith(old):
            ours = ours.rpartition(".")[0] + f".{new}"
    return ours


def _flax_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a flax_model.msgpack, named and laid out as in PyTorch."""
    from flax import serialization, traverse_util

    try:
        tree = traverse_util.flatten_dict(
            serialization.msgpack_restore(path.read_bytes())
        )
        return {
            ".".join((*inner, _FLAX_NAMES.get(last, last))): np.asarray(
                array.T if last == "kernel" else array
            )
            for (*inner, last), array in tree.items()
        }
    except (ValueError, TypeError, AttributeError, AssertionError) as error:
        raise UserError(
            f"{path}: {_one_line(error)}; not a file of Flax's weights, or damaged: "
            "copy it again"
        ) from error


def _weight_files(folder: Path) -> list[Path]:
    whole = untrusted.inside(folder, WEIGHTS)
    if whole is not None:
        return [whole]
    has_index = untrusted.inside(folder, INDEX) is not None
    if not has_index and (flax := untrusted.inside(folder, FLAX)):
        return [flax]
    if not has_index:
        if (folder / PICKLE).exists() or (folder / f"{PICKLE}.index.json").exists():
            raise UserError(
                f"{folder}: {PICKLE} is a pickle, which can execute code, so it is not "
                f"read; convert it, in that folder: {_CONVERT}"
            )
        raise UserError(f"{folder}: has no {WEIGHTS}")
    shards = untrusted.read_json(folder, INDEX).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise UserError(f"{folder / INDEX}: has no weight_map")
    paths = []
    for name in sorted({str(shard) for shard in shards.values()}):
        try:
            path = untrusted.inside(folder, name)
        except (OSError, ValueError):  # no name of a file: too long, or with a NUL
            path = None
        if path is None:
            raise UserError(
                f"{folder / INDEX}: names {untrusted.shown(name)}, which does not "
                "exist; download the folder again"
            )
        paths.append(path)
    return paths


def _header(path: Path) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Name, shape and type of each tensor."""
    try:
        with safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118 (not a dict)
                piece = file.get_slice(name)
                yield name, tuple(piece.get_shape()), str(piece.get_dtype())
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {_one_line(error)}") from error
    except SafetensorError as error:
        raise UserError(
            f"{path}: {_one_line(error)}; damaged: export or copy it again; if it is "
            f"in the Hub's cache, delete {path.resolve()}, and name hf:OWNER/NAME again"
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
