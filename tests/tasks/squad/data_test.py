"""SQuAD's JSON: the parsed records, and the error for a bad file."""

import copy
import gzip
import importlib
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.tasks.squad import data as squad
from tests.micro import error_line
from tests.tasks.small_squad import gold_answer, squad_row

QUESTIONS = [
    {
        "id": 7,
        "question": "What is hot?",
        "answers": [{"text": "lait", "answer_start": 8}],
    },
    {"id": "x", "question": "", "answers": [], "is_impossible": True},
    {"id": "x", "question": "Who?\u0000"},
]
CONTEXT = "Caf\u00e9 au lait\u2028is hot."
GOOD = {"data": [{"paragraphs": [{"context": CONTEXT, "qas": QUESTIONS}]}]}


def test_squad_questions_that_are_read(tmp_path):
    text = json.dumps(GOOD, ensure_ascii=False, indent=1).replace("\n", "\r\n")
    for name, content in {
        "a.json": b"\xef\xbb\xbf" + text.encode("utf-8"),
        "a.json.gz": gzip.compress(json.dumps(GOOD).encode("ascii")),
    }.items():
        (tmp_path / name).write_bytes(content)
        examples = squad.read_questions(tmp_path / name)
        assert examples == [
            squad_row("7", "What is hot?", CONTEXT, [gold_answer("lait", 8)]),
            squad_row("x", "", CONTEXT, [], True),
            squad_row("x", "Who?\u0000", CONTEXT, None),
        ]


ANSWERS = [
    {"text": ["Rome", "in Rome"], "answer_start": [13, 10]},
    {"text": [], "answer_start": []},
    [{"text": "Rome", "answer_start": 13}],
    None,
]
ASKED = {"title": "", "context": "Ann lives in Rome.", "question": "Where?"}
ROWS = [{"id": str(n), **ASKED, "answers": own} for n, own in enumerate(ANSWERS)]


@pytest.mark.parametrize(
    "content",
    [
        "\n".join(map(json.dumps, ROWS)) + "\n\n",
        json.dumps(ROWS, indent=2),
        json.dumps({"version": "1.1", "data": ROWS}),
        json.dumps([{"context": ROWS[0]["context"], "qas": ROWS}]),
    ],
    ids=["lines", "list", "data", "paragraphs"],
)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_rows(tmp_path, content, name):
    (tmp_path / name).write_text(content, encoding="utf-8")
    examples = squad.read_questions(tmp_path / name)
    rome = gold_answer("Rome", 13)
    answers = [[rome, gold_answer("in Rome", 10)], [], [rome], None]
    assert [example["answers"] for example in examples] == answers
    assert [example["id"] for example in examples] == ["0", "1", "2", "3"]
    assert {example["question"] for example in examples} == {"Where?"}


def test_rows_of_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    rows = [row for row in ROWS if isinstance(row["answers"], dict)]
    table = importlib.import_module("pyarrow").Table.from_pylist(rows)
    parquet.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    expected = squad.read_questions(tmp_path / "a.jsonl")
    assert squad.read_questions(tmp_path / "a.parquet") == expected


PLAIN = (
    "Nguy\u1ec5n Du sinh t\u1ea1i Th\u0103ng Long, \u00e0 c\u00f4t\u00e9. Th\u0103ng?"
)


