"""The activations that a layer adds to a plan."""

from pathlib import Path

import pytest

from bert_jax import tasks
from bert_jax.config import configuration
from experiments.capacity import estimate

TINY = Path(__file__).resolve().parents[2] / "configs" / "tiny.py"
HEADS, LENGTH, HIDDEN = 4, 96, 128
FIELDS = {
    "model.hidden_size": HIDDEN,
    "model.num_attention_heads": HEADS,
    "model.intermediate_size": 512,
    "model.hidden_dropout_prob": 0.1,
    "model.attention_probs_dropout_prob": 0.1,
    "corpus.max_seq_length": LENGTH,
}


def activations(layers, kind, **more):
    fields = {**FIELDS, "model.num_hidden_layers": layers, **more}
    given = [f"--config.{name}={value}" for name, value in fields.items()]
    task = tasks.create_task(configuration.load_config(f"{TINY}:recipe=plain", given))
    task.resolve()
    return estimate.activations(task.config, 0, 1, kind)


@pytest.mark.slow
def test_layer_activations_that_a_tpu_computes_again():
    """Two arrays of scores, three masks of dropout, three for each LayerNorm."""
    traced, kept = (activations(4, kind) - activations(3, kind) for kind in ("", "tpu"))
    scores, vectors = HEADS * LENGTH**2, LENGTH * HIDDEN
    assert traced - kept == 2 * 4 * scores + (scores + 2 * vectors) + 6 * 4 * vectors


def test_loop_computes_the_last_layer_as_the_others():
    alone, looped = (
        activations(layers, "", **{"model.scan_layers": True}) for layers in (1, 2)
    )
    assert looped - alone == activations(3, "") - activations(2, "")
    assert activations(1, "") < 0.5 * alone
