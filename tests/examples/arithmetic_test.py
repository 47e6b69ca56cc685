"""The arithmetic of examples/, against NumPy's by hand and other libraries'."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import configuration
from bert_jax.convert import layout
from bert_jax.data import packing
from bert_jax.models.encoder import Bert, Packed
from bert_jax.models.stacking import stack_layers
from bert_jax.training import optimizer
from examples import layerwise, pre_norm, rotary
from tests.close import assert_close
from tests.micro import bert_config, initial_params

SMALL = dict(
    **dict(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4),
    **dict(intermediate_size=48, max_position_embeddings=40),
)


@pytest.fixture(autouse=True)
def registered():
    """The entries that the files add on import are gone after the first test."""
    pre_norm.LAYERS["pre_norm"] = pre_norm.PreNorm
    rotary.POSITIONS["rotary"] = rotary.Positions(rotate=rotary.turned)


def encode(config, params, *given):
    return jax.jit(Bert(config).apply)({"params": params}, *given)


def spread(model, seed=0):
    """Parameters that tell layers and positions apart."""
    ids = jnp.zeros((1, 4), jnp.int32)
    params = initial_params(lambda key: model.init(key, ids, ids, ids)["params"], seed)
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: x + 0.1 * rng.normal(size=x.shape), params)


class PreNormLayout(layout.Layout):
    """RobertaPreLayerNorm's names."""

    renames = (
        (r"attention\.output\.LayerNorm", "attention.LayerNorm"),
        (r"(\d)\.output\.LayerNorm", r"\1.intermediate.LayerNorm"),
        (r"encoder\.final_LayerNorm", "LayerNorm"),
    )


def test_pre_norm_is_robertas_of_transformers():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = bert_config(**SMALL, layer="pre_norm")
    params = spread(Bert(config))
    theirs = transformers.RobertaPreLayerNormModel(
        transformers.RobertaPreLayerNormConfig(
            **{name: getattr(config, name) for name in SMALL},
            **dict(type_vocab_size=2, pad_token_id=0, attn_implementation="eager"),
            layer_norm_eps=config.layer_norm_eps,
        )
    ).eval()
    tensors = PreNormLayout().tensors(
        layout.Weights(config, {"bert": params}, "BertModel")
    )
    assert not theirs.state_dict().keys() - tensors.keys() - {"embeddings.position_ids"}
    theirs.load_state_dict(
        {k: torch.tensor(np.array(v, np.float32)) for k, v in tensors.items()},
        strict=False,
    )
    ids = np.random.default_rng(1).integers(5, 50, (3, 12))
    mask = (np.arange(12) < np.array([[12], [7], [9]])).astype(np.int32)
    segments = (np.arange(12) > 5).astype(np.int32) * mask
    ours = encode(config, params, ids, mask, segments)
    with torch.no_grad():
        positions = torch.arange(12)[None]  # Roberta's own begin after the padding's
        wanted = theirs(
            *map(torch.tensor, (ids, mask, segments)),
            position_ids=positions,
            output_hidden_states=True,
        )
    real = mask[..., None] == 1
    for one, other in (
        (ours.sequence, wanted.last_hidden_state),
        (ours.hidden_states[1], wanted.hidden_states[1]),
    ):
        assert_close(one * real, other.numpy() * real)
    assert_close(ours.pooled, wanted.pooler_output.numpy())
    np.testing.assert_array_equal(ours.hidden_states[-1], ours.sequence)
    for more in ({"scan_layers": True}, {"scan_layers": True, "remat": "full"}):
        stacked = stack_layers({"bert": params}, 2)["bert"]
        other = encode(
            *(dataclasses.replace(config, **more), stacked, ids, mask, segments)
        )
        assert_close(other.sequence, ours.sequence)
        assert_close(other.hidden_states[-1], ours.sequence)


def test_rotary_positions_are_those_of_transformers():
    torch = pytest.importorskip("torch")
    neox = pytest.importorskip("transformers.models.gpt_neox.modeling_gpt_neox")
    config = bert_config(**SMALL)
    query, keys = np.random.default_rng(0).normal(size=(2, 1, 6, 4, 8))
    angles = np.arange(6)[:, None] * 10_000.0 ** (-np.arange(0, 8, 2) / 8)
    angles = torch.tensor(np.concatenate([angles, angles], axis=-1))[None]
    heads_first = [torch.tensor(x).transpose(1, 2) for x in (query, keys)]
    wanted = neox.apply_rotary_pos_emb(*heads_first, angles.cos(), angles.sin())
    given = (*map(jnp.float32, (query, keys)), jnp.arange(6)[None])
    for one, other in zip(rotary.turned(config, *given), wanted, strict=True):
        assert_close(one, other.transpose(1, 2).numpy())


