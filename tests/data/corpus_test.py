"""Sources: documents, sentences, and one line for each thing that can be wrong."""

import json
import os
import shutil
import sys
from pathlib import Path

import pyarrow
import pytest
import tensorflow_datasets as tfds
from pyarrow import parquet

from bert_jax.config import files
from bert_jax.data import corpus
from tests.micro import error_line


def read(*sources):
    return list(corpus.read_documents(sources, Path("unused")))


def texts(*sources):
    return [document.text for document in read(*sources)]


def error(*sources):
    return error_line(read, *sources)


def test_sentences_source(tmp_path):
    (tmp_path / "b.txt").write_bytes(b"Five.\n")
    (tmp_path / "a.txt").write_bytes(
        b"\xef\xbb\xbfOne.\r\nTwo\xe2\x80\xa8two.\r\n\r\n\r\nThree.\n  \n"
    )
    source = f"sentences:{tmp_path}/*.txt"
    documents = read(source)
    assert [d.text for d in documents] == ["One.\nTwo\u2028two.", "Three.", "Five."]
    assert corpus.split_sentences(documents[0], "en") == ["One.", "Two\u2028two."]


def test_text_source_joins_wrapped_lines(tmp_path):
    text = "\ufeffIt was wrapped\r\nhere. Then\r\n  more.\r\n\r\nA new paragraph.\r\n"
    (tmp_path / "a.txt").write_bytes(text.encode())
    (document,) = read(f"text:{tmp_path}/a.txt")
    expected = ["It was wrapped here.", "Then more.", "A new paragraph."]
    assert corpus.split_sentences(document, "en") == expected


def test_paragraphs_and_lines(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("One. Two.\nThree\n\n\nFour.\n", "utf-8")
    first, second = read(f"paragraphs:{path}")
    assert corpus.split_sentences(first, "en") == ["One.", "Two.", "Three"]
    assert second.text == "Four."
    assert texts(f"lines:{path}") == ["One. Two.", "Three", "Four."]


def test_parquet(tmp_path):
    rows = [*(f"Text {n}. And\nmore.\n\nA paragraph." for n in range(700)), None, ""]
    table = pyarrow.table({"id": range(702), "text": rows})
    path = tmp_path / "part-0.parquet"
    parquet.write_table(table, path, row_group_size=100)
    found = read(f"parquet:{tmp_path}/*.parquet")
    assert [document.text for document in found] == rows[:700]
    expected = ["Text 3.", "And more.", "A paragraph."]
    assert corpus.split_sentences(found[3], "en") == expected
    path.write_bytes(path.read_bytes()[:-9])
    assert "cannot be read as parquet" in error(f"parquet:{path}")


def test_jsonl_source(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"text": "One."}, {"text": " \n", "id": 1}, {"text": "Two\u0085."}]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert texts(f"jsonl:{path}") == ["One.", "Two\u0085."]
    text = "A heading\r\n\r\nThe first line of\r\na paragraph. Its end."
    path.write_text(json.dumps({"text": text}))
    (document,) = read(f"jsonl:{path}")
    expected = ["A heading", "The first line of a paragraph.", "Its end."]
    assert corpus.split_sentences(document, "en") == expected


def test_sources_are_read_in_order(tmp_path):
    (tmp_path / "a").write_text("A.")
    (tmp_path / "b").write_text("B.")
    assert texts(f"text:{tmp_path}/b", f"text:{tmp_path}/a") == ["B.", "A."]


@pytest.mark.parametrize(
    ("source", "content", "expected"),
    [
        ("jsonl:{}", b"", "a.jsonl: the file is empty"),
        ("jsonl:{}", b'{"text": "a"}\n{"text": ', "a.jsonl:2: not JSON"),
        (
            "jsonl:{}",
            b'{"text": "a"}\n{"body": "b"}',
            "a.jsonl:2: no column 'text'; there are: body",
        ),
        (
            "jsonl:{}",
            b'{"text": ""}\n{"text": "\xe9"}',
            "a.jsonl:2: byte 10 of this line is not",
        ),
        ("text:{}/*.txt", b"", "no file matches"),
        ("wiki:en", b"", "unknown source 'wiki:en'"),
    ],
)
def test_source_that_is_wrong(tmp_path, source, content, expected):
    (tmp_path / "a.jsonl").write_bytes(content)
    assert expected in error(source.format(tmp_path / "a.jsonl"))


