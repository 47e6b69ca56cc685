"""Rows with texts that are far too long: predict reads them as evaluation does."""

import pytest

from bert_jax.models.heads import BertForPreTraining
from bert_jax.tasks import create_task
from bert_jax.tasks.fill_mask import FillMask
from bert_jax.tokenization.byte_level import ANGLED
from configs.finetune import text
from tests import micro
from tests.tasks.small_texts import shrunk

LONG = {
    "words": "good bad a " * 30_000 + "bad bad b",
    "spaces": "a" + " \n" * 200_000 + "good",
}


@pytest.fixture
def config(tmp_path):
    config = shrunk(text.get_config("tiny"), tmp_path)
    config.task.labels = ("no", "yes")
    return config


@pytest.fixture
def task(config):
    return create_task(config)


def columns(task, parsed):
    return task.encode([parsed], "predict")[0].columns


def test_pair_that_is_cut_leaves_the_odd_token_to_the_longer(config):
    """With a byte-level vocabulary. Of equally long ones the second, as there."""
    config.task.max_seq_length = 13
    vocabulary = ANGLED.train(["good a b"] * 3, 270, lowercase=False)
    task = create_task(config, vocabulary)
    some, more = "a b " * 22_000, "b a " * 30_000
    for pair, first in {(some, more): 4, (more, some): 5, (more, more): 4}.items():
        a, b = (vocabulary.encode(text).ids[1:-1] for text in pair)
        found = columns(task, task.parse_row({"text": pair[0], "text_b": pair[1]}))
        special = task.text.special
        ids = [*a[:first], special.sep, special.sep, *b[: 9 - first], special.sep]
        assert found["input_ids"].tolist() == [special.cls, *ids]


def test_blank_in_a_text_that_is_too_long(task):
    config = micro.bert_config(vocab_size=99, max_position_embeddings=32)
    model = BertForPreTraining(config)
    asked = FillMask(task.config, model, task.tokenizer)
    with pytest.raises(ValueError, match=r"^\d{5} tokens with .* 32 positions"):
        asked.parse_row({"text": LONG["words"]})
    with pytest.raises(ValueError, match=r"^4\d tokens with"):
        asked.parse_row({"text": "a " * 40})
    parsed = asked.parse_row({"text": f"{LONG['spaces']} [MASK]", "text_b": ""})
    assert len(parsed.info.masks) == 1 and parsed.info.is_pair
    assert len(set(parsed.columns["input_ids"][-2:])) == 1  # two [SEP]
