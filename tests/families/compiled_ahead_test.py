"""Steps of RoBERTa and ModernBERT, made by the TPU's and the GPU's own compilers."""

import jax
import pytest
from ahead import (
    BASE,
    CUDNN,
    GPU,
    PACKED,
    SLICE,
    SPLASH,
    TRITON,
    WHOLE_ROW,
    built,
    wide_products,
    without_a_cache,  # noqa: F401  (a fixture of every test)
)

from bert_jax.errors import UserError
from bert_jax.training.sharding import bytes_per_device

KERNELS = (TRITON, SPLASH, *WHOLE_ROW, *CUDNN)
ROBERTA, MODERN = "configs/roberta.py", "configs/modernbert.py"
FUSED = "model.attention=fused"
# A global layer, and one whose window is an eighth of the row.
LAYERS = ("model.num_hidden_layers=2", "model.local_attention=512")
LONG = ("corpus.max_seq_length=2048", "model.max_position_embeddings=2048")
SOME = ("corpus.packing=False", *LAYERS, *LONG, "train.batch_size=16")


def test_step_has_the_kernels_of_whole_rows():
    fields = (*PACKED, *LAYERS, FUSED, "mesh.tensor=2")
    program, done = built(SLICE, *BASE, *fields, spec=MODERN)
    text = done.as_text()
    assert {name for name in KERNELS if name in text} == {*WHOLE_ROW}
    assert not list(wide_products(done))
    state = bytes_per_device(program.donated)
    assert state <= done.memory_analysis().alias_size_in_bytes  # updated in place


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
        (GPU, MODERN, ("model.attention=cudnn",), "computes no windows of a Modern"),
    ],
)
def test_attention_that_cannot_be_computed_is_refused(device, spec, fields, message):
    with pytest.raises(UserError, match=message):
        built(device, *BASE, *fields, spec=spec)
