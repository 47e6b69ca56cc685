"""DeBERTa-v3's distances against `transformers`, and its layers stacked."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax.convert import weights
from bert_jax.errors import UserError
from bert_jax.families.deberta_v3 import FAMILY, model
from bert_jax.models.heads import init_model
from bert_jax.models.stacking import stack_layers
from tests.close import assert_close
from tests.families.encoders import make_batch, make_model
from tests.micro import initial_params, small_config


@pytest.mark.usefixtures("torch", "transformers")
@pytest.mark.parametrize(("buckets", "most"), [(256, 512), (16, 96), (32, 64)])
def test_rows_of_distances(buckets, most):
    import torch
    from transformers.models.deberta_v2 import modeling_deberta_v2 as theirs

    texts = torch.zeros(most, 1)
    found = theirs.build_relative_position(texts, texts, buckets, most)[0].numpy()
    rows = model.distance_rows(most, buckets, most)
    place = np.arange(most)
    ours = rows[place[:, None] - place + most - 1]
    np.testing.assert_array_equal(ours, np.clip(found + buckets, 0, 2 * buckets - 1))


@pytest.mark.parametrize("length", [1, 6, 2 * model.BLOCK])
def test_contents_are_compared_with_the_distance_of_each_pair(length):
    rng = np.random.default_rng(0)
    contents = rng.normal(size=(2, length, 3, 4)).astype(np.float32)
    distances = rng.normal(size=(2 * length, 3, 4)).astype(np.float32)
    found = jax.jit(model.compare)(contents, distances)
    place = np.arange(length)
    pairs = distances[place - place[:, None] + length - 1]  # [i, j, heads, head_dim]
    expected = np.einsum("bihd,ijhd->bhij", contents, pairs)
    assert_close(found, expected, 4)


@pytest.mark.slow
def test_stacked_layers_compute_the_same(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    make_model("deberta_v3", "DebertaV2ForMaskedLM").save_pretrained(tmp_path)
    read = weights.read_weights(tmp_path)
    batch = make_batch("deberta_v3", "DebertaV2ForMaskedLM").values()

    @jax.jit
    @jax.value_and_grad
    def loss(params, batch):
        scanned = "layers" in params["bert"]["encoder"]
        config = dataclasses.replace(read.config, scan_layers=scanned, remat="full")
        both = model.DebertaWithHeads(config, ("masked_lm",))
        outputs = both.apply({"params": params}, *batch, jax.random.key(1))
        return jnp.mean(outputs["masked_lm_logits"] ** 2)

    params = jax.tree.map(jnp.asarray, read.params)
    one, gradients = loss(params, [*batch])
    stacked = stack_layers(params, 2)
    two, others = loss(stacked, [*batch])
    assert one == pytest.approx(float(two), rel=1e-5)
    assert_close(others, stack_layers(gradients, 2), 1000)


def test_kernels_are_refused():
    kind = {"architecture": "deberta_v3", "layer": "deberta_v3", "type_vocab_size": 1}
    with pytest.raises(UserError, match="attention=fused: computes no scores of"):
        small_config(**kind, attention="fused")


def test_published_masked_lm_is_read(tmp_path):
    """The names that microsoft/DeBERTa gives it, and the discriminator's head."""
    from safetensors.numpy import load_file, save_file

    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    make_model("deberta_v3", "DebertaV2ForMaskedLM").save_pretrained(tmp_path)
    expected = weights.read_weights(tmp_path)
    path, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    tensors = {
        name.replace("cls.predictions.transform", "lm_predictions.lm_head").replace(
            "cls.predictions", "lm_predictions.lm_head"
        ): x
        for name, x in load_file(path).items()
    }
    save_file(tensors, path)
    fields = json.loads(config.read_text())
    del fields["architectures"]  # as released
    config.write_text(json.dumps(fields))
    found = weights.read_weights(tmp_path)
    jax.tree.map(np.testing.assert_array_equal, found.params, expected.params)
    whole = model.DebertaWithHeads(found.config, ("replaced_tokens",))
    head = initial_params(lambda key: init_model(whole, key)["replaced_tokens"])
    layout = FAMILY.layout
    for each in layout.parameters("replaced_tokens", found.config):
        value = each.get_value({"replaced_tokens": head})
        tensors[each.name] = each.convert_to_torch(np.asarray(value))
    save_file(tensors, path)
    found = weights.read_weights(tmp_path)
    assert found.heads == ("replaced_tokens",)
    parts = {f"lm_predictions.lm_head{part}" for part in ("", ".LayerNorm", ".dense")}
    assert {x.rpartition(".")[0] for x in found.left_over} == parts


def test_fine_tuning_has_no_moment_of_pre_training():
    found = bert_jax.make_config("finetune/text", model="deberta_v3").optimizer
    assert bert_jax.make_config("deberta_v3").optimizer.beta2 == 0.98
    assert (found.name, found.beta2, found.warmup_steps) == ("adamw", 0.999, 0)
