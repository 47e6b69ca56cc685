"""Steps of RoBERTa and ModernBERT, made by the TPU's own compiler."""

import jax
import pytest

from bert_jax.errors import UserError
from tests.ahead import (
    BASE,
    SLICE,
    SPLASH,
    built,
    without_a_cache,  # noqa: F401  (a fixture of every test)
)

ROBERTA, MODERN = "configs/roberta.py", "configs/modernbert.py"
FUSED = "model.attention=fused"
# A global layer, and one whose window is an eighth of the row.
LAYERS = ("model.num_hidden_layers=2", "model.local_attention=512")
LONG = ("corpus.max_seq_length=2048", "model.max_position_embeddings=2048")
SOME = ("corpus.packing=False", *LAYERS, *LONG, "train.batch_size=16")


def test_kernel_of_a_tpu_goes_through_a_window_alone():
    program, done = built(SLICE, *BASE, *SOME, FUSED, spec=MODERN)
    assert SPLASH in done.as_text()
    steps = {grid[-1] for grid in _grids(program.traced.jaxpr.jaxpr)}
    assert max(steps) == 4  # blocks of 512
    assert min(steps) == 3  # that of the query, and its neighbours


def _grids(jaxpr):
    for equation in jaxpr.eqns:
        if equation.primitive.name == "pallas_call":
            yield equation.params["grid_mapping"].grid
        for inner in jax.core.jaxprs_in_params(equation.params):
            yield from _grids(inner)


@pytest.mark.parametrize(
    ("device", "spec", "fields", "message"),
    [
        (
            *(SLICE, ROBERTA, (FUSED, "model.max_position_embeddings=2048")),
            "fused: has dropout on a TPU for rows of",
        ),
    ],
)
def test_attention_that_cannot_be_computed_is_refused(device, spec, fields, message):
    with pytest.raises(UserError, match=message):
        built(device, *BASE, *fields, spec=spec)
