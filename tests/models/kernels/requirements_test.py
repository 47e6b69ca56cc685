"""The settings that a kernel does not take."""

import pytest

from bert_jax.errors import UserError
from bert_jax.models.kernels.requirements import check_attention
from tests.micro import bert_config

SIZES = {"vocab_size": 50, "num_attention_heads": 2}
LONG = {"max_position_embeddings": 2048, "attention_probs_dropout_prob": 0.1}


@pytest.mark.parametrize(
    ("fields", "platform", "message"),
    [
        (
            *({"attention": "fused"}, "cpu"),
            "attention=fused: needs a GPU or a TPU, and this is a cpu; choose einsum",
        ),
        (
            *({"epilogue": "fused"}, "tpu"),
            "epilogue=fused: needs a GPU, and this is a tpu; choose xla",
        ),
        (
            *({"attention": "fused", **LONG}, "tpu"),
            "attention=fused: has dropout on a TPU for rows of up to 1024 tokens, and "
            "config.model.max_position_embeddings=2048; set that to 1024, config.model."
            "attention_probs_dropout_prob to 0, or choose einsum",
        ),
    ],
)
def test_devices_without_the_kernel_are_refused(fields, platform, message):
    config = bert_config(**SIZES, hidden_size=32, **fields)
    with pytest.raises(UserError) as raised:
        check_attention(config, platform, trains=True)
    assert str(raised.value) == f"config.model.{message}"


@pytest.mark.parametrize(
    ("fields", "platform", "trains"),
    [
        ({"attention": "fused", **LONG}, "gpu", True),
        ({"attention": "fused", **LONG}, "tpu", False),
        (LONG, "tpu", True),
    ],
)
def test_what_a_kernel_computes_is_not_refused(fields, platform, trains):
    config = bert_config(**SIZES, hidden_size=32, **fields)
    check_attention(config, platform, trains)


def test_heads_that_the_kernel_does_not_compute_are_refused():
    with pytest.raises(UserError, match="of 48, but it computes those of 16, 32, 64"):
        bert_config(**SIZES, attention="fused", hidden_size=96)
