"""Every kind of task, over a few records, for whole/contract_test.py."""

import random
from collections.abc import Callable, Mapping
from pathlib import Path

from bert_jax import tasks, tokenization
from bert_jax.config import configuration
from bert_jax.families.elmo.pretraining import Elmo
from bert_jax.registry import FAMILIES
from bert_jax.tasks.task import Task
from tests import micro_data
from tests.micro_data import KINDS, Kind, Kinds, write_inputs

STEPS = 8  # steps of four rows. Fine-tuning has twelve rows, so its third epoch begins

_ELMO = """
    config.tokenizer.vocab_file = ""
    config.task.filters = ("1:4", "2:6")
    config.task.max_characters = 8
"""


def _of(name: str, *lines: str, replace: tuple[str, str] = ("", "")) -> Callable:
    """Makes a kind of KINDS with other lines, or of another model."""

    def make(rng: random.Random) -> Kind:
        kind = KINDS[name](rng)
        more = "".join(f"\n    {line}" for line in lines)
        extends = kind.extends.replace(*replace) if replace[0] else kind.extends
        return kind._replace(extends=extends, lines=kind.lines + more)

    return make


def _pieces(name: str, model: str = "gpt", size: int = 60) -> Callable:
    """Returns another model fine-tuned on a task, with its own vocabulary."""
    make = _of(name, 'config.tokenizer.vocab_file = "in/tokenizer.json"',
               replace=(":recipe=tiny", f":recipe=tiny,model={model}"))  # fmt: skip

    def with_vocabulary(rng: random.Random) -> Kind:
        kind = make(rng)
        texts = [*micro_data.WORDS, *micro_data.NAMES] * 2
        learnt = FAMILIES[model].vocabulary.train(texts, size, lowercase=True)
        files = {**kind.files, **tokenization.tokenizer_files(learnt)}
        return kind._replace(files=files)

    return with_vocabulary


def _running_text(extends: str, lines: str) -> Callable:
    """Makes a language model's text, its vocabulary counted or trained on it."""

    def make(rng: random.Random) -> Kind:
        kind = KINDS["pretraining"](rng)
        lines_ = """
    config.corpus.sources = ("sentences:in/corpus.txt",)
    config.corpus.dev_fraction = 0.2
    config.tokenizer.vocab_file = ""
"""
        return kind._replace(extends=extends, lines=lines_ + lines)

    return make


_PACKED = (
    "config.corpus.packing = True",
    "config.corpus.short_seq_prob = 0.5",
)

CONTRACT: Kinds = {
    "pretraining": KINDS["pretraining"],
    "packed_in_two_phases": _of("pretraining_jsonl", *_PACKED),
    "left_to_right": _of("pretraining", 'config.task.objective = "ltr"'),
    "text": KINDS["text"],
    "two_texts_a_row": _of("text_regression", "config.task.texts_per_row = 2"),
    "squad2": KINDS["squad2"],
    "swag": KINDS["swag"],
    "ner": KINDS["ner"],
    "replaced_tokens": _of(
        "pretraining_jsonl",
        *_PACKED,
        "config.corpus.nsp = False",
        "config.model.generator_layers = 1.0",
        "config.model.position_buckets = 8",
        # Compiling it takes a third less: dropout is the same code as in the others.
        "config.model.hidden_dropout_prob = 0.0",
        "config.model.attention_probs_dropout_prob = 0.0",
        replace=("tiny:recipe=plain", "deberta_v3:size=tiny"),
    ),
    "gpt": _running_text(
        "gpt:size=tiny",
        "    config.tokenizer.vocab_size = 80\n    config.corpus.max_seq_length = 32",
    ),
    "gpt_text": _pieces("text"),
    "roberta_text": _pieces("text", "roberta", 300),
    "elmo": _running_text(
        "elmo:size=tiny",
        f"{_ELMO}    config.tokenizer.vocab_size = 14\n"
        "    config.task.unroll = 6\n    config.task.samples = 6",
    ),
}


def create(name: str, fields: Mapping[str, object]) -> Task:
    """Makes the task of a kind, with its data, in the working directory."""
    if not Path("in").exists():
        write_inputs(name, Path(), CONTRACT)
    given = [f"--config.{field}={value}" for field, value in fields.items()]
    config = configuration.load_config("in/micro.py", given)
    task = Elmo(config) if name == "elmo" else tasks.create_task(config)
    task.resolve()
    task.training_data()
    return task
