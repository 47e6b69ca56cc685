"""Files of the Hub's data sets that are missing there, or damaged in the cache."""

import io
import re
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from bert_jax.data.sources import hub as hub_source
from bert_jax.errors import UserError
from bert_jax.runtime import hub

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


def test_files_of_two_splits_that_begin_alike_are_not_one(fake_hub, content):
    names = ("train-00000-of-00002-0a1b", "train-00001-of-00002-0a1b", "train-more-0")
    fake_hub.models[NAME] = {"main": {f"{n}.parquet": content for n in names}}
    assert len(hub_source.files(f"hf:{NAME}", "train")) == 3


def test_a_damaged_file_is_downloaded_again_once_it_is_deleted(fake_hub, content):
    """The line names the file that the link in the cache leads to."""
    fake_hub.models[NAME] = {"main": {"train-0.parquet": content}}
    (path,) = hub_source.required(f"hf:{NAME}", "train")
    path.resolve().write_bytes(content[:-9])
    hub.downloaded.cache_clear()  # a new process
    for _ in range(2):
        (path,) = hub_source.required(f"hf:{NAME}", "train")
        with pytest.raises(UserError, match="cannot be read as parquet") as caught:
            list(hub_source.rows(path))
    named = re.search(
        r"; delete (/.*), and the same command downloads", str(caught.value)
    )
    Path(named[1]).unlink()
    hub.downloaded.cache_clear()
    (path,) = hub_source.required(f"hf:{NAME}", "train")
    assert list(hub_source.rows(path)) == [{"text": "a"}]
