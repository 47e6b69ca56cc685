"""Words that speak for an answer: against differences of the model's own outputs."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from bert_jax.tasks.reasons import Reasons
from configs.finetune import ner, text
from tests.micro import answerer, error_line, initial_params, write_rows
from tests.tasks.small_texts import resolved, shrunk

PAIR = {"text": " good  ab", "text_b": "bad c"}
FOUND = {("text", "good", 1), ("text", "ab", 7), ("text_b", "bad", 0)}
FOUND |= {("text_b", "c", 4)}


@pytest.fixture
def made(tmp_path):
    def make(config=None, **fields):
        labels = (0, 1) if fields.get("kind") != "multilabel" else (["x"], ["y"])
        texts = (PAIR, {"text": "d", "text_b": "e"})
        rows = [{**x, "label": y} for x, y in zip(texts, labels, strict=True)]
        config = shrunk(config or text.get_config("tiny"), tmp_path)
        config.task.train_file = write_rows(tmp_path / "t.jsonl", rows)
        config.task.update({"text_b": "text_b"} | fields)
        config.model.initializer_range = 0.5
        task = resolved(config)
        return task, initial_params(task.init_params)

    return make


def slope(task, params, row, pieces, step=2e-3):
    """Returns how the log odds of the class, or the number, change with the size of the
    vectors of some pieces, as the embeddings return them."""
    (feature,) = task.encode([task.parse_row(row)], "predict")
    size = len(feature.columns["input_ids"])
    batch = task.make_rows([feature]).batch(np.arange(1), size)
    batch = {name: jnp.asarray(x) for name, x in batch.items()}
    ids = [task.tokenizer.token_to_id(piece) for piece in pieces]
    chosen = jnp.isin(batch["input_ids"], jnp.array(ids))[..., None]

    def at(scale):
        def change(call, args, kwargs, context):
            found = call(*args, **kwargs)
            is_embeddings = context.module.path[-1:] == ("embeddings",)
            if not is_embeddings or context.method_name != "__call__":
                return found
            return jnp.where(chosen, scale * found, found)

        with nn.intercept_methods(change):
            logits = np.asarray(task.outputs(params, batch)["logits"], np.float64)[0]
        if task.kind == "regression":
            return logits[0]
        best = int(np.argmax(logits))
        return logits[best] - special.logsumexp(np.delete(logits, best))

    return (at(1 + step) - at(1 - step)) / (2 * step)


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("bert", "classification"),
        ("bert", "regression"),
        # It normalizes the words' vectors alone.
        pytest.param("modernbert", "classification", marks=pytest.mark.slow),
        pytest.param("electra", "classification", marks=pytest.mark.slow),
    ],
)
def test_scores_are_derivatives(made, family, kind):
    task, params = made(text.get_config("tiny", family), kind=kind)
    rows = [PAIR, {"text": "c", "text_b": "d"}]  # rows of other lengths, padded
    answers = answerer(Reasons(task, 5), params).answer(rows)
    plain = answerer(task, params).answer(rows)
    name = "score" if kind == "regression" else "scores"
    for answer, expected in zip(answers, plain, strict=True):
        assert answer[name] == pytest.approx(expected[name], rel=1e-5)
    (first, second), pieces = answers, {"ab": ["a", "##b"]}
    found = {(x["field"], x["text"], x["start"]) for x in first["reasons"]}
    assert found == FOUND and len(second["reasons"]) == 2
    sizes = [abs(x["score"]) for x in first["reasons"]]
    assert sizes == sorted(sizes, reverse=True)
    for reason in first["reasons"]:
        field = PAIR[reason["field"]]
        assert field[reason["start"] : reason["end"]] == reason["text"]
        parts = pieces.get(reason["text"], [reason["text"]])
        expected = slope(task, params, PAIR, parts)
        assert reason["score"] == pytest.approx(expected, rel=0.02, abs=2e-3)
    assert sizes[0] > 0.02
    (few,) = answerer(Reasons(task, 2), params).answer([PAIR])
    assert [x["text"] for x in few["reasons"]] == [
        x["text"] for x in first["reasons"][:2]
    ]


def test_other_class_by_a_threshold_turns_the_signs(made):
    task, params = made()
    (plain,) = answerer(Reasons(task, 4), params).answer([PAIR])
    second = plain["label"] == "1"
    task = task.with_fitted({"thresholds": {"1": 1e3 if second else -1e3}})
    (turned,) = answerer(Reasons(task, 4), params).answer([PAIR])
    assert {turned["label"], plain["label"]} == {"0", "1"}
    for one, other in zip(plain["reasons"], turned["reasons"], strict=True):
        assert other == {**one, "score": pytest.approx(-one["score"])}


def test_temperature_divides_the_scores_of_two_classes(made):
    task, params = made()
    (plain,) = answerer(Reasons(task, 4), params).answer([PAIR])
    heated = Reasons(task.with_fitted({"temperature": 4.0}), 4)
    (found,) = answerer(heated, params).answer([PAIR])
    for one, other in zip(plain["reasons"], found["reasons"], strict=True):
        assert other == {**one, "score": pytest.approx(one["score"] / 4, rel=1e-4)}


def test_cut_text_has_reasons_of_what_is_left(made):
    task, params = made(text_b="", truncation="tail")
    row = {"text": "bad " * 30 + "good"}
    (answer,) = answerer(Reasons(task, 99), params).answer([row])
    assert len(answer["reasons"]) == 14  # of 16 tokens
    assert max(x["end"] for x in answer["reasons"]) == len(row["text"])
    assert min(x["start"] for x in answer["reasons"]) == 4 * (31 - 14)
    assert all("field" not in x for x in answer["reasons"])
    assert dict(task.notices) == {"predict: texts longer than max_seq_length, cut": 1}


def test_other_tasks_are_refused(made, tmp_path):
    for fields in ({"kind": "multilabel"}, {"windows": 2, "text_b": ""}):
        task, _ = made(**fields)
        line = error_line(Reasons, task, 5)
        assert "config.predict.reasons=5: is for one class or number" in line
    config = shrunk(ner.get_config("tiny"), tmp_path)
    (tmp_path / "a.conll").write_text("a B-X\nb O\n")
    config.task.train_file = str(tmp_path / "a.conll")
    line = error_line(Reasons, resolved(config), 5)
    assert "reasons=5: is for classes and numbers of texts; set it 0" in line
