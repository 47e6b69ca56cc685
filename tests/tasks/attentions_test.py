"""Attention out of `--mode=predict`: row by row as `bert_jax.load(...).apply` gives it,
in a file that is whole or not there. Each window and choice of a row is its own."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from runs import run
from safetensors import safe_open

import bert_jax
from bert_jax import attentions, tasks, tokenization
from bert_jax.attentions import WithAttentions
from bert_jax.data.rows import Feature
from bert_jax.models.architectures import BertWithHeads, init_with_heads
from bert_jax.models.encoder import Bert, stack_layers
from bert_jax.tasks.task import Predictor
from configs import common
from configs.finetune import squad, swag
from tests.micro import answerer, bert_config, initial_params

ROWS = [
    {"text": "the quick [MASK] fox jumps"},
    {"text": "a [MASK] dog", "text_b": "seven cats watch it"},
    {"text": "it </script><script>alert(1)</script> \" ' & \u202e 🦊 שלום"},
]

TOKENIZER = tokenization.build_tokenizer(
    [*tokenization.SPECIAL_TOKENS, *map(chr, range(0x4E00, 0x4E00 + 45))],
    lowercase=True,
)


def read(place):
    """Every tensor of the file with its tokens and segments."""
    with safe_open(place, "numpy") as file:
        about = file.metadata()
        assert about.keys() == set(file.keys())
        return {
            name: (file.get_tensor(name), json.loads(about[name]))
            for name in sorted(file.keys())
        }


@pytest.fixture
def rows(tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return source


@pytest.mark.slow
def test_run_gives_what_load_gives(micro, plain, rows, tmp_path):
    name = tmp_path / "who"
    field = f"--config.predict.attentions={name}"
    plainly, _ = run(micro, plain, "--mode=predict", f"--input={rows}")
    answered, _ = run(micro, plain, "--mode=predict", f"--input={rows}", field)
    for one, other in zip(plainly.splitlines(), answered.splitlines(), strict=True):
        one, other = json.loads(one), json.loads(other)
        assert [x["id"] for m in one["masks"] for x in m] == [
            x["id"] for m in other["masks"] for x in m
        ]
    found = read(tmp_path / "who.safetensors")
    assert list(found) == ["attentions_0", "attentions_1", "attentions_2"]
    bert = bert_jax.load(plain)
    for index, row in enumerate(ROWS):
        encoding = bert.tokenizer.encode(row["text"], row.get("text_b"))
        ids = np.array([encoding.ids])
        types = np.array([encoding.type_ids])
        wanted = bert.apply(ids, np.ones_like(ids), types, attentions=True)
        wanted = np.stack([layer[0] for layer in wanted["attentions"]])
        got, about = found[f"attentions_{index}"]
        assert got.dtype == np.float16 and got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(got.astype(float).sum(-1), 1, atol=2e-3)
        assert about == {"tokens": encoding.tokens, "segments": encoding.type_ids}


def test_attentions_of_a_prediction_that_fails_are_not_written(micro, plain, tmp_path):
    source = tmp_path / "in.jsonl"
    field = f"--config.predict.attentions={tmp_path / 'who'}"
    asks = ("--mode=predict", f"--input={source}", field)
    for content, says in (
        ('{"text": "the fox"}\n{"txt": 1}\n', "in.jsonl:2"),
        ("\n", "the input has no rows"),
    ):
        source.write_text(content)
        _, err = run(micro, plain, *asks, status=2)
        assert says in err
        assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def encoder(**fields):
    """A small encoder's config, its weights, and a batch of two rows."""
    config = bert_config(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
        **fields,
    )
    rng = np.random.default_rng(0)
    mask = (np.arange(8) < np.array([[8], [5]])).astype(np.int32)
    batch = {
        "input_ids": rng.integers(5, 50, (2, 8)).astype(np.int32) * mask,
        "input_mask": mask,
        "segment_ids": np.zeros((2, 8), np.int32),
    }
    return config, batch


class Bare(Predictor):
    """A predictor without answers."""

    max_seq_length, parse, encode = 16, None, None

    def outputs(self, params, batch):
        return {}

    def decode(self, examples, features, outputs):
        return outputs


def probabilities(config, params, batch):
    """Returns the kept arrays of each row, by its name."""
    keeps = WithAttentions(Bare(), config, TOKENIZER)
    found = jax.device_get(jax.jit(keeps.outputs)(params, batch))
    outputs = [{name: x[row] for name, x in found.items()} for row in range(2)]
    lengths = batch["input_mask"].sum(axis=1)
    features = [
        Feature(row, {n: batch[n][row, :end] for n in ("input_ids", "segment_ids")})
        for row, end in enumerate(lengths)
    ]
    assert keeps.decode(["a", "b"], features, outputs) == [{}, {}]
    for row, end in enumerate(lengths):
        tokens = json.loads(keeps.about[f"attentions_{row}"])["tokens"]
        ids = batch["input_ids"][row, :end].tolist()
        assert list(map(TOKENIZER.token_to_id, tokens)) == ids
    return keeps.tensors


def drawn(config):
    return initial_params(functools.partial(init_with_heads, BertWithHeads(config)))


@pytest.mark.slow
def test_stacked_layers_and_other_kernels_give_the_same():
    config, batch = encoder()
    params = jax.tree.map(lambda leaf: leaf * 8, drawn(config))
    wanted = probabilities(config, params, batch)
    assert [x.shape for x in wanted.values()] == [(2, 2, 8, 8), (2, 2, 5, 5)]
    assert np.std(wanted["attentions_0"].astype(float)) > 0.02  # they differ
    for fields in ({"attention": "fused"}, {"remat": "full"}):
        other, _ = encoder(scan_layers=True, **fields)
        found = probabilities(other, stack_layers(params, 2), batch)
        for key, one in wanted.items():
            np.testing.assert_allclose(one, found[key], atol=1e-3, err_msg=str(fields))


PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "##a", "##b"]


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
    return tasks.create_task(config)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_attentions_keep_every_window_and_choice_once(name, tmp_path):
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
        # All have one length, to be compiled once: nothing is seen of padding.
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
