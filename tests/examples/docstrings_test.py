"""Documentation by package: as many of each, prose, none in two packages."""

import json

from bert_jax.data.sources import pydocs
from examples import docstrings

SHARED = "All packages say this about what they return to you."


def test_paragraphs_of_each_package(tmp_path, monkeypatch, capsys):
    lines = []
    for package in (*docstrings.PACKAGES, "rich"):
        texts = [f"The {package} way of doing it, number {n}." for n in "abcd"]
        listed = "x : int y : int z : int the_last_one : float"
        text = "\n\n".join([SHARED, "Too short.", listed, *texts, texts[0]])
        lines.append(json.dumps({"module": f"{package}/file.py", "text": text}) + "\n")
    path = tmp_path / "extracted.jsonl"
    path.write_text("".join(lines))
    monkeypatch.setattr(pydocs, "extract_docstrings", lambda folder: path)
    output = tmp_path / "rows.jsonl"
    docstrings.main([str(output), "--each=3"])
    assert f"{3 * len(docstrings.PACKAGES)} paragraphs" in capsys.readouterr().out
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    for package in docstrings.PACKAGES:
        own = [row["text"] for row in rows if row["label"] == package]
        assert len(own) == len(set(own)) == 3
        assert all(text.startswith(f"The {package} way") for text in own)
    labels = [row["label"] for row in rows]
    assert labels != sorted(labels)  # they are mixed
