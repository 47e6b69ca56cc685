"""Tags of words: in the order of the file, of `predict`, of outputs without names."""

import json
import math

import jax
import jax.numpy as jnp
import pytest

from bert_jax.workdir import folder
from tests.micro import answerer
from tests.tasks.ner.ner_tasks import PIECES, pieces, task_in

SURE = pytest.approx(math.e / (math.e + 3), rel=1e-5)  # one logit of four is 1


@pytest.fixture
def task(tmp_path):
    return task_in(tmp_path)


def by_piece(made):
    """Replaces the device: the tag depends on the token that it is read from."""
    tags = {"P": "B-X", "U": "I-X", "d": "B-Y"}
    rows = [made.labels.index(tags.get(piece, "O")) for piece in PIECES]
    table = jnp.eye(len(made.labels))[jnp.array(rows)]
    return lambda batch: {"logits": table[batch["input_ids"]]}


def test_evaluation_answers_in_the_order_of_the_file(task, tmp_path):
    """Windows and padding and rows of other lengths make no difference."""
    words = ["a Pa Ub c a a a a a a Pa Ub", "d", "Pa", "b Ub", "c " * 30 + "d", "Ub d"]
    dev = "\n\n".join("\n".join(f"{w}\tO" for w in line.split()) for line in words)
    made = task(dev=dev, max_seq_length=10)
    made.fill_in({"evaluate.batch_size": 2})
    device = by_piece(made)
    batches = made.evaluation_batches("dev", 0, slice(None))
    results = made.results("dev", jax.device_get([device(x) for x in batches]))
    tags = {"Pa": "B-X", "Ub": "I-X", "d": "B-Y"}
    results.write(tmp_path)
    written = (tmp_path / "dev.conll").read_text().split("\n")
    for line, read in zip(written, [*dev.split("\n"), ""], strict=True):
        word = read.partition("\t")[0]
        assert line == (f"{read}\t{tags.get(word, 'O')}" if read else "")


def ask(made, rows):
    device = by_piece(made)
    made.outputs = lambda params, batch: device(batch)
    return answerer(made.predictor(), rows=2).answer(rows)


def test_predict_words(task):
    rows = [{"words": ["a", "Pa.", "Ub", "\x00"]}, {"words": ["d"]}, {"words": ["a"]}]
    first = {"label": "X", "start": 1, "end": 3, "words": ["Pa.", "Ub"], "score": SURE}
    second = {"label": "Y", "start": 0, "end": 1, "words": ["d"], "score": SURE}
    assert ask(task(), rows) == [
        {"tags": ["O", "B-X", "I-X", "O"], "entities": [first]},
        {"tags": ["B-Y"], "entities": [second]},
        {"tags": ["O"], "entities": []},
    ]


def test_predict_text_with_its_offsets(task):
    text = "  a\u2028Pa  Ub.d \U0001f600\x00d"
    (answer,) = ask(task(), [{"text": text}])
    assert answer["words"] == ["a", "Pa", "Ub.d", "\U0001f600", "\x00d"]
    assert answer["tags"] == ["O", "B-X", "I-X", "O", "B-Y"]
    assert answer["entities"] == [
        {"label": "X", "start": 4, "end": 12, "text": "Pa  Ub.d", "score": SURE},
        {"label": "Y", "start": 14, "end": 16, "text": "\x00d", "score": SURE},
    ]
    for entity in answer["entities"]:
        assert text[entity["start"] : entity["end"]] == entity["text"]
    assert json.loads(json.dumps(answer)) == answer


def test_word_ends_after_its_accents(task):
    text = "a Rene\u0301 d\u0308"
    (answer,) = ask(task(), [{"text": text}])
    assert answer["words"] == ["a", "Rene\u0301", "d\u0308"]
    for entity in answer["entities"]:
        assert entity["text"] in answer["words"]
        assert text[entity["start"] : entity["end"]] == entity["text"]


DOTTED = "P.U. a-b cc .|dd , U.P. .|ab ."


def test_text_is_split_as_the_training_data(task, tmp_path):
    """And so it is where the run is opened later."""
    lines = "\n\n".join(DOTTED.replace(" ", "\tB-X\n").split("|"))
    train = f"{lines}\tO\n".replace("\n\n", "\tO\n\n")
    labels = ("O", "B-X", "B-Y", "I-X")
    made = task(train=train, labels=labels)
    record = made.training_data().record
    (tmp_path / "data.json").write_text(json.dumps(record))
    opened = task(train=train, labels=labels)
    opened = opened.with_fitted(folder.read_facts(tmp_path, 7))
    text = "P.U. a-c, U.U. cd."
    (answer,) = ask(opened, [{"text": text}])
    assert answer["words"] == ["P.U.", "a-c", ",", "U.U.", "cd", "."]
    (tagged,) = ask(opened, [{"words": answer["words"]}])
    assert answer["tags"] == tagged["tags"]
    for entity in answer["entities"]:
        assert text[entity["start"] : entity["end"]] == entity["text"]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("spaces", ["Pa.Ub", "d."]),
        ("punctuation", ["Pa", ".", "Ub", "d", "."]),
        ("characters", [*"Pa.Ubd."]),
        ("learned", ["Pa.Ub", "d", "."]),
    ],
)
def test_rule_that_is_named(task, rule, words):
    (answer,) = ask(task(words=rule), [{"text": "Pa.Ub d."}])
    assert answer["words"] == words


def test_text_without_words_has_no_tags(task):
    found = ask(task(), [{"text": ""}, {"words": ["Pa"]}, {"text": " \x00\n"}])
    assert [answer["tags"] for answer in found] == [[], ["B-X"], []]
    assert found[0] == {"words": [], "tags": [], "entities": []}
    assert ask(task(), [{"words": []}]) == [{"tags": [], "entities": []}]


def test_rows_are_no_context_of_each_other(task):
    made = task(document_context=True)
    rows = [made.parse_row({"words": ["a"]}), made.parse_row({"text": "b c"})]
    features = made.encode(rows, "predict")
    assert [pieces(made, f)[1:-1] for f in features] == [["a"], ["b", "c"]]


@pytest.mark.parametrize("row", [{"words": ["a"], "text": "a"}, {"words": ["a", ""]}])
def test_rows_that_are_wrong(task, row):
    with pytest.raises(ValueError, match=r'"words"|"text"'):
        task().parse_row(row)
