"""Columns and JSON's rows are read as they are, tags written as conlleval reads."""

import gzip
import json
import re

import pytest
from hypothesis import strategies as st

from bert_jax.tasks.ner.data import check_columns, format_columns
from bert_jax.tasks.ner.data import read_sentences as read_columns
from tests.micro import error_line, write_rows

COLUMNS = {"token_column": 0, "tag_column": -1, "labelled": True}
NUMBERED = '\n{"tokens": ["EU", "a"], "ner_tags": [1, 0]}\n'
CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

Peter NNP B-NP B-PER
-DOCSTART- -X- -X- O

BRUSSELS NNP B-NP B-LOC
"""


@pytest.fixture
def read(tmp_path):
    """Reads a text as a file of columns."""

    def from_text(text, token_column=0, tag_column=-1, labelled=True):
        path = tmp_path / "file.conll"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        columns = {"token_column": token_column, "tag_column": tag_column}
        return read_columns(path, **columns, labelled=labelled)

    from_text.path = tmp_path / "file.conll"
    return from_text


def test_documents_and_line_numbers(read):
    found = read(CONLL_2003)
    assert [(s["words"], s["tags"], s["document"], s["places"]) for s in found] == [
        (("EU", "rejects"), ("B-ORG", "O"), 1, (3, 4)),
        (("Peter",), ("B-PER",), 1, (6,)),
        (("BRUSSELS",), ("B-LOC",), 2, (9,)),
    ]


def test_any_column_may_hold_the_words(read):
    (sentence,) = read("1\tO\tHe\n2\tO\tsat\n", 2, 1)
    assert sentence["words"] == ("He", "sat")


@pytest.mark.parametrize(
    "content",
    [
        b"a\tO\nb\tO\n\nc\tB-X\n",
        b"\xef\xbb\xbfa\tO\nb\tO\n\nc\tB-X",
        b"a\tO\r\nb\tO\r\n\r\nc\tB-X\r\n\r\n",
        b"\n \na O\nb O \n\t\n\n\nc  B-X",
        b"a\tO\nb\tO\n\t\nc\tB-X\n\t\n",
    ],
)
def test_read_sentences_takes_any_line_end(read, content):
    sentences = read(content)
    assert [s["words"] for s in sentences] == [("a", "b"), ("c",)]
    assert [s["tags"] for s in sentences] == [("O", "O"), ("B-X",)]


def test_words_may_be_odd(read):
    words = ("\x85", "a\u2028b", '"', "\x00", "\u00a0", "a b", "'")
    text = "".join(f"{word}\tO\n" for word in words)
    file = read(text)
    assert file[0]["words"] == words
    written = format_columns(file, [["O"] * len(words)])
    assert written == text.replace("\tO\n", "\tO\tO\n")
    spaces = "".join(f"{word} O\n" for word in words if " " not in word)
    assert read(spaces)[0]["words"] == tuple(w for w in words if " " not in w)


@pytest.mark.parametrize(
    ("tag_column", "text"), [(-1, "a\nb\n\nc\n"), (2, "a X\nb X\n\nc Y")]
)
def test_file_without_tags(read, tag_column, text):
    file = read(text, tag_column=tag_column, labelled=False)
    assert [s["words"] for s in file] == [("a", "b"), ("c",)]
    assert all(s["tags"] is None for s in file)


ROW = '{"tokens": ["a"], "tags": ["O"]}\n'


@pytest.mark.parametrize(
    ("text", "columns", "said"),
    [
        ("a O\n\nb c O\n", {}, ":3: 3 columns between spaces, but line 1 has 2"),
        ("a\tO\nb O\n", {}, ":2: 1 column between tabs, but line 1 has 2"),
        ("a\tO\nb\t \n", {}, ":2: the word or the tag is empty"),
        ("", {}, ".*the file is empty"),
        ("a\nb\n\nc\n", {}, ":1: .*tag_column=-1 is no"),
        ("a X\nb X\n\nc Y", {"tag_column": 2}, ":1: .*tag_column=2 is no"),
        (ROW + '{"words": ["a"]}\n', {}, ":2: has no tags"),
        (ROW + "a O\n", {}, ":2: not JSON"),
        (ROW + '{"tokens": ["b"]}\n', {}, ":2: has no tags"),
        ('{"tokens": ["a"], "tags": []}\n', {}, ":1: 1 words and 0 tags"),
        (NUMBERED, {"labels": ()}, r":2: 2 words .*task\.labels"),
        (NUMBERED, {"labels": ("O",)}, r":2: 2 words .*task\.labels"),
    ],
)
def test_sentences_that_are_wrong(tmp_path, text, columns, said):
    path = tmp_path / ("a.jsonl" if "{" in text else "a.txt")
    path.write_text(text)
    line = error_line(read_columns, path, **{**COLUMNS, **columns})
    assert re.match(re.escape(str(path)) + said, line)


CONLL_U = """\
# newdoc id = weblog-1
# sent_id = 1
# text = # 1 I don't know.
1	#	#	SYM	_	_	0	root	_	_
2	1	1	NUM	_	_	1	nummod	_	_
3	I	I	PRON	_	_	5	nsubj	_	_
4-5	don't	_	_	_	_	_	_	_	_
4	do	do	AUX	_	_	5	aux	_	_
5	not	not	PART	_	_	1	dep	_	_
5.1	know	know	VERB	_	_	_	_	_	_

