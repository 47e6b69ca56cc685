"""Rows with texts that are far too long: as if they had been read to the end."""

import micro
import numpy as np
import pytest
from small_squad import small_config
from small_texts import shrunk

from bert_jax.extract.extractor import Extractor
from bert_jax.models.heads import BertForPreTraining
from bert_jax.tasks import predictor
from bert_jax.tasks.classification import TextExample
from bert_jax.tasks.fill_mask import FillMask
from bert_jax.tasks.predictor import TaskPredictor
from bert_jax.tasks.squad.task import Squad
from bert_jax.tasks.text import Text
from bert_jax.tokenization.long_texts import LIMIT
from configs.finetune import text

LONG = {
    "words": "good bad a " * 30_000 + "bad bad b",
    "spaces": "a" + " \n" * 200_000 + "good",
    "word": "good " + "a" * 300_000 + " bad",
}


@pytest.fixture
def task(tmp_path):
    config = shrunk(text.get_config("tiny"), tmp_path)
    config.task.labels = ("no", "yes")
    return Text(config)


@pytest.mark.parametrize("mode", ["head", "tail", "head_tail"])
@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("other", [None, "b", LONG["words"]], ids=["", "b", "long"])
def test_a_row_has_the_pieces_of_its_whole_texts(task, mode, kind, other):
    task.truncation = mode
    with task.config.unlocked():
        task.config.task.truncation = mode
    asked = TaskPredictor(task, task.config.task.max_seq_length)
    parsed = asked.parse({"text": LONG[kind], "text_b": other})
    assert len(parsed.text) < LIMIT * 4
    found, expected = (
        task.encode([example], "predict")[0].columns
        for example in (parsed, TextExample(0, LONG[kind], other))
    )
    for name in ("input_ids", "segment_ids"):
        np.testing.assert_array_equal(found[name], expected[name])


def test_a_context_is_read_to_a_limit_as_it_is(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(predictor, "MOST", 1000)
    task = Squad(small_config(tmp_path))
    asked = TaskPredictor(task, task.config.task.max_seq_length)
    context = "a b   c " * 10_000
    parsed = asked.parse({"question": "a" * 300_000 + "?", "context": context})
    assert len(parsed.question) < 2 * LIMIT
    assert context.startswith(parsed.context) and 990 < len(parsed.context) <= 1000
    assert parsed.context.endswith(" ")
    (said,) = caplog.messages
    assert "is not read to its end, but its first 1,000 characters only" in said
    short = asked.parse({"question": "a?", "context": context[:1000]})
    assert short.context == context[:1000]


def test_a_blank_in_a_text_that_is_too_long(task):
    config = micro.bert_config(vocab_size=99, max_position_embeddings=32)
    model = BertForPreTraining(config)
    asked = FillMask(task.config, model, task.tokenizer)
    with pytest.raises(ValueError, match=r"^at least \d+ tokens with .* 32 positions"):
        asked.parse({"text": LONG["words"]})
    with pytest.raises(ValueError, match=r"^4\d tokens with"):
        asked.parse({"text": "a " * 40})
    parsed = asked.parse({"text": f"{LONG['spaces']} [MASK]", "text_b": ""})
    assert len(parsed.masks) == 1 and parsed.is_pair
    assert parsed.encoding.ids[-1] == parsed.encoding.ids[-2]  # two [SEP]


def test_vectors_of_a_text_that_is_too_long(task):
    model = micro.bert_config(vocab_size=99, max_position_embeddings=32)
    asked = Extractor(task.config, model, task.tokenizer)
    ids = task.tokenize([LONG["words"]])[0].ids
    assert asked.parse({"text": LONG["words"]}).ids[1:-1] == ids[:30]
    assert len(asked.parse({"words": ["a", LONG["words"], "b"]}).ids) == 32
