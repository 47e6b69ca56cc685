"""Texts with entities as spans: read, refused, and written as they are read."""

import json
import re

import jax.numpy as jnp
import pytest

from bert_jax.data.word_splitting import SPACES, WordSplitter, bert_words
from bert_jax.tasks.ner import data, spans
from bert_jax.tasks.ner.task import Tagged
from bert_jax.workdir import folder
from tests.micro import answerer, error_line, write_rows
from tests.tasks.ner.ner_tasks import task_in

TEXT = "Ana M.\u00a0was (in Rome-Ost)\u200b \U0001f600 \u65e5\u672c."
PEOPLE = {"start": 0, "end": 5, "label": "PER"}
PLACE = {"start": 15, "end": 23, "label": "LOC"}


def tagged(entities, split=bert_words, text=TEXT, name="entities"):
    row = spans.tag_text("a:1", {"text": text, name: entities}, split)
    pairs = zip(row["words"], row["tags"], strict=True)
    return [(word, tag) for word, tag in pairs if tag != "O"]


@pytest.mark.parametrize(
    "entities",
    [
        [PEOPLE, PLACE],
        [PLACE, {**PEOPLE, "text": "Ana M", "score": 0.5}],
        [{"id": 3, "label": "PER", "start_offset": 0, "end_offset": 5}, PLACE],
        [[0, 5, "PER"], [14, 23, "LOC"]],  # with the space before it
    ],
    ids=["ours", "with more", "Doccano", "spaCy"],
)
@pytest.mark.parametrize("name", spans.NAMES)
def test_spans_become_tags(entities, name):
    assert TEXT[15:23] == "Rome-Ost"
    assert tagged(entities, name=name) == [
        ("Ana", "B-PER"),
        ("M", "I-PER"),
        ("Rome", "B-LOC"),
        ("-", "I-LOC"),
        ("Ost", "I-LOC"),
    ]


def test_neighbors_of_one_label_are_two_entities():
    both = [{**PEOPLE, "end": 3}, {"start": 4, "end": 5, "label": "PER"}]
    assert tagged(both) == [("Ana", "B-PER"), ("M", "B-PER")]


@pytest.mark.parametrize(
    ("entities", "message"),
    [
        ({"start": 0}, "entities must be a list"),
        (["PER"], r"entities\[0\]: 'PER' has no start, end and label"),
        ([{**PEOPLE, "label": " "}], r"entities\[0\]: its label ' ' must be a name"),
        ([{**PEOPLE, "label": 3}], "its label 3 must be a name"),
        ([{**PEOPLE, "label": "a\tb"}], "must be a name"),
        ([{**PEOPLE, "start": 24, "end": 25}], "there is no word from 24 to 25"),
        ([PLACE, {**PEOPLE, "end": 99}], r"entities\[1\]: .*a part of the text of 31"),
        ([{**PEOPLE, "start": -1}], "start=-1 and end=5 must be a part"),
        ([{**PEOPLE, "start": 5}], "start=5 and end=5 must be a part"),
        ([{**PEOPLE, "end": 5.0}], "must be a part of the text"),
        ([{**PEOPLE, "end": True}], "must be a part of the text"),
        ([{**PEOPLE, "start": 6, "end": 7}], "must be a part of the text"),  # a space
        ([{**PEOPLE, "end": 2}], r"'An' \(0 to 2\) cuts the word 'Ana' \(0 to 3\)"),
        ([PEOPLE, {**PEOPLE, "start": 4}], r"entities\[1\]: the word 'M' .* another"),
    ],
    ids=str,
)
def test_spans_that_are_wrong(entities, message):
    row = {"text": TEXT, "entities": entities}
    line = error_line(spans.tag_text, "a:7", row, bert_words)
    assert line.startswith("a:7: ") and re.search(message, line), line


def test_words_are_those_of_the_field():
    """Where words are split at spaces, a mark at their end belongs to them."""
    line = error_line(tagged, [PEOPLE], WordSplitter(SPACES).spans)
    assert "'Ana M' (0 to 5) cuts the word 'M.' (4 to 6)" in line
    assert tagged([{**PEOPLE, "end": 6}], WordSplitter(SPACES).spans)[1][0] == "M."