#
#sent_id = 2
1-2	Du	_	_	_	_	_	_	_	_
1	De	de	ADP	_	_	0	root	_	_
2	le	le	DET	_	_	1	det	_	_

# newdoc
# text = 1-2
1	1-2	1-2	NUM	_	_	0	root	_	_
"""


def independent(text, token, tag):
    """CoNLL-U by its own rules: what starts with # is a comment, and only a whole
    number is a word's."""
    rows = [[x.split("\t") for x in b.split("\n")] for b in text.split("\n\n")]
    words = [[r for r in sentence if r[0].isdigit()] for sentence in rows]
    return [[(row[token], row[tag]) for row in sentence] for sentence in words]


def test_conll_u(read):
    file = read(CONLL_U, 1, 3)
    found = [list(zip(s["words"], s["tags"], strict=True)) for s in file]
    assert found == independent(CONLL_U.strip(), 1, 3)
    assert [sentence["document"] for sentence in file] == [1, 1, 2]
    lines = CONLL_U.split("\n")
    for sentence in file:
        there = [lines[number - 1].split("\t")[1] for number in sentence["places"]]
        assert there == list(sentence["words"])


@pytest.mark.parametrize(
    ("comments", "words"),
    [
        # WNUT17: a word may be #, or start with it. A range is a word.
        ("# text = a\n# b\tc d\n", "#\tO\n#Quake\tB-event\n1-2\tO\n1.5\tO\n"),
        # MultiCoNER: spaces between columns, a tab in the comment.
        ("# id 0f-1\tdomain=en\n", "# _ _ O\nthe _ _ B-CW\n"),
        ("# sent_id = 7\n", "# NN B-NP O\n1-2 CD I-NP O\n"),  # as wide as the words
        ("###MEDLINE:95369245\n\n", "IL-2\tB-DNA\ngene\tI-DNA\n"),  # JNLPBA
        ("# a comment\n", "#\n##\na\n"),  # words only
    ],
)
def test_comments_of_iob2_and_words_like_them(read, comments, words):
    rows = [line.split() for line in words.splitlines()]
    block = f"{comments}{words}\n"
    file = read(block * 2, labelled=len(rows[0]) > 1)
    assert [s["words"] for s in file] == [tuple(row[0] for row in rows)] * 2
    if len(rows[0]) > 1:
        assert file[1]["tags"] == tuple(row[-1] for row in rows)
    assert file[1]["document"] == (2 if "MEDLINE" in comments else 0)


