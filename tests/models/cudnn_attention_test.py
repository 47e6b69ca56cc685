"""The arguments of cuDNN's attention. Nothing here runs it.

In its place JAX's own attention takes the same arguments, and the program for CUDA is
lowered, not compiled.
"""

import json
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.cudnn import fused_attention_stablehlo as cudnn
from micro import bert_config

from bert_jax.errors import UserError
from bert_jax.models.attention import AttentionMask, einsum_attention
from bert_jax.models.kernels import requirements
from bert_jax.models.kernels.cudnn import cudnn_attention
from bert_jax.registry import ATTENTIONS
from tests.close import assert_close


def results(attend, given, gradient):
    output, pull = jax.vjp(attend, *given)
    return output, *pull(gradient)


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_cudnn_arguments_mean_what_einsum_computes(monkeypatch, causal):
    """Scale, lengths, causality and layout, at padded positions too."""
    taken = []
    own = jax.nn.dot_product_attention

    def by_xla(*given, implementation, **named):
        lengths = named["key_value_seq_lengths"].tolist()
        taken.append((implementation, given[0].shape[1], lengths))
        return own(*given, implementation="xla", **named)

    monkeypatch.setattr(jax.nn, "dot_product_attention", by_xla)
    rng = np.random.default_rng(0)
    *given, gradient = (
        jnp.asarray(rng.normal(size=(4, 21, 3, 16)), jnp.float32) for _ in range(4)
    )
    ends = np.array([[21], [1], [13], [0]])
    seen = AttentionMask.from_input_mask(jnp.asarray(np.arange(21) < ends, jnp.int32))
    # No loss depends on a row of padding alone.
    gradient = gradient.at[3].set(0)
    found = results(
        lambda *three: cudnn_attention(*three, seen.ids, causal), given, gradient
    )
    by_einsum = partial(
        results, lambda *three: einsum_attention(*three, seen, 0.0, None, causal)[0]
    )
    expected = jax.jit(by_einsum)(given, gradient)
    assert taken == [("cudnn", 22, [21, 1, 13, 1])]
    for one, other in zip(found, expected, strict=True):
        assert_close(one[:3], other[:3])
        assert np.isfinite(one[3]).all()


@pytest.mark.parametrize(
    ("causal", "mask"), [(False, "PADDING"), (True, "PADDING_CAUSAL")]
)
def test_program_for_cuda_calls_cudnn(monkeypatch, causal, mask):
    # JAX queries the library's version when it traces.
    monkeypatch.setattr(cudnn, "check_cudnn_version", lambda: 91000)
    seen = AttentionMask.from_input_mask(jnp.ones((2, 24), jnp.int32))

    def loss(query, keys, value):
        mixed, probs = ATTENTIONS["cudnn"](query, keys, value, seen, 0.1, None, causal)
        assert probs is None
        return jnp.sum(mixed.astype(jnp.float32))

    shape = jax.ShapeDtypeStruct((2, 24, 3, 40), jnp.bfloat16)
    traced = jax.jit(jax.grad(loss, (0, 1, 2))).trace(shape, shape, shape)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    calls = re.findall(r"@__cudnn\$(\w+)\(.*?backend_config = \"(.*?)\", operand", text)
    assert [name for name, _ in calls] == ["fmhaSoftmax", "fmhaSoftmaxBackward"]
    for _, settings in calls:
        own = json.loads(settings.replace(r"\22", '"'))["cudnn_fmha_backend_config"]
        assert own["mask_type"] == mask and own["dropout_rate"] == 0
        assert own["fmha_scale"] == pytest.approx(40**-0.5)
        assert own["intermediate_tensor_shape"]["dimensions"] == ["2", "3", "24", "24"]
    assert "24x24" not in text  # neither a mask nor scores


def test_dropout_is_never_left_out_in_silence():
    x, seen = (
        jnp.ones((1, 8, 1, 16)),
        AttentionMask.from_input_mask(jnp.ones((1, 8), jnp.int32)),
    )
    with pytest.raises(ValueError, match=r"cudnn: has no dropout here; rate=0\.1"):
        ATTENTIONS["cudnn"](x, x, x, seen, 0.1, jax.random.key(0))


def test_heads_that_it_cannot_take_are_refused():
    fields = {"vocab_size": 50, "num_attention_heads": 2, "attention": "cudnn"}
    with pytest.raises(UserError, match="of 132, but it computes those of 8, 16, 24"):
        bert_config(**fields, hidden_size=264)
    assert bert_config(**fields, hidden_size=96).head_dim == 48


CHECK = partial(requirements.check_attention, trains=True, packed=False)


def fields(**changes):
    return bert_config(
        **{"vocab_size": 50, "hidden_size": 32, "num_attention_heads": 2},
        **{"dtype": "bfloat16", "attention_probs_dropout_prob": 0.0, **changes},
    )


@pytest.mark.parametrize(
    ("changes", "platform", "named", "message"),
    [
        ({}, "cpu", {}, "cudnn: needs a GPU, and this is a cpu; choose einsum"),
        (
            *({}, "gpu", {"packed": True}),
            "cudnn: cannot keep the sequences of packed rows apart; choose fused",
        ),
        (
            {
                **{"attention": "fused", "attention_probs_dropout_prob": 0.1},
                "max_position_embeddings": 2048,
            },
            *("tpu", {}),
            "fused: has dropout on a TPU for rows of up to 1024 tokens, and config."
            "model.max_position_embeddings=2048; set that to 1024, config.model."
            "attention_probs_dropout_prob to 0, or choose einsum",
        ),
    ],
)
def test_cudnn_is_refused_where_devices_lack_it(changes, platform, named, message):
    with pytest.raises(UserError) as raised:
        CHECK(fields(**{"attention": "cudnn", **changes}), platform, **named)
    assert str(raised.value) == f"config.model.attention={message}"
