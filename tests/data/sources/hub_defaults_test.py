"""The sources that configs name by default, from a Hub: Wikipedia and books.

Parquet of both layouts: the articles' folder has a config's name, the books' is `data`.
"""

import gzip
import importlib
import itertools
import json
import shutil

import pytest
from huggingface_hub import constants

from bert_jax.data import corpus
from bert_jax.runtime import hub
from tests.data.sources.hub_test import as_parquet
from tests.runs import here, losses

WIKIPEDIA, BOOKS, NEWS = "wikimedia/wikipedia", "emozilla/pg19", "dvruette/lm1b"
ARTICLE = """Bern is the capital of Switzerland, a country in the Alps.

History
The old town was built in the twelfth century on a narrow hill above the river.

Districts
 Old town
 Kirchenfeld

See also
Zurich, which is the largest city of the country, has its own article.
"""
BOOK = "It was the best of times,\nit was the worst of times.\n\nIt was an age.\n"


def served(fake_hub, articles, books):
    """The files are of half the rows each."""

    def files(form, texts):
        half = len(texts) // 2
        parts = texts[:half], texts[half:]
        rows = ([{"id": "1", "text": text} for text in part] for part in parts)
        return {form.format(i): as_parquet(part) for i, part in enumerate(rows)}

    fake_hub.models[WIKIPEDIA] = {"main": {}}
    for config in ("20231101.en", "20231101.simple"):
        fake_hub.models[WIKIPEDIA]["main"] |= files(
            f"{config}/train-0000{{}}-of-00002.parquet", articles
        )
    for name in (BOOKS, NEWS):
        content = files("data/train-{}-of-2-1ab.parquet", books)
        fake_hub.models[name] = {"main": content}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["base", "english", "elmo"])
def test_default_sources_are_read(fake_hub, tmp_path, name):
    served(fake_hub, [ARTICLE] * 2, [BOOK] * 2)
    sources = importlib.import_module(f"configs.{name}").get_config().corpus.sources
    found = list(corpus.read_documents(tuple(sources), tmp_path))
    assert len(found) == 2 * len(sources)
    for document in found:
        lines = corpus.split_sentences(document, "en")
        if "wikipedia" in sources[document.source]:  # no headings, no list, no links
            assert [line.split()[0] for line in lines] == ["Bern", "The"]
        else:
            assert lines == [
                "It was the best of times, it was the worst of times.",
                "It was an age.",
            ]


SMALL = {
    "model.hidden_size": 32,
    "model.num_attention_heads": 2,
    "model.num_hidden_layers": 1,
    "model.intermediate_size": 64,
    "tokenizer.vocab_size": 300,
    "train.batch_size": 8,
    "train.num_steps": 4,
    "train.log_every": 1,
    "evaluate.batch_size": 8,
    "optimizer.warmup_steps": 0,
    "phase2.fraction": 0.0,
}


@pytest.fixture
def real(fake_hub, shared_data):
    """Real articles and chapters."""

    def texts(name):
        path = shared_data(f"corpus/english/{name}.jsonl.gz")
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return [json.loads(line)["text"] for line in itertools.islice(file, 30)]

    served(fake_hub, texts("04-encyclopedia-1"), texts("01-books-novels"))
    return fake_hub


@pytest.mark.slow
def test_default_config_trains_and_needs_the_hub_once(real, tmp_path, monkeypatch):
    """The second run resumes without a network, and a third has no text."""
    flags = [f"--config.{field}={value}" for field, value in SMALL.items()]
    flags += ["--config=configs/base.py", f"--config.corpus.data_dir={tmp_path}/data"]
    here(*flags, f"--workdir={tmp_path / 'run'}", "--config.train.num_steps=2")
    shutil.rmtree(tmp_path / "cache")
    hub.download_snapshot.cache_clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    extended = ["--config.train.extend=True", f"--workdir={tmp_path / 'run'}"]
    here(*flags, *extended)
    assert len(losses(tmp_path / "run")) == 4
    _, err = here(*flags, f"--workdir={tmp_path / 'none'}", status=2)
    assert f"hf:{WIKIPEDIA}: not in the cache" in err and err.count("\n") == 1
