"""Data come from files, whose names are text."""

import bz2
import gzip
import lzma

import pytest

from bert_jax.data import lines


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
def test_read_lines_takes_any_line_end(tmp_path, ending, content, expected):
    path = tmp_path / f"table.tsv{ending}"
    path.write_bytes(compressed(content, ending))
    found = list(lines.read_lines(path))
    assert found == [*enumerate(expected, 1)]


def compressed(content, ending):
    if ending == ".zst":
        import pyarrow

        return pyarrow.compress(content, codec="zstd", asbytes=True)
    module = {".gz": gzip, ".bz2": bz2, ".xz": lzma}.get(ending)
    return module.compress(content) if module else content
