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


class Stub:
    """A model of vectors, and one of pairs, by the numbers that texts are."""

    labels = ("no", "yes")

    def sentences(self, texts):
        turns = np.deg2rad([float(text) for text in texts])
        return np.stack([np.cos(turns), np.sin(turns)], axis=1)

    def predict(self, rows):
        return [{"scores": {"no": 0.0, "yes": int(x["text_b"]) / 100}} for x in rows]


def test_reader_orders_the_nearest_texts(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.txt").write_text("10\n20\n30\n40\n50\n")
    monkeypatch.setattr(search.pretrained, "load", lambda name: Stub())
    given = ["--model=m", f"--texts={tmp_path / 'a.txt'}", "--query=12", "--top=2"]
    assert search.main(given) == 0
    found = [x.rpartition(": ")[2] for x in capsys.readouterr().out.splitlines()]
    assert found == ["10", "20"]
    assert search.main([*given, "--reader=r", "--read=3"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"0.300  {tmp_path / 'a.txt'}:3: 30"
    assert second == f"0.200  {tmp_path / 'a.txt'}:2: 20"


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
