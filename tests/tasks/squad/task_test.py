"""SQuAD's task: windows, loss, scores, files, values that are wrong."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from bert_jax.data.rows import Rows
from bert_jax.tasks import create_task
from bert_jax.tasks.squad import scores
from configs.finetune import squad
from tests.micro import error_line
from tests.tasks.small_squad import small_config
from tests.tasks.small_texts import write_predictions


@pytest.fixture
def config(tmp_path):
    return small_config(tmp_path)


@pytest.fixture
def write(tmp_path):
    """Writes (context, question, answers or None) as a SQuAD file, ids from 0."""

    def write(*questions, name="file.json"):
        paragraphs = [
            {"context": context, "qas": [{"id": n, "question": question}]}
            for n, (context, question, _) in enumerate(questions)
        ]
        for paragraph, (_, _, answers) in zip(paragraphs, questions, strict=True):
            if answers is not None:
                paragraph["qas"][0]["answers"] = [
                    {"text": text, "answer_start": start} for text, start in answers
                ]
        content = {"data": [{"paragraphs": paragraphs}]}
        (tmp_path / name).write_text(json.dumps(content))
        return str(tmp_path / name)

    return write


def decoded(task, outputs):
    """The answers to the questions of dev that are in these outputs."""
    features = task.encode_examples("dev")
    return task.definition.decode_answers(task.examples("dev"), features, outputs)


@pytest.mark.slow
def test_loss_by_hand_whatever_the_padding(config, write):
    config.task.train_file = write(
        ("a b c d", "e?", [("b c", 2)]), ("a b c d e f g h a b c", "e?", [("h", 14)])
    )
    task = create_task(config)
    features = task.encode_examples("train")
    assert [f.example for f in features] == [0, 1, 1, 1]
    rng = np.random.default_rng(0)
    rows = Rows(features, task.padding)
    total = 0.0
    logits = rng.normal(size=(2, 5, 20)).astype(np.float32)
    for row, feature in enumerate(features):
        for side, name in ((0, "start"), (1, "end")):
            real = logits[side, row, : len(feature.columns["input_ids"])]
            position = feature.columns[f"{name}_positions"]
            total -= np.log(special.softmax(real.astype(np.float64))[position]) / 2
    for length in (12, 20):
        batch = rows.batch(np.arange(5), length)  # the last row fills it up
        batch = jax.tree.map(jnp.asarray, batch)
        names = ("start_logits", "end_logits")
        given = zip(names, jnp.asarray(logits[:, :, :length]), strict=True)
        losses = task.definition.row_losses(dict(given), batch)
        loss = jnp.sum(task.definition.row_weights(batch) * losses)
        assert float(loss) == pytest.approx(total, rel=1e-6)
        assert task.loss_weights(batch) == {"span_loss": 4}


def test_answers_in_windows(config, write):
    config.task.train_file = write(
        ("a b c d e f g h", "e?", [("c d", 4), ("a", 0)]),
        ("a b c", "e f g h a b", []),
        ("a b c", "e?", [("h", 0)]),
        ("a  b", "", [(" b", 1)]),
        ("", "a", []),
    )
    task = create_task(config)
    features = task.encode_examples("train")
    found = [
        (f.example, f.columns["start_positions"], f.columns["end_positions"])
        for f in features
    ]
    # Room for seven tokens after [CLS] e ? [SEP]: a to g, d to h.
    assert found == [(0, 6, 7), (0, 0, 0), (1, 0, 0), (3, 3, 3), (4, 0, 0)]
    assert features[-1].columns["input_ids"].tolist() == [2, 5, 3, 3]
    assert task.notices == {
        "train: questions cut to max_query_length": 1,
        "train: answers that are not at answer_start, left out": 1,
    }


def test_squad_without_null_answers(config, write):
    config.task.null_answers = False
    config.task.train_file = write(("c b", "a", []), ("c b", "a", [("c", 0)]))
    config.task.dev_file = config.task.train_file
    task = create_task(config)
    assert [f.example for f in task.encode_examples("train")] == [1]
    examples = task.examples("dev")
    logits = np.float32([[0, 0, 0, 1, 2, 0], [0, 0, 0, 2, 1, 0]])
    outputs = [{"start_logits": row, "end_logits": row} for row in logits]
    answers = decoded(task, outputs)
    assert [answer.guesses[0].text for answer in answers] == ["b", "c"]
    full = {"exact_match": 100.0, "f1": 100.0}
    assert task.definition.scores(examples, answers) == full
    assert task.definition.baseline_scores(examples) == {}
    assert task.notices == {
        "train: questions without an answer (task.null_answers is off), left out": 1,
        "dev: questions without an answer, not scored": 1,
    }
    config.task.train_file = write(("a b", "c", []))
    line = error_line(create_task(config).encode_examples, "train")
    assert re.search(r"file\.json: no question has an answer.*null", line)


def test_unlabelled_questions_have_no_scores(config, write):
    config.task.dev_file = write(("a b", "c", None))
    task = create_task(config)
    examples = task.examples("dev")
    output = {name: np.zeros(6, np.float32) for name in ("start_logits", "end_logits")}
    answers = decoded(task, [output])
    assert task.definition.scores(examples, answers) == {}
    assert task.definition.fit(examples, answers) == {}


def test_files_and_threshold(config, write, tmp_path):
    config.task.dev_file = write(
        ("b a", "c", [("b", 0)]), ("b a", "c", []), ("a \u00e9", "c", [("\u00e9", 2)])
    )
    task = create_task(config)
    examples = task.examples("dev")
    outputs = [
        {"start_logits": np.float32(start), "end_logits": np.float32(end)}
        for start, end in (
            ([1, 0, 0, 3, 1, 0], [1, 0, 0, 3, 1, 0]),
            ([4, 0, 0, 3, 1, 0], [2, 0, 0, 2, 1, 0]),
            ([2, 0, 0, 0, 2, 0], [2, 0, 0, 0, 2, 0]),
        )
    ]
    answers = decoded(task, outputs)
    assert task.definition._threshold == 0
    numbers = task.definition.scores(examples, answers)
    parts = [
        f"{kind}Ans_{score}" for kind in ("Has", "No") for score in ("exact", "f1")
    ]
    full = ["exact_match", "f1", *parts, "best_exact", "best_f1"]
    assert numbers == {**dict.fromkeys(full, 100.0), "null_threshold": 0.0}
    expected = [*[pytest.approx(100 / 3)] * 2, 0.0, 0.0, 100.0, 100.0]
    baseline = task.definition.baseline_scores(examples)
    assert baseline == dict(zip(full[:6], expected, strict=True))
    task = task.with_fitted({"null_threshold": -1.0})  # as a work directory's
    write_predictions(task, tmp_path / "p", "dev", examples, answers)
    read = {p.name: json.loads(p.read_text()) for p in (tmp_path / "p").iterdir()}
    assert read["predictions.json"] == {"0": "b", "1": "", "2": ""}
    assert read["null_odds.json"] == {"0": -4.0, "1": 1.0, "2": 0.0}
    nbest = read["nbest_predictions.json"]
    assert list(nbest) == ["0", "1", "2"]
    fields = ["text", "probability", "start_logit", "end_logit"]
    assert all(list(entry) == fields for entry in nbest["0"]) and nbest["0"]
    assert [entry["text"] for entry in nbest["1"]] == ["", "b", "b a", "a"]
    assert sum(entry["probability"] for entry in nbest["1"]) == pytest.approx(1)
    names = ("predictions", "nbest_predictions", "null_odds")
    assert read.keys() == {f"{name}.json" for name in names}
    result = task.definition.format_answer(examples[2], answers[2])
    assert (result["answer"], result["start"], result["end"]) == ("", None, None)
    assert result["null_score"] == 4.0


def test_mistakes_are_named(config):
    parse = create_task(config).parse_row
    assert '"context" is required' in error_line(
        parse, {"question": "a"}, error=ValueError
    )
    config.task.max_query_length = 9
    line = error_line(create_task, config)
    assert re.search(r"config.task.max_query_length=9: at most .* 8", line)


def test_paper_s_values():
    one, two = squad.get_config("large"), squad.get_config("large", "2.0")
    assert two.task.null_answers and not one.task.null_answers
    for config, epochs, batch in ((one, 3, 32), (two, 2, 48)):
        assert (config.train.num_epochs, config.train.batch_size) == (epochs, batch)
        assert config.optimizer.learning_rate == 5e-5
        assert config.task.max_seq_length == 384
    line = error_line(squad.get_config, version="3", error=ValueError)
    assert "version=3: choose one of 1.1, 2.0" in line


def test_scores_are_those_of_the_written_files(config, write, tmp_path):
    """The scripts, given predictions.json, print what the run says."""
    config.task.dev_file = write(
        *[("a b c", "d", [("b", 2)] if n % 3 else []) for n in range(30)]
    )
    task = create_task(config)
    examples = task.examples("dev")
    rng = np.random.default_rng(0)
    outputs = [
        {name: rng.normal(size=8).astype(np.float32) * 3 for name in names}
        for names in [("start_logits", "end_logits")] * 30
    ]
    answers = decoded(task, outputs)
    task = task.with_fitted(task.definition.fit(task.examples("dev"), answers))
    numbers = task.definition.scores(examples, answers)
    write_predictions(task, tmp_path, "dev", examples, answers)
    predictions = json.loads((tmp_path / "predictions.json").read_text())
    golds = [(e["id"], [gold["text"] for gold in e["answers"]]) for e in examples]
    assert numbers.items() >= scores.score_version2(predictions, golds).items()
    assert numbers["f1"] == pytest.approx(numbers["best_f1"])
    odds = json.loads((tmp_path / "null_odds.json").read_text())
    threshold = numbers["null_threshold"]
    assert {name for name in odds if odds[name] > threshold} == {
        name for name in predictions if not predictions[name]
    }
