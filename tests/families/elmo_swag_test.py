"""SWAG with ELMo: rows of words, the four scores, a run, and refusals."""

import jax
import numpy as np
from micro import initial_params
from scipy import special

from bert_jax import tasks
from bert_jax.config import configuration
from tests.close import assert_close
from tests.tasks.small_texts import choice_row

SIZES = ("model.hidden_size=4", "model.intermediate_size=8", "task.lstm_size=4")
SIZES += ("task.filters=('1:4','2:4')", "task.max_characters=12")
SPEC = "configs/finetune/swag.py:recipe=tiny,model=elmo"
EXAMPLES = [
    choice_row("He sat down.", ("He ate.", "The cat is far away.", "", "So!"), 2),
    choice_row("A", ("b", "c d e f g h i j k l m n o p", "q", "r"), 1),
]


def make(*fields):
    return tasks.create_task(
        configuration.load_config(SPEC, [f"--config.{f}" for f in fields])
    )


def params_of(task):
    drawn = initial_params(task.init_params)
    return jax.tree.map(lambda x: 5 * x, drawn)


def test_endings_are_rows_with_their_context():
    task = make(*SIZES, "task.max_seq_length=12")
    one, two = (f.columns for f in task.encode(EXAMPLES, "train"))
    numbers = task.words.ids
    context, ending = ["He", "sat", "down", "."], ["He", "ate", "."]
    row = [1, *numbers(context), 2, 1, *numbers(ending), 2]
    assert list(one["input_ids"][0][: len(row)]) == row
    assert list(one["segment_ids"][0][: len(row)]) == [0] * 6 + [1] * 5
    assert list(one["input_ids"][2]) == [*row[:7], 2, *[0] * 4]
    assert list(one["input_mask"][2]) == [1] * 8 + [0] * 4
    cut = [1, *numbers("A"), 2, 1, *numbers("cdefghi"), 2]  # four are marks
    assert list(two["input_ids"][1]) == cut
    assert task.notices["train: texts longer than max_seq_length, cut"]


def test_loss_is_over_the_endings_and_padding_changes_nothing():
    task = make(*SIZES)
    table = task.make_rows(task.encode(EXAMPLES, "train"))
    params, run = params_of(task), jax.jit(task.logits)
    batch = table.batch(np.arange(3), 24)
    found = np.asarray(run(params, batch)["logits"])
    assert found.shape == (3, 4) and np.isfinite(found).all()
    longer = np.asarray(run(params, table.batch(np.arange(2), 40))["logits"])
    assert_close(longer, found[:2])
    expected = [
        special.logsumexp(own) - own[e["label"]]
        for own, e in zip(found, EXAMPLES, strict=False)
    ]
    losses = jax.jit(task.row_losses)({"logits": found}, batch)[:2]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
