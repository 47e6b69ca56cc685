"""A file whose words or tags are in other columns is refused, and these are named."""

import pytest

from bert_jax.errors import UserError
from bert_jax.tasks.ner.column_check import check_columns
from bert_jax.tasks.ner.conll import read_columns
from tests.data.conll_test import CONLL_2003, CONLL_U
from tests.data.conlleval_file_test import UNER


@pytest.fixture
def read(tmp_path):
    """Reads a text as a file of columns."""

    def from_text(text, token=0, tag=-1):
        (tmp_path / "a.txt").write_text(text)
        columns = {"token_column": token, "tag_column": tag}
        return read_columns(tmp_path / "a.txt", **columns, labelled=True)

    return from_text


def check(file, token, tag, in_entities=True):
    columns = {"token_column": token, "tag_column": tag}
    check_columns("a.txt", file, **columns, in_entities=in_entities)


BOTH = "set --config.task.token_column=1 --config.task.tag_column=2"


@pytest.mark.parametrize(
    ("columns", "in_entities", "expected"),
    [
        ((0, -1), True, (BOTH, "a.txt:3: ", "'Tampa'", "'B-LOC'")),
        ((0, 2), True, (BOTH, "token_column=0 has the numbers of the words")),
        ((0, -1), False, (BOTH,)),
        ((1, -1), True, ("set --config.task.tag_column=2", "the tag 'stephen' has no")),
        ((1, 0), True, ("set --config.task.tag_column=2", "the tag '1' has no")),
    ],
)
def test_other_columns_than_words_and_tags(read, columns, in_entities, expected):
    with pytest.raises(UserError) as error:
        check(read(UNER, *columns), *columns, in_entities)
    assert all(part in str(error.value) for part in expected), error.value
    assert "\n" not in str(error.value)
    assert "scheme" not in str(error.value)


def test_columns_that_are_right(read):
    for text, columns in ((UNER, (1, 2)), (CONLL_2003, (0, -1)), ("1 O\n", (0, 1))):
        check(read(text, *columns), *columns)
    check(read(CONLL_U, 1, 3), 1, 3, in_entities=False)
    with pytest.raises(
        UserError, match=r"'SYM' has no .* set --config.task.scheme=none"
    ):
        check(read(CONLL_U, 1, 3), 1, 3)


def test_one_tag_that_is_wrong(read):
    file = read("a O\nb B-X\n" * 9 + "c X\n")
    with pytest.raises(
        UserError, match=r"txt:19: the tag 'X' .*; fix the line"
    ) as error:
        check(file, 0, -1)
    assert "config" not in str(error.value)
