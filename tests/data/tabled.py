"""What a table gives: its rows, or its error."""

import pytest

from bert_jax.data.columns import Wanted
from bert_jax.data.tables import read_table
from bert_jax.errors import UserError


def rows(source, columns=()):
    return [record.fields for record in read_table(source, Wanted(tuple(columns)))]


def error(source, columns=()):
    with pytest.raises(UserError) as caught:
        read_table(source, Wanted(tuple(columns)))
    message = str(caught.value)
    assert "\n" not in message
    return message
