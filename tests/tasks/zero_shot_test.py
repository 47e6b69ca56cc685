"""Classes of a model of natural language inference: what is refused, rows of a file."""

import pytest

import bert_jax
from bert_jax.tasks.zero_shot import ZeroShot
from configs.finetune import ner, text
from tests.micro import answerer, error_line, initial_params, write_rows
from tests.tasks.small_texts import resolved, shrunk

HYPOTHESIS = "good {} b"


def make(folder, labels=("entailment", "not_entailment"), **fields):
    rows = [{"text": "a", "text_b": "b", "label": label} for label in labels]
    config = shrunk(text.get_config("tiny"), folder)
    config.task.train_file = write_rows(folder / "t.jsonl", rows)
    config.task.update({"text_b": "text_b"} | fields)
    config.model.initializer_range = 0.5
    return resolved(config)


def test_each_text_has_its_own_answer(tmp_path):
    """Whatever other rows and labels there are."""
    task = make(tmp_path)
    params = initial_params(task.init_params)
    rows = [{"text": "c d e f"}, {"text": "a"}, {"text": "g h"}]
    both = answerer(ZeroShot(task, ("c", "d e"), HYPOTHESIS), params).answer(rows)
    for row, answer in zip(rows, both, strict=True):
        pairs = [{**row, "text_b": x} for x in ("good c b", "good d e b")]
        single = answerer(task, params).answer(pairs)
        # Of two classes, the odds of entailment decide.
        odds = [x["scores"]["entailment"] for x in single]
        assert answer["label"] == ("c", "d e")[odds[1] > odds[0]] or len({*odds}) == 1
        assert sum(answer["scores"].values()) == pytest.approx(1.0)
        (alone,) = answerer(ZeroShot(task, ("c", "d e"), HYPOTHESIS), params).answer(
            [row]
        )
        assert alone["scores"] == pytest.approx(answer["scores"], rel=1e-5)


def test_models_and_hypotheses_that_are_wrong(tmp_path):
    for labels in ((), ("x",), ("x", "y", "x")):
        line = error_line(ZeroShot, make(tmp_path), labels, HYPOTHESIS)
        assert "at least two labels are needed, each named once" in line
    line = error_line(ZeroShot, make(tmp_path), ("x", "y"), "no place")
    assert "config.predict.hypothesis='no place': has no {}" in line
    task = make(tmp_path, labels=("good", "bad"))
    line = error_line(ZeroShot, task, ("x", "y"), HYPOTHESIS)
    assert "config.predict.labels=('x', 'y'): needs a model of natural" in line
    assert line.endswith("this one has bad, good")
    config = shrunk(ner.get_config("tiny"), tmp_path)
    (tmp_path / "a.conll").write_text("a B-X\nb O\n")
    config.task.train_file = str(tmp_path / "a.conll")
    line = error_line(ZeroShot, resolved(config), ("x", "y"), HYPOTHESIS)
    assert "is for a model of pairs of texts; leave it empty" in line
    line = error_line(bert_jax.load("mini").predict, ["a"], labels=["x", "y"])
    assert "is for a model of pairs of texts" in line
    for labels in ("ab", [1, 2]):
        with pytest.raises(TypeError, match="a list of names is required"):
            bert_jax.load("mini").predict(["a"], labels=labels)
