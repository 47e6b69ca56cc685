"""Search by vectors: the nearest texts, their locations, the map, wrong options."""

import io
import sys

import numpy as np
import pytest

from bert_jax.commands import search
from tests.micro import write_rows

WRONG = {
    "--texts=a.txt": "--model",
    "--model=mini --texts=nowhere.txt --query=a": "nowhere.txt: cannot be read",
    "--model=mini --texts=rows.jsonl --query=a": "rows.jsonl:1: no column 'text'",
    "--model=mini --texts=. --query=a": "--texts=.: has no text",
    "--model=mini --texts=a.txt --top=0": "must be from 1 to",
    "--model=mini --texts=a.txt --map=map.doc": "must end in .png",
}


@pytest.mark.parametrize(("options", "words"), WRONG.items())
def test_option_that_cannot_be(options, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "rows.jsonl", [{"title": "a"}])
    assert search.main(options.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and words in line


def test_texts_and_their_locations(tmp_path):
    (tmp_path / "lines.txt").write_text("one\n\n two \n")
    found = [*search.read_texts(str(tmp_path / "lines.txt"))]
    assert found == [
        (f"{tmp_path}/lines.txt:1", "one"),
        (f"{tmp_path}/lines.txt:3", " two "),
    ]
    rows = write_rows(tmp_path / "rows.jsonl", [{"text": "a"}, {"text": ""}])
    assert [*search.read_texts(rows)] == [(f"{rows}:1", "a")]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "page.md").write_text("# A\n\n\nb c\n  d\n")
    (tmp_path / "in" / "code.py").write_text("x = 1\n")
    page = f"{tmp_path}/in/page.md"
    expected = [(f"{page}:1", "# A"), (f"{page}:4", "b c d")]
    assert [*search.read_texts(str(tmp_path / "in"))] == expected
    assert [*search.read_texts(page)] == expected


def test_nearest_is_that_of_a_loop():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(20, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    query = vectors[7]
    by_hand = sorted(
        ((sum(map(float, row * query)), n) for n, row in enumerate(vectors)),
        reverse=True,
    )
    found = search.nearest(vectors, query, 5)
    assert [index for _, index in found] == [index for _, index in by_hand[:5]]
    assert found[0][1] == 7 and found[0][0] == pytest.approx(1.0)
    assert len(search.nearest(vectors, query, 50)) == 20


def test_projection_keeps_what_varies_most():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(30, 5)) * [9.0, 0.1, 3.0, 0.1, 0.1]
    found = search.project(points)
    expected = np.linalg.svd(points - points.mean(0), compute_uv=False)[:2]
    np.testing.assert_allclose(np.linalg.norm(found, axis=0), expected)


@pytest.mark.slow
def test_queries_of_standard_input(tmp_path, monkeypatch, capsys):
    texts = ("the quick fox", "a lazy dog", "seven cats watch")
    (tmp_path / "a.txt").write_text("".join(f"{text}\n" for text in texts))
    asked = io.TextIOWrapper(io.BytesIO(b"a lazy dog\n\nthe quick fox\n"))
    monkeypatch.setattr(sys, "stdin", asked)
    given = ["--model=mini", f"--texts={tmp_path / 'a.txt'}", "--top=2"]
    assert search.main(given) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[::3] == ["a lazy dog", "the quick fox"] and len(lines) == 6
    assert lines[1] == f"1.000  {tmp_path / 'a.txt'}:2: a lazy dog"
    assert lines[4] == f"1.000  {tmp_path / 'a.txt'}:1: the quick fox"
    picture = tmp_path / "map.png"
    assert search.main([*given, f"--map={picture}"]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == ""