@pytest.mark.parametrize(
    ("name", "title", "text", "expected"),
    [
        (
            "wikipedia",
            "title",
            "It began long, long ago.\n\nHistory\nIt went on, and it is not over.",
            "It began long, long ago.\nIt went on, and it is not over.",
        ),
        (
            "wiki40b",
            "wikidata_id",
            "\n_START_ARTICLE_\nA Title\n_START_SECTION_\nHistory\n_START_PARAGRAPH_\n"
            "It began._NEWLINE_It went on.\n_START_SECTION_\nEnd\n_START_PARAGRAPH_\n"
            "Over.",
            "It began.\nIt went on.\nOver.",
        ),
    ],
)
def test_tfds_by_name_and_by_folder(
    tmp_path, monkeypatch, make_builder, name, title, text, expected
):
    features = {"text": tfds.features.Text(), title: tfds.features.Text()}
    rows = [{"text": text, title: "Q1"}, {"text": "", title: "Q2"}]
    home = make_builder(tmp_path, name, rows, features)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    for source in (f"{name}:1.0.0", str(home)):
        (document,) = read(f"tfds:{source}")
        assert document.text == expected
        assert corpus.split_sentences(document, "en") == expected.split("\n")


def test_missing_extra_is_named_before_the_text_is_read(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    line = error_line(corpus.text_identity, ("text:nowhere",))
    assert line == "pre-training needs sentencex: pip install '.[pretrain]'"


def test_identity_follows_the_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("One.")
    sources = (f"text:{path}",)
    before = corpus.text_identity(sources)
    assert corpus.text_identity(sources) == before
    time = path.stat().st_mtime_ns
    path.write_text("Two.")  # as long
    os.utime(path, ns=(0, time + 1))  # however coarse the file system's clock is
    assert corpus.text_identity(sources) != before
    copy = tmp_path / "elsewhere" / "b.txt"
    copy.parent.mkdir()
    path.write_text("One.")
    os.utime(path, ns=(0, time))
    shutil.copy2(path, copy)
    assert corpus.text_identity((f"text:{copy}",)) == before
    assert corpus.text_identity((f"jsonl:{copy}",)) != before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("'A text.'", "yields 'A text.'; yield Document(text, form), with a form of s"),
        ("corpus.Document('A text.', 'paragraph')", "form='paragraph'"),
    ],
)
def test_reader_that_yields_no_document_is_one_line(tmp_path, given, said):
    (tmp_path / "a.srt").write_text("A text.")
    (tmp_path / "own.py").write_text(
        "from bert_jax.data import corpus\n"
        f"corpus.FILE_KINDS['srt'] = lambda path: [{given}]\n"
        "extends = 'tiny'\n"
        "def get_config(config):\n"
        "    return config\n"
    )
    files.load_file(str(tmp_path / "own.py"))
    line = error_line(texts, f"srt:{tmp_path}/a.srt")
    assert "a.srt: its reader yields " in line and said in line


def test_identity_follows_a_reader_of_a_config_file(tmp_path):
    path, text = tmp_path / "own.py", tmp_path / "a.srt"
    text.write_text("1\n<i>One.</i>\n")
    code = (
        "import re\n"
        "from bert_jax.data import corpus\n"
        "MARKUP = {!r}\n"
        "def read(path):\n"
        "    yield corpus.Document(re.sub(MARKUP, '', open(path).read()), 'lines')\n"
        "corpus.FILE_KINDS['srt'] = read\n"
        "extends = 'tiny'\n"
        "def get_config(config):\n"
        "    return config\n"
    )
    found = []
    for markup, more in (("<i>", ""), ("<.?i>", ""), ("<.?i>", "    # a comment\n")):
        path.write_text(code.format(markup) + more)
        files.load_file(str(path))
        found.append(corpus.text_identity((f"srt:{text}",)))
    assert found[0] != found[1] == found[2]
    assert texts(f"srt:{text}") == ["1\nOne.\n"]
