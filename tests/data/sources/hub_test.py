"""Data sets of the Hugging Face Hub: the same records as the official files."""

import gzip
import importlib
import io
import itertools
import json
import math
import operator
import re
import shutil
from collections import Counter

import pyarrow
import pytest
from huggingface_hub import constants
from pyarrow import parquet

from bert_jax.data import corpus
from bert_jax.data.sources import hub as hub_source
from bert_jax.runtime import hub
from bert_jax.tasks.glue import data as glue
from bert_jax.tasks.ner import data as ner
from bert_jax.tasks.squad import data as squad
from tests.micro import error_line
from tests.runs import here, losses

NAME = "people/glue"
CLASSES = {
    "mrpc": ["not_equivalent", "equivalent"],
    "mnli": ["entailment", "neutral", "contradiction"],
    "rte": ["entailment", "not_entailment"],
}


def with_features(rows, features):
    """As `datasets` writes it: the names of classes are in the schema."""
    about = json.dumps({"info": {"features": features}})
    table = pyarrow.Table.from_pylist(rows)
    file = io.BytesIO()
    parquet.write_table(table.replace_schema_metadata({"huggingface": about}), file)
    return file.getvalue()


def as_parquet(rows, **classes):
    kinds = {x: {"names": y, "_type": "ClassLabel"} for x, y in classes.items()}
    return with_features(rows, kinds)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "folder", "columns"),
    [
        ("mrpc", "MRPC", ("sentence1", "sentence2")),
        ("mnli", "MNLI", ("premise", "hypothesis")),
        ("stsb", "STS-B", ("sentence1", "sentence2")),
    ],
)
def test_records_are_those_of_the_official_files(
    fake_hub, shared_data, name, folder, columns
):
    official = shared_data(f"glue/{folder}")
    labels = glue.TASKS[name].labels
    splits = {"train": "train", "dev": "validation"}
    if name == "mnli":  # the sample at hand has no official dev file
        del splits["dev"]
    expected, sent = {}, {}
    for split, theirs in splits.items():
        found = glue.read_split(name, str(official), split, Counter())
        expected[split] = found
        rows = []
        for place, record in enumerate(found):
            label = record["label"]
            if name in ("mnli", "rte"):
                label = CLASSES[name].index(label)
            elif labels:
                label = labels.index(label)
            pair = (record["text"], record["text_b"])
            texts = dict(zip(columns, pair, strict=True))
            rows.append({**texts, "label": label, "idx": place})
        half = len(rows) // 2
        for part, own in enumerate((rows[:half], rows[half:])):
            classes = {"label": CLASSES[name]} if name in CLASSES else {}
            file = f"{name}/{theirs}-0000{part}-of-00002.parquet"
            sent[file] = as_parquet(own, **classes)
    fake_hub.models[NAME] = {"main": sent}
    for split, records in expected.items():
        found = glue.read_split(name, f"hf:{NAME}", split, Counter())
        columns = operator.itemgetter("text", "text_b", "label")
        assert [*map(columns, found)] == [*map(columns, records)]
    assert glue.read_split(name, f"hf:{NAME}", "test", Counter()) is None


@pytest.mark.slow
def test_hubs_own_conversion_is_read_where_a_set_has_no_parquet(fake_hub, tmp_path):
    content = as_parquet([{"text": "One."}, {"text": "Two."}])
    converted = {"default/train/0000.parquet": content}
    fake_hub.models[NAME] = {
        "main": {"train.csv": b"text\nOne.\n"},
        "refs/convert/parquet": converted,
    }
    documents = corpus.read_documents((f"hf:{NAME}",), tmp_path)
    assert [document.text for document in documents] == ["One.", "Two."]
    first = corpus.text_identity((f"hf:{NAME}",))
    assert first[0][:2] == ["hf", 1]  # as of files: their number
    assert first == corpus.text_identity((f"hf:{NAME}",))


def test_bytes_are_text_and_no_number_is_nothing(tmp_path):
    text = pyarrow.array([b"caf\xc3\xa9"] * 2, pyarrow.binary())
    table = pyarrow.table({"text": text, "score": [math.nan, math.inf]})
    parquet.write_table(table, tmp_path / "a.parquet")
    found = list(hub_source.parquet_rows(tmp_path / "a.parquet"))
    assert found == [{"text": "café", "score": None}] * 2


def test_corpus_reads_its_column_alone(tmp_path):
    picture = pyarrow.array([b"\xff\xd8"], pyarrow.binary())  # is no text
    parquet.write_table(
        pyarrow.table({"text": ["One."], "image": picture}), tmp_path / "a.parquet"
    )
    source = f"parquet:{tmp_path}/a.parquet"
    (document,) = corpus.read_documents((source,), tmp_path)
    assert document.text == "One."
    (tmp_path / "b.parquet").write_bytes(as_parquet([{"texts": "One.", "label": 1}]))
    source = f"parquet:{tmp_path}/b.parquet"
    line = error_line(lambda: [*corpus.read_documents((source,), tmp_path)])
    assert "no column 'text'; there are: texts, label" in line


