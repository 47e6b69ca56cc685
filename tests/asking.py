"""Micro models, and real records for runs whose task fields are not the defaults."""

import json
from functools import partial
from pathlib import Path

import jax
import pytest

from bert_jax.convert import export, layout
from bert_jax.models.architectures import BertWithHeads
from bert_jax.models.heads import init_model
from tests.micro import bert_config, initial_params

PIECES = 8000  # the first of bert-base-uncased's, the most frequent
MODEL = (
    *("--config.model.hidden_size=32", "--config.model.num_attention_heads=2"),
    *("--config.model.intermediate_size=64", "--config.model.num_hidden_layers=1"),
    *(
        "--config.model.max_position_embeddings=128",
        "--config.model.initializer_range=0.3",
    ),
)
# A run ends with the first evaluation that is no better, so its best is not its last.
TRAINING = (
    *("--config.optimizer.name=adamw", "--config.optimizer.learning_rate=1e-2"),
    *("--config.train.num_steps=96", "--config.train.eval_every=12"),
    *("--config.train.eval_every_epoch=False", "--config.train.batch_size=16"),
    *("--config.evaluate.batch_size=16", "--config.task.pad_to_max"),
    *("--config.checkpoint.save_every=12", "--config.checkpoint.keep=2"),
    *("--config.train.early_stop=1", "--config.evaluate.checkpoint=best"),
)
FINETUNE = Path(__file__).resolve().parent.parent / "configs" / "finetune"


def squad_data(data, folder):
    """Writes some paragraphs for train, the same and more for dev, and others.

    Dev has train's, because so small a model can answer those.
    """
    source = json.loads(data("squad/dev-v2.0.subset.json").read_text())
    paragraphs = source["data"][0]["paragraphs"]
    for paragraph in paragraphs:
        known = [qa for qa in paragraph["qas"] if qa["answers"]][:3]
        paragraph["qas"] = (
            known + [qa for qa in paragraph["qas"] if qa not in known][:1]
        )
    parts = {"train": (0, 6), "dev": (0, 10), "other": (10, 16)}
    for name, (first, last) in parts.items():
        some = paragraphs[first:last]
        document = {"version": "v2.0", "data": [{"title": "", "paragraphs": some}]}
        (folder / f"{name}.json").write_text(json.dumps(document))
    flags = ["--config.task.doc_stride=24", "--config.task.max_seq_length=64"]
    flags += ["--config.task.max_query_length=9"]
    files = [f"--config.task.{x}_file={folder / x}.json" for x in ("train", "dev")]
    rows = [
        {"question": qa["question"], "context": paragraph["context"]}
        for paragraph in paragraphs[:10]
        for qa in paragraph["qas"]
    ]
    return "squad.py:recipe=tiny,version=2.0", [*flags, *files], rows


def ner_data(data, folder):
    """Writes documents of one sentence and of three.

    The tags, which so small a model learns, mark the long words. They are taken as they
    are.
    """
    sentences = data("ner/wnut17train.conll").read_text().strip().split("\n\n")
    rows = []
    named = [
        "\n".join(f"{w}\t{'long' if len(w) > 3 else 'short'}" for w in words)
        for words in ([x.split("\t")[0] for x in s.split("\n")] for s in sentences)
        if len(words) < 20
    ]
    for name, count in (("train", 32), ("dev", 41)):
        some = named[:count]
        blocks = []
        for index, sentence in enumerate(some):
            if index % 4 in (0, 1):
                blocks.append("-DOCSTART-\tO")
            blocks.append(sentence)
        (folder / f"{name}.conll").write_text("\n\n".join(blocks) + "\n")
        rows = [{"words": [x.split("\t")[0] for x in s.split("\n")]} for s in some]
    flags = ["--config.task.document_context=True", "--config.task.scheme=none"]
    flags += ["--config.task.max_seq_length=64"]
    files = [f"--config.task.{x}_file={folder / x}.conll" for x in ("train", "dev")]
    return "ner.py:recipe=tiny", [*flags, *files], rows


def make_model(folder, data, architecture="BertForPreTraining"):
    whole = data("vocab/bert-base-uncased-vocab.txt").read_text("utf-8")
    vocabulary = whole.split("\n")[:PIECES]
    config = bert_config(
        vocab_size=PIECES,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
        initializer_range=0.3,
    )
    heads = [h for h in layout.BERT.architectures[architecture] if h != "pooler"]
    network = BertWithHeads(config, heads=tuple(heads), labels=2)
    params = initial_params(partial(init_model, network), 1)
    labels = layout.default_labels(2) if "token_classification" in heads else ()
    found = layout.Weights(config, jax.device_get(params), architecture, labels)
    export.export_folder(found, None, folder, {})
    text = "".join(f"{piece}\n" for piece in vocabulary)
    (folder / "vocab.txt").write_text(text, "utf-8")
    fields = json.loads((folder / "config.json").read_text())
    del fields["bert_jax"]
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


DATA = {"squad": squad_data, "ner": ner_data}


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def same(some, others, only=lambda index: True):
    """Checks that texts are equal, numbers to 1e-5."""
    assert len(some) == len(others) > 0
    for index, (one, other) in enumerate(zip(some, others, strict=True)):
        if only(index):
            other = {key: other[key] for key in one}
            assert numbers(one) == pytest.approx(numbers(other), abs=1e-5, rel=1e-5)
            assert words(one) == words(other)


def numbers(value):
    if isinstance(value, dict):
        return [x for key in sorted(value) for x in numbers(value[key])]
    if isinstance(value, list):
        return [x for each in value for x in numbers(each)]
    return [value] if isinstance(value, int | float) else []


def words(value):
    if isinstance(value, dict):
        return [x for key in sorted(value) for x in (key, *words(value[key]))]
    if isinstance(value, list):
        return [x for each in value for x in words(each)]
    return [] if isinstance(value, int | float) else [value]


def varied(answers):
    """Whether the model does not answer everything alike."""
    answers = [tag for answer in answers for tag in answer.get("tags", [answer])]
    return len({json.dumps(answer) for answer in answers}) > 1
