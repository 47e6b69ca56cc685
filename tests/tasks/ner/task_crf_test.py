"""BERT's tags joined by a CRF: the loss by hand, guesses, refused fields."""

import itertools
import re

import jax
import numpy as np
import pytest
from scipy import special

import bert_jax
from bert_jax.models.architectures import CRF_SCALE
from tests.micro import answerer, error_line, initial_params
from tests.runs import run
from tests.tasks.ner.ner_tasks import TRAIN, encoded, task_in

LONG = "".join(f"{c}\tO\n" for c in "abcdefghij")


@pytest.fixture
def task(tmp_path):
    return task_in(tmp_path)(dev=LONG, crf=True, max_seq_length=8)


@pytest.fixture
def params(task):
    """Parameters whose transitions matter."""
    params = initial_params(task.init_params)
    rng = np.random.default_rng(0)
    values = {k: rng.normal(size=v.shape) for k, v in params["crf"].items()}
    assert not any(np.asarray(v).any() for v in params["crf"].values())  # at first
    loud = {k: np.float32(v / CRF_SCALE) for k, v in values.items()}
    return {**params, "crf": loud}


def test_loss_is_minus_the_log_probability_of_the_tags(task, params):
    assert task.labels == ("O", "B-X", "B-Y", "I-X")
    assert task.config.task.tag_scheme == "BIO"
    features = encoded(task, "train")
    batch = task.make_rows(features).batch(np.arange(3), 8)
    found = jax.jit(task.logits)(params, batch)
    losses = jax.jit(task.definition.row_losses)(found, batch)
    names = ("between", "first", "last")
    between, first, last = (CRF_SCALE * params["crf"][name] for name in names)
    for row, feature in enumerate(features):
        gold = feature.columns["labels"][feature.info]
        own = np.asarray(found["logits"])[row, feature.info]

        def score(path, own=own):
            chain = sum(between[a, b] for a, b in itertools.pairwise(path))
            return own[range(len(path)), list(path)].sum() + (
                first[path[0]] + last[path[-1]] + chain
            )

        every = [score(p) for p in itertools.product(range(4), repeat=len(gold))]
        expected = special.logsumexp(every) - score(gold)
        assert float(losses[row]) == pytest.approx(expected, rel=1e-4)
    assert float(losses[2]) == 0.0  # no row
    assert float(jax.jit(task.loss_weights)(batch)["tagging_loss"]) == 2.0


def test_guesses_keep_to_the_scheme_in_every_window(task, params):
    params["crf"]["first"][3] += 1000 / CRF_SCALE  # an I that begins nothing
    answers = answerer(task.predictor(), params).answer(
        [{"text": "a b c d e f g h i j"}, {"text": ""}]
    )
    assert len(answers[0]["tags"]) == 10 and answers[0]["tags"][0] != "I-X"
    assert answers[1] == {"words": [], "tags": [], "entities": []}
    for before, after in itertools.pairwise(answers[0]["tags"]):
        assert after != "I-X" or before in ("B-X", "I-X")


@pytest.mark.slow
def test_run_with_a_crf_is_loaded_with_it_and_exported_without(
    plain, tmp_path, monkeypatch
):
    (tmp_path / "train.conll").write_text(4 * f"{TRAIN}\n")
    fields = {"init_from": plain, "task.train_file": tmp_path / "train.conll"}
    fields |= {"task.crf": True, "task.max_seq_length": 16, "train.num_steps": 2}
    flags = [f"--config.{name}={value}" for name, value in fields.items()]
    run("configs/finetune/ner.py:recipe=tiny", tmp_path / "run", *flags)
    run("", tmp_path / "run", "--mode=export", f"--output={tmp_path / 'exported'}")
    ours, theirs = (bert_jax.load(tmp_path / name) for name in ("run", "exported"))
    assert ours.heads == ("crf", "token_classification")
    assert theirs.heads == ("token_classification",)
    for model in (ours, theirs):
        (answer,) = model.predict([{"words": ["the", "fox"]}])
        assert len(answer["tags"]) == 2


def test_chain_is_the_sentence_and_not_the_document_around_it(tmp_path):
    task = task_in(tmp_path)(crf=True, document_context=True, max_seq_length=12)
    for feature in encoded(task, "train"):
        columns = feature.columns
        assert columns["words"].nonzero()[0].tolist() == feature.info.tolist()
        assert len(feature.info) < len(columns["input_ids"]) - 2
    cut = task_in(tmp_path)(dev=LONG, crf=True, document_context=True, max_seq_length=8)
    assert [x.columns["words"].sum() for x in encoded(cut, "dev")] == [6] * 4


def test_scheme_that_the_tags_break_is_refused(tmp_path):
    """Sentences of BIO's tags, which end no entity with E."""
    task = task_in(tmp_path)(dev=LONG, crf=True, tag_scheme="BIOES")
    said = "tag_scheme=BIOES: 2 of 2 training sentences .* theirs is BIO; leave"
    assert re.search(said, error_line(task.training_data))