@pytest.mark.slow
def test_classes_are_named_and_no_label_is_none(fake_hub):
    rows = [{"label": 1}, {"label": 0}, {"label": -1}]
    content = as_parquet(rows, label=["no", "yes"])
    fake_hub.models[NAME] = {"main": {"data/test-0.parquet": content}}
    (path,) = hub_source.parquet_files(NAME, "test")
    found = [row["label"] for row in hub_source.parquet_rows(path)]
    assert found == ["yes", "no", None]


def test_classes_in_lists_are_named(tmp_path):
    """In the forms of features that versions of `datasets` have written."""
    kind = {"names": ["no", "yes"], "_type": "ClassLabel"}
    features = {
        "a": [kind],
        "b": {"feature": kind, "length": -1, "_type": "Sequence"},
        "c": {"feature": {"feature": kind, "_type": "List"}, "_type": "List"},
        "d": {"of": kind, "n": {"dtype": "int64", "_type": "Value"}},
        "e": {"feature": {"of": kind}, "_type": "Sequence"},
        "f": [{"of": kind}],
    }
    row = {"a": [1, -1], "b": [0], "c": [[1], []], "d": {"of": 1, "n": 1}}
    row |= {"e": {"of": [0, 1]}, "f": [{"of": 1}]}
    (tmp_path / "a.parquet").write_bytes(with_features([row], features))
    assert list(hub_source.parquet_rows(tmp_path / "a.parquet")) == [
        {
            **{"a": ["yes", None], "b": ["no"], "c": [["yes"], []]},
            **{"d": {"of": "yes", "n": 1}, "e": {"of": ["no", "yes"]}},
            "f": [{"of": "yes"}],
        }
    ]


@pytest.mark.slow
def test_questions_are_those_of_squads_own_file(fake_hub, shared_data):
    """Of several answers, and of none."""
    official = str(shared_data("squad/dev-v2.0.subset.json"))
    expected = squad.read_questions(official)
    rows = [
        {
            "id": one["id"],
            "title": "a title",
            "context": one["context"],
            "question": one["question"],
            "answers": {
                "text": [answer["text"] for answer in one["answers"]],
                "answer_start": [answer["answer_start"] for answer in one["answers"]],
            },
        }
        for one in expected
    ]
    fake_hub.models[NAME] = {
        "main": {"plain_text/train-00000-of-00001.parquet": as_parquet(rows)}
    }
    assert squad.read_questions(f"hf:{NAME}:train") == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Sequence", "List"])
def test_tagged_words_are_those_of_the_columns_file(fake_hub, shared_data, kind):
    official = str(shared_data("ner/emerging.dev.conll"))
    given = {"token_column": 0, "tag_column": -1, "labelled": True}
    expected = ner.read_sentences(official, **given)
    names = sorted({tag for sentence in expected for tag in sentence["tags"]})
    rows = [
        {
            "tokens": list(one["words"]),
            "ner_tags": [names.index(tag) for tag in one["tags"]],
        }
        for one in expected
    ]
    classes = {"_type": kind, "feature": {"_type": "ClassLabel", "names": names}}
    content = with_features(rows, {"ner_tags": classes})
    fake_hub.models[NAME] = {"main": {"data/validation-0.parquet": content}}
    found = ner.read_sentences(f"hf:{NAME}:validation", **given)
    columns = operator.itemgetter("words", "tags")
    assert [*map(columns, found)] == [*map(columns, expected)]
    written = ner.format_columns(found, [x["tags"] for x in expected]).splitlines()
    word, tag = expected[0]["words"][0], expected[0]["tags"][0]
    assert written[0].split("\t") == [word, tag, tag]


def test_split_that_lacks_a_file_is_refused(fake_hub):
    """It gave fewer rows."""
    names = [f"data/train-0000{n}-of-00003.parquet" for n in range(3)]
    whole = dict.fromkeys(names, as_parquet([{"text": "a"}]))
    sent = {name: whole[name] for name in names[::2]}
    fake_hub.models[NAME] = {"main": sent, "whole": whole}
    line = error_line(hub_source.parquet_files, NAME, "train")
    assert re.search("data: has 2 of the 3 files .*train-0000", line)
    assert len(hub_source.parquet_files(f"{NAME}@whole", "train")) == 3


# The sources that configs name by default, from a Hub: Wikipedia and books.


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