def test_file_of_rows_of_several_kinds(tmp_path):
    """Prodigy's rows have objects as tokens. A text alone has no tags."""
    rows = [
        {
            "text": "Ana",
            "spans": [{"start": 0, "end": 3, "label": "X"}],
            "tokens": [{}],
        },
        {"words": ["Ana", "b"], "tags": ["B-X", "O"], "entities": []},
        {"text": "no", "entities": [], "answer": "reject"},
        {"text": "in Rome", "entities": None},
    ]
    path = write_rows(tmp_path / "a.jsonl", rows)
    columns = {"token_column": 0, "tag_column": -1}
    found = data.read_sentences(path, **columns, labelled=False)
    assert [(x["words"], x["tags"], x["places"][0]) for x in found] == [
        (("Ana",), ("B-X",), 1),
        (("Ana", "b"), ("B-X", "O"), 2),
        (("in", "Rome"), None, 4),
    ]
    line = error_line(data.read_sentences, path, **columns, labelled=True)
    assert "a.jsonl:4: has no tags" in line and "entities" in line
    for row, said in (({"label": "x"}, "no tokens"), ({"text": " "}, "no word")):
        path = write_rows(tmp_path / "b.jsonl", [row])
        line = error_line(data.read_sentences, path, **columns, labelled=False)
        assert "b.jsonl:1: " in line and said in line


def test_answers_can_be_trained_on(tmp_path):
    """A run of spans answers in their form, and splits a text at the same places."""
    text = "Pa-Ub. d P.U"
    given = [{"start": 0, "end": 5, "label": "X"}, {"start": 7, "end": 8, "label": "Y"}]
    train = write_rows(tmp_path / "t.jsonl", [{"text": text, "entities": given}])
    made = task_in(tmp_path)(train_file=train, dev_file=train)
    (tmp_path / "data.json").write_text(json.dumps(made.training_data().record))
    made = made.with_fitted(folder.read_facts(tmp_path, 7))
    assert made.labels == ("O", "B-X", "B-Y", "I-X")
    size = made.tokenizer.get_vocab_size()
    known = {"P": "B-X", "d": "B-Y", "U": "I-X", "##a": "O"}
    pieces = [made.tokenizer.id_to_token(i) for i in range(size)]
    tags = [made.labels.index(known.get(piece, "O")) for piece in pieces]
    table = 50.0 * jnp.eye(4)[jnp.array(tags)]
    made.outputs = lambda params, batch: {"logits": table[batch["input_ids"]]}
    (answer,) = answerer(made.predictor()).answer([{"text": text}])
    assert answer["words"] == ["Pa", "-", "Ub", ".", "d", "P", ".", "U"]
    path = write_rows(tmp_path / "again.jsonl", [{"text": text, **answer}])
    columns = {"token_column": 0, "tag_column": -1}
    (row,) = data.read_sentences(path, **columns, labelled=True)
    guessed = Tagged(answer["tags"], [1.0] * len(answer["tags"]))
    found = made.definition.prediction_files("dev", [row], [guessed])
    assert json.loads(found["dev.jsonl"])["text"] == text
    written = json.loads(found["dev.jsonl"])
    assert [{**x, "score": 1.0} for x in written["gold"]] == written["entities"]
    written = written["entities"]
    for entity in written:
        assert text[entity["start"] : entity["end"]] == entity["text"]
        assert entity["score"] == pytest.approx(1.0)


@pytest.mark.parametrize("scheme", ["entities", "none"])
def test_rows_of_words_and_of_texts_have_one_file(tmp_path, scheme):
    rows = [
        {"text": "Pa", "entities": [{"start": 0, "end": 2, "label": "X"}]},
        {"tokens": ["d"], "ner_tags": ["O"]},
    ]
    path = write_rows(tmp_path / "t.jsonl", rows[: 2 if scheme == "entities" else 1])
    made = task_in(tmp_path)(train_file=path, dev_file=path, scheme=scheme)
    found = made.examples("dev")
    answers = [Tagged(["O"] * len(row["words"]), [1.0]) for row in found]
    files = made.definition.prediction_files("dev", found, answers)
    assert [*files] == ["dev.conll"]
