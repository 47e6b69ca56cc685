"""Files of the Hub's data sets that are missing there, or damaged in the cache."""

import io

import pyarrow
import pytest
from pyarrow import parquet

from bert_jax.data.sources import hub as hub_source
from bert_jax.errors import UserError

NAME = "people/reviews"


@pytest.fixture
def content():
    file = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": ["a"]}), file)
    return file.getvalue()


@pytest.mark.parametrize("lost", range(3))
def test_a_split_that_lacks_a_file_is_refused(fake_hub, content, lost):
    """It gave fewer rows."""
    names = [f"data/train-0000{n}-of-00003.parquet" for n in range(3)]
    whole = dict.fromkeys(names, content)
    sent = {name: content for name in names if name != names[lost]}
    fake_hub.models[NAME] = {"main": sent, "whole": whole}
    with pytest.raises(UserError, match=r"data: has 2 of the 3 files .*train-0000"):
        hub_source.files(f"hf:{NAME}", "train")
    assert len(hub_source.files(f"hf:{NAME}@whole", "train")) == 3
