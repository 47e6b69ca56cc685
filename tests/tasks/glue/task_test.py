"""GLUE as a task: features of real records, the files to submit."""

import os
import re

import numpy as np
import pytest
from sklearn import metrics

from bert_jax import tokenization
from configs.finetune import glue as glue_config
from tests.micro import error_line
from tests.tasks.small_texts import resolved, text_row, write_predictions
from tests.tokenization.wordpiece_test import Rules

VOCABULARY = "vocab/bert-base-uncased-vocab.txt"
FOLDERS = {"cola": "CoLA", "mrpc": "MRPC", "stsb": "STS-B"}
FOLDERS |= {"mnli": "MNLI", "ax": "diagnostic"}


@pytest.fixture
def make(tmp_path):
    def task(name, data_dir="", vocabulary=None, labels=()):
        config = glue_config.get_config("tiny", name)
        if vocabulary is None:
            vocabulary = tmp_path / "vocab.txt"
            vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
        config.tokenizer.vocab_file = str(vocabulary)
        config.task.update(data_dir=str(data_dir), labels=labels)
        config.train.num_steps = 1
        return resolved(config)

    return task


def google(rules, ids, text_a, text_b, limit=128):
    """run_classifier.py's convert_single_example, in its own words."""
    first = rules.tokenize(text_a)
    second = rules.tokenize(text_b) if text_b else []
    if second:
        while len(first) + len(second) > limit - 3:
            (first if len(first) > len(second) else second).pop()
    first = first[: limit - 2]
    tokens = ["[CLS]", *first, "[SEP]"]
    segments = [0] * len(tokens)
    if second:
        tokens += [*second, "[SEP]"]
        segments += [1] * (len(second) + 1)
    return [ids[token] for token in tokens], segments


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
def test_features_of_real_dev_sets(shared_data, make, tmp_path, name):
    """Those of google-research/bert and of transformers, record for record.

    transformers cuts pairs by `tokenizers`, as here. Where both texts are longer than
    half of the room, it leaves the odd token to the longer text (of equally long ones
    to the second), Google's code to the first. In GLUE's dev sets this makes no
    difference. Of each set a thousand records or fewer are compared, or all of them
    with BERT_JAX_TEST_ALL_LINES=1.
    """
    folder = shared_data(f"glue/{FOLDERS[name]}")
    if name == "mnli":
        pairs = (folder / "dev_matched_pairs.tsv").read_bytes()
        folder = tmp_path
        (folder / "dev_matched.tsv").write_bytes(pairs)
    vocabulary = shared_data(VOCABULARY)
    task = make(name, folder, vocabulary)
    examples = task.examples("test" if name == "ax" else "dev")
    if "BERT_JAX_TEST_ALL_LINES" not in os.environ:
        examples = examples[:: 1 + len(examples) // 1000]
    pieces = vocabulary.read_text(encoding="utf-8").split("\n")
    ids = {piece: index for index, piece in enumerate(pieces)}
    rules = Rules(pieces, lowercase=True)
    fast = tokenization.load(vocabulary)
    fast.enable_truncation(128, strategy="longest_first")
    for example, feature in zip(examples, task.encode(examples, "dev"), strict=True):
        columns = feature.columns
        found = (columns["input_ids"].tolist(), columns["segment_ids"].tolist())
        assert found == google(rules, ids, example["text"], example.get("text_b"))
        encoded = fast.encode(example["text"], example.get("text_b"))
        assert found == (encoded.ids, encoded.type_ids)


NAMES = {
    "cola": {"test": "CoLA.tsv", "dev": "cola-dev.tsv"},
    "sst2": {"test": "SST-2.tsv", "dev": "sst2-dev.tsv"},
    "mrpc": {"test": "MRPC.tsv"},
    "stsb": {"test": "STS-B.tsv"},
    "qqp": {"test": "QQP.tsv"},
    "mnli": {
        "test": "MNLI-m.tsv",
        "test_mismatched": "MNLI-mm.tsv",
        "ax": "AX.tsv",
        "dev": "mnli-dev.tsv",
        "dev_mismatched": "mnli-dev_mismatched.tsv",
    },
    "qnli": {"test": "QNLI.tsv"},
    "rte": {"test": "RTE.tsv"},
    "wnli": {"test": "WNLI.tsv"},
    "ax": {"test": "AX.tsv"},
}


@pytest.mark.parametrize("name", NAMES)
def test_names_of_prediction_files(make, tmp_path, name):
    for split, file in NAMES[name].items():
        folder = tmp_path / split
        task = make(name)
        answer = np.zeros(max(1, len(task.labels)), np.float32)
        write_predictions(task, folder, split, [text_row("7", "a")], [answer])
        assert [path.name for path in folder.iterdir()] == [file]
        assert (folder / file).read_text().startswith("index\tprediction\n7\t")


def test_predictions_are_names_or_numbers(make, tmp_path):
    examples = [text_row(i, "a", "b") for i in range(3)]
    answers = list(np.eye(3, dtype=np.float32))
    write_predictions(make("mnli"), tmp_path, "test", examples, answers)
    expected = "index\tprediction\n0\tcontradiction\n1\tentailment\n2\tneutral\n"
    assert (tmp_path / "MNLI-m.tsv").read_text() == expected
    answers = [answer[:2] for answer in answers[:2]]
    write_predictions(make("mrpc"), tmp_path, "test", examples[:2], answers)
    assert (tmp_path / "MRPC.tsv").read_text() == "index\tprediction\n0\t0\n1\t1\n"


def test_scores_to_submit_lie_between_0_and_5(make, tmp_path):
    examples = [text_row(i, "a", "b") for i in range(3)]
    answers = [np.array([value], np.float32) for value in (-0.25, 5.5, 2.75)]
    write_predictions(make("stsb"), tmp_path, "test", examples, answers)
    found = (tmp_path / "STS-B.tsv").read_text().split()[2:]
    assert found == ["0", "0.0", "1", "5.0", "2", "2.75"]
    write_predictions(make("stsb"), tmp_path, "dev", examples, answers)
    assert "0\t-0.25\n1\t5.5\n" in (tmp_path / "stsb-dev.tsv").read_text()


@pytest.mark.parametrize(
    ("name", "main", "names"),
    [
        ("cola", "matthews", {"matthews", "accuracy"}),
        ("sst2", "accuracy", {"accuracy"}),
        ("mrpc", "f1", {"accuracy", "f1"}),
        ("stsb", "spearman", {"pearson", "spearman"}),
        ("mnli", "accuracy", {"accuracy"}),
    ],
)
def test_scores(make, name, main, names):
    task = make(name)
    size = max(1, len(task.labels))
    examples = [text_row(0, "a", label=0), text_row(1, "b", label=1)]
    answers = [np.arange(size, 0, -1.0), np.arange(size) + 0.5]
    scores = task.definition.scores(examples, [a.astype(np.float32) for a in answers])
    assert set(scores) == names and task.main_score == main


def test_labels_in_the_order_of_the_weights(make, tmp_path):
    order = ("entailment", "neutral", "contradiction")
    task = make("mnli", labels=order)
    assert task.labels == order
    answer = np.array([0.0, 1.0, 0.0], np.float32)
    write_predictions(task, tmp_path, "ax", [text_row(0, "a", "b")], [answer])
    assert (tmp_path / "AX.tsv").read_text().endswith("0\tneutral\n")
    line = error_line(make, "mnli", labels=("yes", "no"))
    assert re.search("config.task.labels=.*mnli has contradiction", line)


def test_f1_is_of_label_1_whatever_the_order(shared_data, make):
    """That of scikit-learn on the real dev set, for the best checkpoint too."""
    rng = np.random.default_rng(0)
    for order in (("0", "1"), ("1", "0")):
        task = make("mrpc", shared_data("glue/MRPC"), labels=order)
        examples = task.examples("dev")
        gold = [order[example["label"]] for example in examples]
        guessed = np.where(rng.random(len(gold)) < 0.8, gold, "1").tolist()
        answers = [np.eye(2, dtype=np.float32)[order.index(name)] for name in guessed]
        numbers = task.definition.scores(examples, answers)
        expected = metrics.f1_score(gold, guessed, pos_label="1")
        assert numbers["f1"] == pytest.approx(expected)
        assert task.selection_value(numbers) == numbers["f1"]
        majority = max(("0", "1"), key=gold.count)
        baseline = metrics.f1_score(gold, [majority] * len(gold), pos_label="1")
        found = task.definition.baseline_scores(examples)["f1"]
        assert found == pytest.approx(baseline)


def test_rows_of_a_task_of_pairs_have_two_texts(make):
    wrong = {"text": "a", "textb": "b"}
    line = error_line(make("mrpc").parse_row, wrong, error=ValueError)
    assert '"text_b" is required' in line
    assert make("mrpc").parse_row({"text": "a", "text_b": ""})["text_b"] == ""
    assert make("cola").parse_row({"text": "a"}) == {"text": "a", "text_b": None}


def test_splits_of_mnli(make, tmp_path):
    header = "index\tsentence1\tsentence2"
    for name in ("train", "dev_matched", "dev_mismatched"):
        text = f"{header}\tgold_label\n0\ta\ta\tneutral\n"
        (tmp_path / f"{name}.tsv").write_text(text)
    (tmp_path / "diagnostic.tsv").write_text(f"{header}\n0\ta\ta\n")
    task = make("mnli", tmp_path)
    assert task.splits == ("dev", "dev_mismatched", "ax")
    assert task.notices[f"test: files missing in {tmp_path}, nothing predicted"] == 1


def test_ax_is_asked_without_a_training_set(make, tmp_path):
    (tmp_path / "diagnostic.tsv").write_text("index\tsentence1\tsentence2\n0\ta\ta")
    task = make("ax", tmp_path)
    assert task.splits == ("test",)
    assert "ax has no train set" in error_line(task.training_data)
