"""The two forms of `--mode=extract`'s output: extract_features.py's and safetensors."""

import contextlib
import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, TextIO

import numpy as np
import orjson

from bert_jax.errors import UserError
from bert_jax.extract.extractor import Extractor
from bert_jax.runtime import storage
from bert_jax.tasks import row_files

_DIGITS = len(str(2**63))
_ALIGNED = 8  # bytes


def is_binary(target: str) -> bool:
    """Whether the output is to be a safetensors file.

    Raises:
      UserError: its name ends in neither form's way.
    """
    place = storage.path(target)
    if place.suffix in ("", ".jsonl"):  # - has none
        return False
    if place.suffix != ".safetensors":
        raise UserError(
            f"--output={target}: name a FILE.jsonl or a FILE.safetensors, or - for "
            "JSON lines on standard output"
        )
    return True


@contextlib.contextmanager
def writing(target: str, extractor: Extractor) -> Iterator["JsonLines | Tensors"]:
    """Yields what writes the rows; the file is there when it is complete."""
    binary = is_binary(target)
    with row_files.output(target) as file:
        if not binary:
            yield JsonLines(file, extractor)
            return
        tensors = Tensors(file.buffer, extractor)
        yield tensors
        tensors.finish()


class JsonLines:
    """Lines as extract_features.py writes them, its misspelt `linex_index` too."""

    def __init__(self, file: TextIO, extractor: Extractor):
        self._file, self._count = file, 0
        self._size = extractor.shape[-1]
        layers = extractor.layers
        self._layers = layers if extractor.combine == "none" else (list(layers),)

    def write(self, answers: Iterable[Mapping[str, Any]]) -> None:
        """Writes rows, and passes them on at once."""
        self._file.writelines(map(self._line, answers))
        self._file.flush()

    def _line(self, answer: Mapping[str, Any]) -> str:
        """A row: `linex_index` and `features`, each with its `token` and, for each
        layer, `index` and `values` to six decimals."""
        vectors = np.round(answer["vectors"].astype(np.float64), 6)
        vectors = vectors.reshape(len(vectors), len(self._layers), self._size)
        features = [
            {
                "token": name,
                "layers": [
                    {"index": index, "values": values}
                    for index, values in zip(self._layers, layers, strict=True)
                ],
            }
            for name, layers in zip(answer["names"], vectors, strict=True)
        ]
        row = {"linex_index": self._count, "features": features}
        self._count += 1
        form = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
        return orjson.dumps(row, option=form).decode()


class Tensors:
    """A safetensors file whose vectors are written as they come.

    `vectors` [total, *shape] float32, `offsets` [rows + 1] int64: row i's vectors are
    those from offsets[i] to offsets[i + 1]; and `input_ids` [total] int32, if they are
    of pieces. The last two (4 bytes a vector) stay in memory until the end.
    """

    def __init__(self, file: BinaryIO, extractor: Extractor):
        """Leaves room for the header, whose numbers are known at the end."""
        self._file, self._shape = file, extractor.shape
        self._has_ids = extractor.vectors == "pieces"
        self._offsets, self._ids = array("q", [0]), array("i")
        self._metadata = {
            "layers": json.dumps(extractor.layers),
            "combine": extractor.combine,
            "vectors": extractor.vectors,
        }
        # The longest numbers that there could be: five for each tensor.
        room = len(self._header(0)) + 3 * 5 * _DIGITS
        self._room = -(-room // _ALIGNED) * _ALIGNED
        file.write(bytes(8 + self._room))

    def write(self, answers: Iterable[Mapping[str, Any]]) -> None:
        """Appends rows."""
        for answer in answers:
            vectors = answer["vectors"]
            self._file.write(np.ascontiguousarray(vectors, "<f4").data)
            self._offsets.append(self._offsets[-1] + len(vectors))
            if self._has_ids:
                self._ids.extend(answer["ids"])

    def finish(self) -> None:
        """Writes the other tensors and the header."""
        self._file.write(np.array(self._offsets, "<i8").data)
        if self._has_ids:
            self._file.write(np.array(self._ids, "<i4").data)
        header = self._header(self._offsets[-1]).ljust(self._room)
        self._file.seek(0)
        self._file.write(self._room.to_bytes(8, "little") + header)

    def _header(self, total: int) -> bytes:
        """The header of `total` vectors, before its padding."""
        rows = len(self._offsets)
        tensors = [("vectors", "F32", (total, *self._shape), 4)]
        tensors.append(("offsets", "I64", (rows,), 8))
        if self._has_ids:
            tensors.append(("input_ids", "I32", (total,), 4))
        header: dict[str, Any] = {"__metadata__": self._metadata}
        start = 0
        for name, dtype, shape, size in tensors:
            end = start + size * math.prod(shape)
            header[name] = {
                "dtype": dtype,
                "shape": shape,
                "data_offsets": (start, end),
            }
            start = end
        return json.dumps(header).encode()
