"""Tables of TFDS."""

import json

import numpy as np
import tensorflow_datasets as tfds
from tabled import error, rows

from bert_jax.data.columns import Wanted
from bert_jax.data.tables import read_table


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
