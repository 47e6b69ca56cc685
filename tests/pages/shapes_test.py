"""Shapes in annotations are checked: without that, no test would notice a wrong one."""

import jax.numpy as jnp
import jaxtyping
import pytest

from bert_jax.data import rows
from bert_jax.models import heads


def test_wrong_shape_is_an_error():
    hidden, embedding = jnp.zeros((2, 3)), jnp.zeros((5, 4))
    with pytest.raises(jaxtyping.TypeCheckError, match="hidden"):
        heads.vocabulary_logits(hidden, embedding, None, training=False)


def test_functions_without_shapes_are_as_they_are():
    assert not hasattr(rows.Rows.digest, "__wrapped__")
    assert hasattr(heads.vocabulary_logits, "__wrapped__")