def by_place(config, queries, keys, ids):
    """Unlike rotary ones, these tell a sequence's own positions from the row's."""
    return queries * (1 + ids[:, :, None, None]), keys


@pytest.mark.parametrize(("name", "shift"), [("rotary", 9), ("own", 0)])
def test_rows_that_are_packed_are_as_alone(name, shift):
    rotary.POSITIONS["own"] = rotary.Positions(rotate=by_place)
    config = bert_config(**SMALL, positions=name)
    params = spread(Bert(config))
    assert "position_embeddings" not in params["embeddings"]
    rng = np.random.default_rng(0)
    lengths = np.array([9, 14, 5, 11])
    mask = (np.arange(16) < lengths[:, None]).astype(np.int32)
    ids = rng.integers(5, 50, mask.shape).astype(np.int32) * mask
    alone = encode(config, params, ids, mask, 0 * ids).sequence
    batch = {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids}
    wide = {k: np.pad(v, ((0, 0), (0, 16))) for k, v in batch.items()}
    shared = packing.share_rows(wide, np.array([[True, True], [True, True]]), 0)
    shared["position_ids"] = shared["position_ids"] + shift
    packed = Packed.from_batch({name: jnp.asarray(x) for name, x in shared.items()})
    names = ("input_ids", "input_mask", "segment_ids")
    given = (*(shared[name] for name in names), None, packed)
    found = encode(config, params, *given).sequence
    for index, length in enumerate(lengths):
        row, second = divmod(index, 2)
        first = lengths[index - 1] if second else 0
        own = found[row, first : first + length]
        assert_close(own, alone[index, :length])
    ordered = encode(config, params, ids[:, ::-1], mask[:, ::-1], 0 * ids).sequence
    moved = np.abs(ordered[1, ::-1][:14] - alone[1, :14]).max()
    assert moved > 1e-2  # the order matters


def test_layerwise_rates_fall_from_layer_to_layer(corpus, tmp_path):
    """A step of Adam by hand, times 0.9 for each layer from the top."""
    config = configuration.with_defaults()
    config.optimizer.name = "bert_adam"
    model = Bert(bert_config(**SMALL))
    params = {"bert": spread(model), "head": {"kernel": jnp.ones((3, 2))}}
    below = ("embedding_projection", "relative_bias", "distances")  # other families'
    params["bert"] |= {name: {"kernel": jnp.ones((2, 2))} for name in below}
    rng = np.random.default_rng(2)
    gradients = jax.tree.map(lambda x: jnp.float32(rng.normal(size=x.shape)), params)
    fields, rate = config.optimizer, 0.01
    made = layerwise.layerwise(fields, lambda step: rate, optimizer.decay_mask)

    @jax.jit
    def update(gradients, params):
        return made.update(gradients, made.init(params), params)[0]

    step = update(gradients, params)
    powers = {"embeddings": 3, "layer_0": 2, "layer_1": 1, "pooler": 0, "head": 0}
    powers |= dict.fromkeys(below, 3)

    def check(path, update, gradient, param):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        (power,) = (p for part, p in powers.items() if part in name.split("/"))
        g = np.float64(gradient)
        mean, square = (1 - fields.beta1) * g, (1 - fields.beta2) * g * g
        wanted = mean / (np.sqrt(square) + fields.eps)
        if not ("bias" in name or "layer_norm" in name):
            wanted = wanted + fields.weight_decay * np.float64(param)
        wanted = -rate * 0.9**power * wanted
        np.testing.assert_allclose(update, wanted, rtol=1e-4, atol=1e-8, err_msg=name)

    jax.tree_util.tree_map_with_path(check, step, gradients, params)
    pack, unpack = (stack_layers(x, 2) for x in (params, gradients))
    stacked = update(unpack, pack)
    for one, other in zip(
        jax.tree.leaves(stacked), jax.tree.leaves(stack_layers(step, 2)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6)
