"""Weights as a run's first parameters, and a work directory's weights out."""

import dataclasses
import json
import re
from functools import cache, partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bert_jax import pretrained, tokenization
from bert_jax.convert import layout, merge, weights
from bert_jax.models.architectures import BertWithHeads
from bert_jax.models.heads import init_model
from bert_jax.training.step import TrainState
from bert_jax.workdir import folder as workdir
from bert_jax.workdir.checkpoint import Checkpoints
from configs import tiny
from tests.close import equal
from tests.micro import bert_config, error_line, init_pretraining, initial_params

SIZES = {"vocab_size": 20, "hidden_size": 12, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 3, "intermediate_size": 16}
CONFIG = bert_config(**SIZES, max_position_embeddings=8)
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmno"]


def found(architecture="BertForPreTraining", config=CONFIG):
    """Weights as if they had been read."""
    params = initial(layout.BERT.architectures[architecture], config, seed=1)
    labelled = set(params) & set(layout.LABELLED_HEADS)
    return layout.Weights(
        config=config,
        params=params,
        architecture=architecture,
        labels=("x", "y", "z") if labelled else (),
        left_over=("foreign.weight",),
    )


def initial(heads, config=CONFIG, seed=0):
    """Parameters of a model with these heads, of any values."""
    heads = tuple(head for head in heads if head != "pooler")
    init = partial(init_model, BertWithHeads(config, heads, labels=3))
    shapes = nn.meta.unbox(jax.eval_shape(init, jax.random.key(0)))
    random = np.random.RandomState(seed)
    return jax.tree.map(
        lambda leaf: jnp.asarray(random.standard_normal(leaf.shape), jnp.float32),
        shapes,
    )


@cache
def draw(config, seed):
    return initial_params(partial(init_pretraining, config), seed)


def names(tree):
    return set(flatten_dict(tree, sep="/"))


def test_labels_are_put_in_order_and_a_number_has_any_name():
    model = found("BertForSequenceClassification")
    kernel = model.params["sequence_classification"]["kernel"]
    ordered = model.reorder_labels(("z", "x", "y"), "there")
    assert ordered.labels == ("z", "x", "y")
    ours = ordered.params["sequence_classification"]["kernel"]
    np.testing.assert_array_equal(ours, kernel[:, [2, 0, 1]])
    assert model.reorder_labels(("a", "x", "y"), "there").labels == ("x", "y", "z")
    number = dataclasses.replace(model, labels=("sim",))
    assert number.reorder_labels(("score",), "there").labels == ("score",)
    label = dataclasses.replace(number, problem_type="multi_label_classification")
    assert label.reorder_labels(("score",), "there").labels == ("sim",)


@pytest.mark.slow
def test_weights_that_are_there_are_taken():
    source, start = found(), initial(("sequence_classification",))
    params, report = merge.merge_weights(start, source, CONFIG, "there")
    assert equal(params["bert"], source.params["bert"])
    assert equal(params["sequence_classification"], start["sequence_classification"])
    assert jax.tree.structure(params) == jax.tree.structure(start)
    assert set(report.taken) == {n for n in names(start) if n.startswith("bert/")}
    assert report.initialised == (
        "sequence_classification/bias",
        "sequence_classification/kernel",
    )
    heads = {n for n in names(source.params) if not n.startswith("bert/")}
    assert set(report.left_over) == heads | {"foreign.weight"}
    rows, _ = report.table()
    assert rows == [
        ("taken", 39, "bert"),
        ("new, untrained", 2, "sequence_classification"),
        ("left over", 8, "masked_lm, next_sentence, foreign.weight"),
    ]
    assert json.loads(report.to_json())["source"] == "there"


