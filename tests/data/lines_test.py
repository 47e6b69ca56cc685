"""Data come from files, whose names are text."""

import bz2
import gzip
import lzma
import tracemalloc

import pytest

from bert_jax.data import lines
from bert_jax.errors import UserError


@pytest.mark.parametrize("ending", ["", *lines.COMPRESSED])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        (b"a\rb\nc\n", ["a\rb", "c"]),  # inside of a text
        (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
        (b"a\r", ["a"]),
        (b"a\r\n", ["a"]),
        (b"\r", [""]),
    ],
)
def test_line_ends(tmp_path, ending, content, expected):
    path = tmp_path / f"table.tsv{ending}"
    path.write_bytes(compressed(content, ending))
    found = list(lines.read_lines(path))
    assert found == [*enumerate(expected, 1)]


def compressed(content, ending):
    if ending == ".zst":
        pyarrow = pytest.importorskip("pyarrow", reason="needs the clean extra")
        return pyarrow.compress(content, codec="zstd", asbytes=True)
    module = {".gz": gzip, ".bz2": bz2, ".xz": lzma}.get(ending)
    return module.compress(content) if module else content


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_giant_line_is_refused_before_it_fills_the_memory(tmp_path, ending):
    path = tmp_path / f"giant.txt{ending}"
    with gzip.open(path, "wb", 1) if ending else path.open("wb") as file:
        file.write(b"short\n")
        for _ in range(9):
            file.write(b"word" * (lines.LONGEST // 32))
    tracemalloc.start()
    with pytest.raises(UserError, match=r"giant.txt.*:2: a line of more than 67,108,8"):
        list(lines.read_lines(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * lines.LONGEST
