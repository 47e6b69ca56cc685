"""Attention of every kind of task: each window and each choice of a row is its own."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from micro import answerer, initial_params

from bert_jax import attentions, tasks
from bert_jax.models.encoder import Bert
from configs import common
from configs.finetune import ner, squad, swag, text

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "##a", "##b"]


def left_to_right():
    config = common.get_config()
    config.task.objective = "ltr"
    return config


# The config, rows of the input, and for each sequence: row, part, tokens.
CASES = {
    "pretraining": (
        common.get_config,
        [{"text": "a [MASK] b"}, {"text": "c", "text_b": "d e"}],
        [
            (0, 0, "[CLS] a [MASK] b [SEP]"),
            (1, 0, "[CLS] c [SEP] d e [SEP]"),
        ],
    ),
    "left to right": (
        left_to_right,
        [{"text": "a b c"}],
        [(0, 0, "[CLS] a b c [SEP]")],
    ),
    "text": (
        lambda: text.get_config("tiny"),
        [{"text": "a b c d e"}, {"text": "f"}],
        [(0, 0, "[CLS] a b c d e [SEP]"), (1, 0, "[CLS] f [SEP]")],
    ),
    "ner": (
        lambda: ner.get_config("tiny"),
        [{"words": ["a"]}, {"text": "a b c d e f g h a b c d e f"}],
        [
            (0, 0, "[CLS] a [SEP]"),
            (1, 0, "[CLS] a b c d e f g h a b [SEP]"),
            (1, 1, "[CLS] d e f g h a b c d e [SEP]"),
            (1, 2, "[CLS] e f g h a b c d e f [SEP]"),
        ],
    ),
    "squad": (
        lambda: squad.get_config("tiny"),
        [
            {"question": "a", "context": "b c d e f g h a b c"},
            {"question": "a b", "context": "c"},
        ],
        [
            (0, 0, "[CLS] a [SEP] b c d e f g h a [SEP]"),
            (0, 1, "[CLS] a [SEP] e f g h a b c [SEP]"),
            (1, 0, "[CLS] a b [SEP] c [SEP]"),
        ],
    ),
    "swag": (
        lambda: swag.get_config("tiny"),
        [
            {"context": "a b", "endings": ["c", "d e f"]},
            {"context": "g", "endings": ["a", "b", "h h"]},
        ],
        [
            (0, 0, "[CLS] a b [SEP] c [SEP]"),
            (0, 1, "[CLS] a b [SEP] d e f [SEP]"),
            (1, 0, "[CLS] g [SEP] a [SEP]"),
            (1, 1, "[CLS] g [SEP] b [SEP]"),
            (1, 2, "[CLS] g [SEP] h h [SEP]"),
        ],
    ),
}


def small_task(config, vocabulary):
    config.tokenizer.vocab_file = str(vocabulary)
    model = config.model
    model.hidden_size, model.num_attention_heads, model.intermediate_size = 16, 2, 32
    model.num_hidden_layers, model.max_position_embeddings = 1, 16
    model.vocab_size = 0
    if config.task.name == "pretraining":
        config.corpus.max_seq_length = 16
    else:
        config.task.max_seq_length = 12
    if config.task.name == "squad":
        config.task.max_query_length, config.task.doc_stride = 4, 3
    if "labels" in config.task:
        config.task.labels = ("O", "B-X")
    return tasks.create(config)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_window_and_choice_is_kept_once(name, tmp_path):
    make, rows, expected = CASES[name]
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    task = small_task(make(), tmp_path / "vocab.txt")
    params = initial_params(task.init_params)
    params = jax.tree.map(lambda leaf: 5 * leaf, params)
    config = task.model_config
    keeps = attentions.WithAttentions(task.predictor(), config, task.tokenizer)
    asked = answerer(keeps, params)
    halves = [asked.answer(rows[:1]), asked.answer(rows[1:])]  # rows are counted on
    plain = answerer(task.predictor(), params)
    assert [list(x) for one in halves for x in one] == [
        list(x) for x in plain.answer(rows)
    ]
    names = {f"attentions_{row}" + f"_{n}" * (n > 0): t for row, n, t in expected}
    assert list(keeps.tensors) == list(names)
    about = {name: json.loads(text) for name, text in keeps.about.items()}
    assert {n: " ".join(x["tokens"]) for n, x in about.items()} == names
    run = jax.jit(functools.partial(Bert(config).apply, mutable=["intermediates"]))
    for name, found in keeps.tensors.items():
        ids = np.array([PIECES.index(piece) for piece in about[name]["tokens"]])
        segments = np.array(about[name]["segments"])
        # Of one length, to be compiled once: nothing is seen of padding.
        room = (0, 16 - len(ids))
        one = (np.pad(x, room)[None] for x in (ids, np.ones_like(ids), segments))
        _, own = run({"params": params["bert"]}, *map(jnp.asarray, one))
        (wanted,) = own["intermediates"]["encoder"]["layer_0"]["attention"][
            "probabilities"
        ]
        length = len(ids)
        np.testing.assert_allclose(found[0], wanted[0, :, :length, :length], atol=1e-3)
        assert np.any(np.triu(found, 1)) != config.causal
    assert np.std(found.astype(float)) > 0.01