@pytest.mark.slow
def test_shardings_are_kept():
    mesh = jax.make_mesh((8,), ("data",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    start = jax.device_put(initial(("masked_lm",)), sharding)
    params, _ = merge.merge_weights(start, found(), CONFIG, "there")
    assert all(leaf.sharding == sharding for leaf in jax.tree.leaves(params))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 25}, r"word_.*\(20, 12\).*\(25, 12\)"),
        ({"num_hidden_layers": 3}, "num_hidden_layers=3, but there has 2"),
    ],
)
def test_another_model_is_refused(change, message):
    config = dataclasses.replace(CONFIG, **change)
    start = initial(("masked_lm",), config)
    line = error_line(merge.merge_weights, start, found(), config, "there")
    assert re.search(message, line)


def vocabulary(path, pieces):
    path.write_text("".join(f"{piece}\n" for piece in pieces))
    return tokenization.load(path)


def test_vocabularies_are_compared(tmp_path):
    mine = vocabulary(tmp_path / "vocab.txt", PIECES)
    merge.check_tokenizer(mine, None, "there")
    filled = vocabulary(tmp_path / "vocab.txt", [*PIECES, "[unused0]", "[unused1]"])
    merge.check_tokenizer(mine, filled, "there")
    swapped = vocabulary(tmp_path / "vocab.txt", [*PIECES[:5], *PIECES[:4:-1]])
    longer = vocabulary(tmp_path / "vocab.txt", [*PIECES, "p"])
    for other in (swapped, longer):
        line = error_line(merge.check_tokenizer, mine, other, "there")
        assert "the tokenizer is not that of there" in line


@pytest.mark.parametrize("scan_layers", [False, True])
def test_work_directory(tmp_path, scan_layers):
    run, out = tmp_path / "run", tmp_path / "out"
    config = tiny.get_config()
    with config.unlocked():
        sizes = {k: v for k, v in vars(CONFIG).items() if k in config.model}
        config.model.update(sizes)
        config.model.scan_layers = scan_layers
        config.tokenizer.vocab_size = 20
        config.corpus.max_seq_length = 6
        config.masking.max_predictions_per_seq = 2
    tokenizer = vocabulary(tmp_path / "vocab.txt", PIECES)
    assert "no such folder" in error_line(weights.find_source, run)
    workdir.claim_folder(run, config, tokenizer)
    line = error_line(lambda: weights.find_source(run).export(out))
    assert "no weights: has none of" in line
    model_config = dataclasses.replace(CONFIG, scan_layers=scan_layers)
    params = draw(model_config, 5)
    state = TrainState(jnp.zeros((), jnp.int32), params, {"nothing": jnp.zeros(1)})
    with Checkpoints(run, keep=2) as checkpoints:
        checkpoints.save(state.items(), 30)
        checkpoints.wait()

    bert = pretrained.load(run)
    assert bert.config == CONFIG
    plain = draw(CONFIG, 5)
    assert equal(bert.params, plain)
    assert bert.tokenizer.to_str() == tokenizer.to_str()

    found = weights.read_weights(run)
    for layout_of_a_run in (False, True):
        other = dataclasses.replace(CONFIG, scan_layers=layout_of_a_run)
        start = draw(other, 6)
        loaded, report = merge.merge_weights(start, found, other, run)
        own = draw(other, 5)
        assert equal(loaded, own) and report.initialised == report.left_over == ()

    # The length is the run's, not that of its positions. An export of it keeps it.
    for source, target in ((run, out), (out, tmp_path / "again")):
        weights.find_source(source).export(target)
        assert "up to 6 in a text" in (target / "README.md").read_text()
        fields = json.loads((target / "tokenizer_config.json").read_text())
        assert fields["model_max_length"] == 6
    recorded = json.loads((out / "config.json").read_text())["bert_jax"]
    assert recorded["step"] == 30
    assert recorded["config"]["model"]["hidden_size"] == 12
    again = pretrained.load(out)
    one, other = (x.encode(["a b", "c"], ["d", "e"]) for x in (bert, again))
    assert one.keys() == other.keys() >= {"hidden_states", "pooled"}
    assert one.pop("tokens") == other.pop("tokens")
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
