"""Texts and labels as scikit-learn's users give them."""

import numpy as np

from bert_jax.estimator import texts
from tests.micro import error_line


def test_shapes_of_labels_and_texts():
    column = np.array([["a"], ["b"]])
    np.testing.assert_array_equal(texts.labels_of(column), ["a", "b"])
    pairs = [("a", "b"), ("c", "d")]
    assert texts.text_rows(pairs) == texts.text_rows(np.array(pairs))
    assert texts.text_rows(pairs)[1] == {"text": "c", "text_b": "d"}
    assert "X has pairs" in error_line(texts.single_texts, pairs, error=ValueError)
