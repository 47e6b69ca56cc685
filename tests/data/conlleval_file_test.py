"""Files with tags in other columns than the last, and what is written for conlleval."""

import pytest

from bert_jax.tasks.ner import scores
from bert_jax.tasks.ner.conll import read_columns, with_column
from tests.data.conll_test import CONLL_U


@pytest.fixture
def read(tmp_path):
    """Reads a text as a file of columns."""

    def from_text(text, token_column=0, tag_column=-1, labelled=True):
        (tmp_path / "a.conll").write_text(text)
        columns = {"token_column": token_column, "tag_column": tag_column}
        return read_columns(tmp_path / "a.conll", **columns, labelled=labelled)

    return from_text


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


def conlleval_f1(text, delimiter):
    """F1 of the last column against the one before, as conlleval reads a file."""
    columns = [line.split(delimiter)[-2:] for line in text.splitlines() if line]
    gold, guessed = zip(*columns, strict=True)
    return scores.entity_scores([gold], [guessed])["f1"]


def test_tags_in_the_middle_can_be_scored(read):
    file = read(UNER, 1, 2)
    tags = [list(sentence.tags) for sentence in file.sentences]
    assert conlleval_f1(with_column(file, tags), "\t") == 1
    tags[0][-1] = "O"
    text = with_column(file, tags)
    assert conlleval_f1(text, "\t") == pytest.approx(2 / 3)
    assert text.splitlines()[3] == "4\tU.S.\tB-LOC\t-\t-\tB-LOC\tO"
    spaces = read("-DOCSTART- O -\n\na B-X -\n", 0, 1)
    assert with_column(spaces, [["O"]]) == "-DOCSTART- O - O O\n\na B-X - B-X O\n"
    bare = read("1 a\n2 b\n", 1, 2, labelled=False)
    assert with_column(bare, [["O", "O"]]) == "1 a O\n2 b O\n"


@pytest.mark.parametrize("name", ["NER", "name"])
def test_tags_in_misc(read, name):
    lines = CONLL_U.replace("_\t_\n", f"_\tSpaceAfter=No|{name}=B-X|Ref=3\n", 1)
    file = read(lines, 1)
    assert file.sentences[0].tags == ("B-X", *["O"] * 4)
    assert set(file.sentences[1].tags) == {"O"}
    tags = [list(sentence.tags) for sentence in file.sentences]
    assert conlleval_f1(with_column(file, tags), "\t") == 1
    assert read(CONLL_U, 1, labelled=False).sentences[0].tags is None


def test_one_tab_in_a_file_of_spaces(read):
    file = read("EU B-ORG\nrejects  O\nGerman\tB-MISC\ncall O\n")
    assert file.sentences[0].words == ("EU", "rejects", "German", "call")
    assert file.sentences[0].tags == ("B-ORG", "O", "B-MISC", "O")
    assert "German B-MISC O\n" in with_column(file, [["O"] * 4])
