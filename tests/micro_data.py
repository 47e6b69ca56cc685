"""Micro data of every task: a few records in each form that a user may have."""

import csv
import io
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax import tokenization

NAMES = [f"{a}{b}" for a in "bdfglmnr" for b in ("an", "el", "ir", "os")]
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]
WORDS += ["while", "seven", "cats", "watch", "it", "go"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *NAMES]
PIECES += [*"abcdefghijklmnopqrstuvwxyz?.,", *(f"##{x}" for x in "adegilmnors")]
VOCABULARY = "".join(f"{piece}\n" for piece in dict.fromkeys(PIECES))
SIZES = {"train": 12, "dev": 7, "test": 5}


class Kind(NamedTuple):
    """A task with data of one form.

    Attributes:
      extends: Config that it is made from.
      lines: Lines of its config file, in addition to the common ones.
      files: Content by name.
    """

    extends: str
    lines: str
    files: dict[str, str]


def _text(rng: random.Random, least: int = 2, most: int = 9) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(least, most)))


def _documents(rng: random.Random, count: int = 24) -> list[list[str]]:
    return [[_text(rng, 3, 8) for _ in range(rng.randint(3, 6))] for _ in range(count)]


_PRETRAINING = """
    config.corpus.max_seq_length = 32
    config.corpus.dev_fraction = 0.2
    config.masking.max_predictions_per_seq = 6
    config.corpus.sources = ("{}",)
"""


def pretraining(rng: random.Random) -> Kind:
    """Makes Google's form of a corpus, the vocabulary trained on it."""
    text = "\n\n".join(map("\n".join, _documents(rng))) + "\n"
    lines = _PRETRAINING.format("sentences:in/corpus.txt")
    lines += (
        '    config.tokenizer.vocab_file = ""\n    config.tokenizer.vocab_size = 64'
    )
    return Kind("tiny:recipe=plain", lines, {"corpus.txt": text})


def pretraining_jsonl(rng: random.Random) -> Kind:
    """Makes JSON lines, in two phases."""
    text = "".join(
        json.dumps({"text": ". ".join(some) + "."}) + "\n" for some in _documents(rng)
    )
    lines = _PRETRAINING.format("jsonl:in/corpus.jsonl")
    lines += "    config.phase2.fraction = 0.5\n    config.phase2.max_seq_length = 24"
    lines += "\n    config.phase2.max_predictions_per_seq = 4"
    return Kind("tiny:recipe=plain", lines, {"corpus.jsonl": text})


def stsb(rng: random.Random) -> Kind:
    """Makes a task of GLUE in its official files."""
    columns = ("index", "sentence1", "sentence2", "score")
    files = {}
    for split, size in SIZES.items():
        rows = [columns] + [
            (str(number), _text(rng), _text(rng), ("0.5", "2.75", "4.0")[number % 3])
            for number in range(size)
        ]
        shown = columns[: 4 if split != "test" else 3]
        lines = ("\t".join(row[: len(shown)]) for row in rows)
        files[f"{split}.tsv"] = "\n".join(lines) + "\n"
    lines = '    config.task.data_dir = "in"\n'
    return Kind("finetune/glue:recipe=tiny,task=stsb", lines, files)


def _files(end: str, *splits: str) -> str:
    return "".join(f'    config.task.{x}_file = "in/{x}.{end}"\n' for x in splits)


def squad(version: str) -> Callable[[random.Random], Kind]:
    """Makes SQuAD's JSON. Version 2.0 has questions without an answer."""

    def make(rng: random.Random) -> Kind:
        files = {}
        for split in ("train", "dev"):
            paragraphs = []
            for number in range(SIZES[split]):
                some = rng.sample(NAMES, k=4)
                context = f"{some[0]} is in {some[1]} . {_text(rng)} {some[2]} ."
                answer = {"text": some[1], "answer_start": context.index(some[1])}
                question = {"id": f"{split}{number}", "question": f"where is {some[0]}"}
                question |= {"answers": [answer]}
                if version == "2.0":
                    none = number % 3 == 0
                    question |= {"is_impossible": none}
                    question |= {"answers": []} if none else {}
                paragraphs.append({"context": context, "qas": [question]})
            data = {
                "version": version,
                "data": [{"title": "", "paragraphs": paragraphs}],
            }
            files[f"{split}.json"] = json.dumps(data)
        lines = _files("json", "train", "dev") + "    config.task.doc_stride = 8\n"
        lines += "    config.task.max_query_length = 8\n"
        return Kind(f"finetune/squad:recipe=tiny,version={version}", lines, files)

    return make