@pytest.mark.parametrize("answer", ["Th\u0103ng Long", "c\u00f4t\u00e9"])
@pytest.mark.parametrize(
    ("context", "text"), [("NFC", "NFD"), ("NFD", "NFC"), ("mixed", "NFC")]
)
@pytest.mark.parametrize("counted", ["context", "NFC", "NFD"])
def test_answers_composed_otherwise(tmp_path, answer, context, text, counted):
    """The place may count the characters of any of the forms."""

    def composed(text, form):
        if form == "mixed":  # e and o with a hat, the other marks apart
            return composed(text, "NFD").replace("e\u0302", "\u00ea")
        return unicodedata.normalize(form, text)

    before = PLAIN[: PLAIN.index(answer)]
    start = len(composed(before, context if counted == "context" else counted))
    row = {
        **{"id": "1", "question": "?", "context": composed(PLAIN, context)},
        "answers": [{"text": composed(answer, text), "answer_start": start}],
    }
    (tmp_path / "a.json").write_text(json.dumps([row]), encoding="utf-8")
    (example,) = squad.read_questions(tmp_path / "a.json")
    (found,) = example["answers"]
    expected = composed(answer, context)
    begin = len(composed(before, context))
    assert found["text"] == expected
    place = squad.find_answer(example["context"], found)
    assert place == (begin, begin + len(expected))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "questions", "unanswered"),
    [
        ("squad/train-v1.1.subset.json", 3_547, 0),
        ("squad/dev-v2.0.subset.json", 6_078, 3_168),
        ("squad/covid-qa.json", 1_380, 0),
        ("squad/tiny-squad2.json", 6, 1),
    ],
)
def test_squad_files(shared_data, name, questions, unanswered):
    examples = squad.read_questions(shared_data(name))
    assert len(examples) == questions
    assert sum(not example["answers"] for example in examples) == unanswered
    assert sum(example["is_impossible"] for example in examples) == unanswered
    moved = 0
    for example in examples:
        for answer in example["answers"]:
            begin, end = squad.find_answer(example["context"], answer)
            found = example["context"][begin:end]
            assert found.split() == answer["text"].split()
            moved += not example["context"].startswith(
                answer["text"], answer["answer_start"]
            )
    # In the file, 21 of the 234 are in a context that Unicode can write otherwise:
    # their start is corrected as they are read.
    assert moved == (213 if "covid" in name else 0)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (gold_answer("big cat", 4), "big  \ncat"),
        (gold_answer(" big", 3), "big"),
        (gold_answer(" big", 4), "big"),
        (gold_answer("cat ", 2), "cat"),
        (gold_answer("the", 13), "the"),
        (gold_answer("the", 32), None),
        (gold_answer("the", -11), None),
        (gold_answer("dog", 4), None),
        (gold_answer("c.t", 9), None),
        (gold_answer("  ", 4), None),
        (gold_answer("the", 10**12), None),
    ],
)
def test_answers_near_their_place(answer, found):
    context = "the big  \ncat the"
    place = squad.find_answer(context, answer)
    assert (place and context[slice(*place)]) == found


def test_answer_at_several_places_is_the_nearest():
    assert squad.find_answer("aa bb aa bb aa", gold_answer("aa", 5)) == (6, 8)
    assert squad.find_answer("aa bb aa bb aa", gold_answer("bb", 5)) == (3, 5)


@given(st.text(alphabet="ab \n", max_size=30), st.data())
def test_answer_that_stands_there_is_found_there(context, data):
    start = data.draw(st.integers(0, len(context)))
    end = data.draw(st.integers(start, len(context)))
    text = context[start:end]
    place = squad.find_answer(context, gold_answer(text, start))
    if text.strip():
        assert place[0] == start + len(text) - len(text.lstrip())
        assert context[slice(*place)] == text.strip()
    else:
        assert place is None


def changed(*steps, value=None):
    """GOOD with one value replaced, or without it."""
    content = copy.deepcopy(GOOD)
    *path, last = steps
    place = content
    for step in path:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return json.dumps(content)


PARAGRAPH = ("data", 0, "paragraphs", 0)
QUESTION = (*PARAGRAPH, "qas", 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[3]", "data[0]: not a JSON object; one with 'paragraphs' is"),
        ("3", "bad.json: not a JSON object; one with 'data' is"),
        ('{"id": 1, "context": "a", "question": "b"}\n{', "bad.json:2: not JSON"),
        (changed(*PARAGRAPH, "context"), "data[0].paragraphs[0]: has no 'context'"),
        (changed(*QUESTION, "id"), "data[0].paragraphs[0].qas[0]: has no 'id'"),
        (changed(*QUESTION, "question", value=3), "'question' is 3, not text"),
        (
            changed(*QUESTION, "answers", value=[{"text": "a"}]),
            ".answers[0]: has no 'answer_start'",
        ),
        (
            changed(*QUESTION, "answers", 0, "answer_start", value="8"),
            "'answer_start' is '8', not an integer",
        ),
        (changed(*QUESTION, "answers", 0, "text", value=8), "'text' is 8, not text"),
        (
            changed(*QUESTION, "is_impossible", value="no"),
            "'is_impossible' is 'no', not true or false",
        ),
        (changed(*QUESTION, "is_impossible", value=1), "is 1, not true or false"),
    ],
)
def test_squad_files_that_are_bad(tmp_path, content, message):
    path = tmp_path / "bad.json"
    path.write_text(content, encoding="utf-8")
    line = error_line(squad.read_questions, path)
    assert line.startswith(str(path)) and message in line
