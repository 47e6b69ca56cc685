"""Tables of TFDS."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds
from array_record.python import array_record_module as array_record
from tabled import error, rows

from bert_jax.data.columns import Wanted
from bert_jax.data.tables import read_table


@pytest.mark.parametrize("damage", ["not UTF-8", "another record", "overwritten"])
def test_a_row_of_tfds_that_cannot_be_read(tmp_path, make_builder, monkeypatch, damage):
    given = [{"text": text} for text in ("one", "two", "three" * 9)]
    features = {"text": tfds.features.Text()}
    folder = make_builder(tmp_path, "mine", given, features)
    if damage == "not UTF-8":
        found = tfds.builder_from_directory(folder)
        rows = [{"text": b"one"}, {"text": b"t\xff"}]
        monkeypatch.setattr(type(found), "as_data_source", lambda *_: rows)
    elif damage == "another record":
        (shard,) = Path(folder).glob("*array_record*")
        writer = array_record.ArrayRecordWriter(str(shard), "group_size:1")
        for content in (b"\n\x00", b"no example", b"nor this"):
            writer.write(content)
        writer.close()
    else:
        (shard,) = Path(folder).glob("*array_record*")
        content = shard.read_bytes()
        start = content.index(b"one")
        shard.write_bytes(content[:start] + b"\xff" * 40 + content[start + 40 :])
    message = error(f"tfds:{folder}:train")
    assert "no such split" not in message and "\n" not in message
    assert "record" in message and str(folder) in message


def test_tfds(tmp_path, make_builder):
    features = {
        "text": tfds.features.Text(),
        "label": tfds.features.ClassLabel(names=["neg", "pos"]),
        "endings": tfds.features.Sequence(tfds.features.Text()),
        "number": np.int32,
    }
    given = [
        {"text": "é", "label": 1, "endings": ["a", "ü"], "number": -1},
        {"text": "", "label": -1, "endings": [], "number": 2},
    ]
    source = f"tfds:{make_builder(tmp_path, 'mine', given, features)}:train"
    first, second = read_table(source, Wanted(("text", "label")))
    assert first == (f"{source}:1", {**given[0], "label": "pos"})
    assert second == (f"{source}:2", {**given[1], "label": None})
    json.dumps([first, second])  # nothing of numpy is left
    assert rows(source + "[1:]") == [second.fields]
    assert "no such split; there are: train" in error(source + "ing")
    assert "cannot be read" in error(source + "[nine:]")
    assert "tfds:NAME:SPLIT" in error("tfds:mine")
    assert "no column 'txt'" in error(source, ["txt"])