letters = st.text(
    st.characters(exclude_characters="\n\r\t ", exclude_categories=["Cs"]), min_size=1
)
word = letters.filter(lambda text: not text.startswith(("-DOCSTART-", "\ufeff")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sentences", "words"),
    [
        ("wnut17train.conll", 3394, 62730),
        ("emerging.dev.conll", 1009, 15733),
        ("emerging.test.annotated", 1287, 23394),
    ],
)
def test_wnut17(shared_data, name, sentences, words):
    path = shared_data(f"ner/{name}")
    file = read_columns(path, **COLUMNS)
    assert len(file) == sentences
    assert sum(len(sentence["words"]) for sentence in file) == words
    ours = format_columns(file, [s["tags"] for s in file]).split("\n")
    theirs = path.read_text("utf-8").split("\n")
    ours, theirs = ([x for x in text if x.strip()] for text in (ours, theirs))
    for mine, line in zip(ours, theirs, strict=True):
        assert mine == f"{line}\t{line.split(chr(9))[1]}"


UNER = """\
# sent_id = 1
# text = Tampa Bay, U.S.
1	Tampa	B-LOC	-	stephen
2	Bay	I-LOC	-	stephen
3	,	O	-	-
4	U.S.	B-LOC	-	-

# sent_id = 2
1	No	O	-	-
2	!	O	-	-
"""


@pytest.mark.parametrize(
    ("text", "columns", "said"),
    [
        (UNER, (0, -1), "conll:3: the words are numbers; config.task.token_column"),
        (
            UNER,
            (1, -1),
            "conll:3: the tag 'stephen' has no prefix such as B- or I-; correct",
        ),
        (
            "a O\nb B-X\n" * 9 + "c X\n",
            (0, -1),
            r"conll:19: the tag 'X' .*; correct it",
        ),
    ],
)
def test_words_and_tags_that_are_none(read, text, columns, said):
    file = read(text, *columns)
    line = error_line(check_columns, str(read.path), file, has_entities=True)
    assert re.search(said, line)


def test_words_that_look_like_numbers_of_words_stay(tmp_path):
    path = tmp_path / "lemmas.txt"
    path.write_text("he He O\n3.5 3.5 O\n1990-95 1990-95 B-X\nbe is O\n")
    file = read_columns(path, token_column=1, tag_column=-1, labelled=True)
    assert file[0]["words"] == ("He", "3.5", "1990-95", "is")


ROWS = [
    {"id": 1, "tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"]},
    {"id": 2, "tokens": [], "ner_tags": []},
    {"id": 3, "tokens": ["Peter"], "ner_tags": ["B-PER"]},
]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.jsonl.gz"])
def test_rows_of_json(tmp_path, name):
    text = "".join(f"{json.dumps(row)}\n" for row in ROWS)
    content = text.encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    file = read_columns(path, **COLUMNS)
    found = [(s["words"], s["tags"], s["places"][0]) for s in file]
    assert found == [
        (("EU", "rejects"), ("B-ORG", "O"), 1),
        (("Peter",), ("B-PER",), 3),
    ]
    assert format_columns(file, [["O", "O"], ["O"]]).splitlines()[0] == "EU\tB-ORG\tO"


def test_numbers_are_the_labels_that_are_given(tmp_path):
    (tmp_path / "a.jsonl").write_text(NUMBERED)
    labels = ("O", "B-ORG")
    (sentence,) = read_columns(tmp_path / "a.jsonl", **COLUMNS, labels=labels)
    assert sentence["tags"] == ("B-ORG", "O") and sentence["places"] == (2, 2)


@pytest.mark.parametrize("has_tags", [True, False])
def test_words_of_rows_may_have_spaces(tmp_path, has_tags):
    """Also behind a #, which is no comment there."""
    words = [["# a", "10\u00a0000"], ["New York", "b"], ["#", " "], ["x"]]
    tags = [["B-LOC"] * len(each) for each in words]
    rows = [
        {"tokens": some} | ({"ner_tags": own} if has_tags else {})
        for some, own in zip(words, tags, strict=True)
    ]
    path = write_rows(tmp_path / "a.jsonl", rows)
    file = read_columns(path, **{**COLUMNS, "labelled": has_tags})
    found = [list(sentence["words"]) for sentence in file]
    assert found == [["# a", "10 000"], *words[1:]]
    known = [sentence["tags"] and list(sentence["tags"]) for sentence in file]
    assert known == (tags if has_tags else [None] * 4)