def swag(rng: random.Random) -> Kind:
    """Makes SWAG's CSV."""
    endings = [f"ending{number}" for number in range(4)]
    files = {}
    for split, size in SIZES.items():
        out = io.StringIO()
        columns = ["video-id", "sent1", "sent2", *endings]
        columns += ["label"] if split != "test" else []
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        for number in range(size):
            fields = [_text(rng, 1, 3) for _ in columns]
            fields = [*fields[:-1], str(number % 4)] if split != "test" else fields
            writer.writerow(fields)
        files[f"{split}.csv"] = out.getvalue()
    return Kind("finetune/swag:recipe=tiny", _files("csv", *SIZES), files)


def ner(rng: random.Random) -> Kind:
    """Makes CoNLL's columns, in documents."""
    files = {}
    for split, size in SIZES.items():
        blocks = []
        for number in range(size):
            if number % 3 == 0:
                blocks.append("-DOCSTART- -X- O")
            words = rng.choices([*WORDS, *NAMES], k=rng.randint(2, 6))
            tags = ["B-PER" if word in NAMES else "O" for word in words]
            lines = [f"{w} X {t}" for w, t in zip(words, tags, strict=True)]
            blocks.append("\n".join(lines))
        files[f"{split}.conll"] = "\n\n".join(blocks) + "\n"
    lines = _files("conll", *SIZES) + "    config.task.document_context = True\n"
    return Kind("finetune/ner:recipe=tiny", lines, files)


def text(form: str, kind: str) -> Callable[[random.Random], Kind]:
    """Makes custom texts, pairs of them where they are several classes at once."""

    def label(number: int) -> Any:
        if kind == "regression":
            return number / 4
        good = "good" if number % 2 else "bad"
        if kind == "classification":
            return good
        return [good, "long"] if form == "jsonl" else f"{good},long"

    def make(rng: random.Random) -> Kind:
        files = {}
        for split, size in SIZES.items():
            rows = [
                {"text": _text(rng), "text_b": _text(rng), "label": label(number)}
                for number in range(size)
            ]
            if form == "jsonl":
                content = "".join(json.dumps(row) + "\n" for row in rows)
            elif form == "tsv":
                lines = [list(rows[0]), *([str(x) for x in r.values()] for r in rows)]
                content = "\n".join(map("\t".join, lines)) + "\n"
            else:
                out = io.StringIO()
                writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
                content = out.getvalue()
            files[f"{split}.{form}"] = content
        pairs = kind == "multilabel"
        lines = f'{_files(form, *SIZES)}    config.task.kind = "{kind}"\n'
        lines += '    config.task.text_b = "text_b"\n' if pairs else ""
        return Kind("finetune/text:recipe=tiny", lines, files)

    return make


Kinds = Mapping[str, Callable[[random.Random], Kind]]
KINDS: Kinds = {
    "pretraining": pretraining,
    "pretraining_jsonl": pretraining_jsonl,
    "stsb": stsb,
    "squad": squad("1.1"),
    "squad2": squad("2.0"),
    "swag": swag,
    "ner": ner,
    "text": text("jsonl", "classification"),
    "text_multilabel": text("csv", "multilabel"),
    "text_regression": text("tsv", "regression"),
}

# The others have batches of one length: programs that are compiled once for all.
_OF_EVERY_LENGTH = ("text", "squad2")

CONFIG = """
extends = "{extends}"

def get_config(config):
    config.model.hidden_size = 16
    config.model.num_hidden_layers = 1
    config.model.num_attention_heads = 2
    config.model.intermediate_size = 32
    config.model.max_position_embeddings = 32
    config.model.hidden_dropout_prob = 0.1
    config.model.attention_probs_dropout_prob = 0.1
    config.tokenizer.vocab_file = "in/vocab.txt"
    config.corpus.data_dir = "data"
    if "max_seq_length" in config.task:
        config.task.max_seq_length = 32
        config.task.pad_to_max = {pads}
    config.train.num_steps = 2
    config.train.batch_size = 4
    config.train.log_every = 1
    config.evaluate.batch_size = 4
    config.predict.batch_size = 4
    config.checkpoint.save_every = 1
{lines}
    return config
"""


def write_inputs(name: str, folder: Path, kinds: Kinds = KINDS) -> Kind:
    """Writes `in/` of a kind of data."""
    kind = kinds[name](random.Random(name))
    for file, content in kind.files.items():
        path = folder / "in" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    config = CONFIG.format(
        extends=kind.extends, lines=kind.lines, pads=name not in _OF_EVERY_LENGTH
    )
    (folder / "in" / "micro.py").write_text(config)
    (folder / "in" / "vocab.txt").write_text(VOCABULARY)
    tokenizer = tokenization.load(folder / "in" / "vocab.txt")
    text = tokenization.tokenizer_files(tokenizer)["tokenizer.json"]
    if name.startswith("text_"):  # which have their vocabulary in another form
        (folder / "in" / "tokenizer.json").write_text(text)
        (folder / "in" / "vocab.txt").unlink()
        text = config.replace("in/vocab.txt", "in/tokenizer.json")
        (folder / "in" / "micro.py").write_text(text)
    return kind
