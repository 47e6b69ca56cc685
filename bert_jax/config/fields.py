"""The allowed values of each config field, in one table, and rules across fields.

Checks that need more than the config (devices, data, weights) are where that is known.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

from ml_collections import ConfigDict

from bert_jax.config import languages
from bert_jax.errors import UserError

Rule = Callable[[Any], str | None]  # describes what is wrong with a value, or None

_INT32 = 2**31 - 1  # steps, seeds and ids have 32 bits in JAX
_FLOAT32 = 3.4e38
_SIZE = 2**24  # maximum dimension of a model: the product of two cannot overflow


def _whole(least: int = 0, most: int = _INT32) -> Rule:
    def fault(value: Any) -> str | None:
        if value < least:
            return f"must be at least {least}"
        return f"must be at most {most}" if value > most else None

    return fault


def _number(interval: str = "[0, inf)") -> Rule:
    """Finite numbers in an interval, such as "[0, 1)"."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    least = (
        f"must be {'at least' if interval[0] == '[' else 'more than'} {low:g}"
        if math.isinf(high)
        else f"must be in {interval}"
    )

    def fault(value: Any) -> str | None:
        if not abs(value) <= _FLOAT32:
            return "must be a finite 32-bit number"
        above = value >= low if interval[0] == "[" else value > low
        below = value <= high if interval[-1] == "]" else value < high
        return None if above and below else least

    return fault


def _one_of(*choices: str) -> Rule:
    def fault(value: Any) -> str | None:
        return None if value in choices else f"choose one of {', '.join(choices)}"

    return fault


def _text(value: Any) -> str | None:
    return "must hold no NUL character" if "\0" in value else None


def _filled(value: Any) -> str | None:
    return _text(value) if value else "must not be empty"


def _texts(value: Any) -> str | None:
    if isinstance(value, str):
        return "must be a tuple of strings, such as ('one',)"
    for one in value:
        if not isinstance(one, str):
            return f"has {one!r}: all items must be strings"
        if fault := _text(one):
            return fault
    return None


def _plain(value: Any) -> str | None:
    """Allows what a run's config.json can store."""
    if isinstance(value, list | tuple):
        return next(filter(None, map(_plain, value)), None)
    if value is None or isinstance(value, str | int | float):
        return None
    return f"has a {type(value).__name__}, which config.json cannot store"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be True or False"


def _spike(value: Any) -> str | None:
    if value and not 1 < value <= _FLOAT32:
        return "must be more than 1, or 0 for no spikes"
    return None


def _layers(value: Any) -> str | None:
    if not value:
        return "must name at least one layer, such as (-2,)"
    if all(type(layer) is int for layer in value):
        return None
    return "must be a tuple of integers, such as (-1, -2)"


_TABLE: dict[str, Rule] = {
    "seed": _whole(),
    "init_from": _text,
    "model.vocab_size": _whole(),
    "model.hidden_size": _whole(1, _SIZE),
    "model.num_hidden_layers": _whole(1, 10_000),
    "model.num_attention_heads": _whole(1, _SIZE),
    "model.intermediate_size": _whole(1, _SIZE),
    "model.max_position_embeddings": _whole(1, _SIZE),
    "model.type_vocab_size": _whole(1, _SIZE),
    "model.hidden_act": _one_of("gelu", "gelu_tanh", "relu"),
    "model.hidden_dropout_prob": _number("[0, 1)"),
    "model.attention_probs_dropout_prob": _number("[0, 1)"),
    "model.initializer_range": _number("(0, inf)"),
    "model.layer_norm_eps": _number("(0, inf)"),
    "model.dtype": _one_of("float32", "bfloat16"),
    "model.attention": _filled,  # models/config.py knows the implementations
    "model.remat": _one_of("none", "full", "dots"),
    "model.scan_layers": _flag,
    "model.causal": _flag,
    "tokenizer.vocab_file": _text,
    "tokenizer.vocab_size": _whole(1),
    "tokenizer.lowercase": _flag,
    "tokenizer.sample_bytes": _whole(1, 2**62),
    "corpus.sources": _texts,
    "corpus.language": languages.fault,
    "corpus.data_dir": _filled,
    "corpus.max_seq_length": _whole(5, _SIZE),
    "corpus.short_seq_prob": _number("[0, 1]"),
    "corpus.max_document_bytes": _whole(),
    "corpus.seed": _whole(),
    "corpus.dev_fraction": _number("(0, 1)"),
    "corpus.nsp": _flag,
    "corpus.packing": _flag,
    "masking.masked_lm_prob": _number("(0, 1]"),
    "masking.max_predictions_per_seq": _whole(1, _SIZE),
    "masking.whole_word": _flag,
    "masking.mask_fraction": _number("[0, 1]"),
    "masking.random_fraction": _number("[0, 1]"),
    "phase2.fraction": _number("[0, 1)"),
    "phase2.max_seq_length": _whole(5, _SIZE),
    "phase2.max_predictions_per_seq": _whole(1, _SIZE),
    "phase2.micro_batches": _whole(1),
    "phase2.batch_size": _whole(),
    "phase2.learning_rate": _number(),
    "phase2.warmup_steps": _whole(),
    "task.name": _filled,
    "task.objective": _one_of("mlm", "ltr"),
    "task.nsp_loss": _flag,
    "optimizer.name": _one_of("bert_adam", "adamw", "lamb"),
    "optimizer.learning_rate": _number(),
    "optimizer.warmup_steps": _whole(),
    "optimizer.warmup_fraction": _number("[0, 1]"),
    "optimizer.decay_power": _number(),
    "optimizer.weight_decay": _number(),
    "optimizer.beta1": _number("[0, 1)"),
    "optimizer.beta2": _number("[0, 1)"),
    "optimizer.eps": _number(),
    "optimizer.clip_norm": _number(),
    "train.num_steps": _whole(),
    "train.num_epochs": _number("[0, 1000000]"),
    "train.extend": _flag,
    "train.batch_size": _whole(1),
    "train.micro_batches": _whole(1),
    "train.log_every": _whole(1),
    "train.eval_every": _whole(),
    "train.eval_every_epoch": _flag,
    "train.early_stop": _whole(),
    "train.restarts": _whole(),
    "train.seeds": _whole(1),
    "train.on_anomaly": _one_of("stop", "skip", "roll_back"),
    "train.spike_factor": _spike,
    "train.stall_seconds": _number(),
    "evaluate.batch_size": _whole(1),
    "evaluate.splits": _texts,
    "evaluate.checkpoint": _one_of("last", "best"),
    "checkpoint.save_every": _whole(1),
    "checkpoint.keep": _whole(1),
    "checkpoint.keep_every": _whole(),
    "predict.top_k": _whole(1),
    "predict.batch_size": _whole(1),
    "predict.attentions": _text,
    "predict.layers": _layers,
    "predict.combine": _one_of("none", "concatenated", "sum", "mean"),
    "predict.vectors": _one_of("pieces", "words", "words_mean", "cls", "mean"),
    "mesh.data": _whole(-1),
    "mesh.fsdp": _whole(-1),
    "mesh.tensor": _whole(-1),
    "mesh.optimizer": _one_of("as_parameters", "zero1"),
    # Fields of fine-tuning tasks; each task has some of them.
    "task.max_seq_length": _whole(5, _SIZE),
    "task.bilstm": _flag,
    "task.pad_to_max": _flag,
    "task.data_dir": _text,
    "task.train_file": _text,
    "task.dev_file": _text,
    "task.test_file": _text,
    "task.labels": _texts,
    "task.kind": _one_of("classification", "multilabel", "regression"),
    "task.truncation": _one_of("head", "tail", "head_tail"),
    "task.text": _filled,
    "task.text_b": _text,
    "task.label": _filled,
    "task.label_separator": _filled,
    "task.dev_fraction": _number("[0, 1)"),
    "task.null_answers": _flag,
    "task.doc_stride": _whole(1, _SIZE),
    "task.max_query_length": _whole(0, _SIZE),
    "task.n_best_size": _whole(1, _SIZE),
    "task.max_answer_length": _whole(1, _SIZE),
    "task.token_column": _whole(-_SIZE, _SIZE),
    "task.tag_column": _whole(-_SIZE, _SIZE),
    "task.scheme": _one_of("entities", "none"),
    "task.document_context": _flag,
}

_SPLITS = ("train", "dev", "test", "dev_mismatched", "test_mismatched", "ax")


def check(config: ConfigDict) -> None:
    """Checks every value.

    Raises:
      UserError: a value is not allowed, or not together with another field.
    """
    for name, value in each(config):
        rule = _TABLE.get(name) or _of_type(value)
        if fault := _fault(rule, value):
            shown = repr(value) if isinstance(value, str) else str(value)
            raise UserError(f"config.{name}={shown[:200]}: {fault}")
    _check_together(config)


def each(config: ConfigDict) -> Iterator[tuple[str, Any]]:
    """The full name and the value of each field."""
    for name, value in config.items():
        if isinstance(value, ConfigDict):
            yield from ((f"{name}.{inner}", its) for inner, its in each(value))
        else:
            yield name, value


def is_known(name: str) -> bool:
    """Whether the table has this field."""
    return name in _TABLE


def _of_type(value: Any) -> Rule:
    """The rule for a field of a user's own task."""
    match value:
        case bool():
            return _flag
        case int():
            return _whole(-(2**63), 2**63 - 1)
        case float():
            return _number("(-inf, inf)")
        case str():
            return _text
    return _plain


def _fault(rule: Rule, value: Any) -> str | None:
    try:
        return rule(value)
    except TypeError:
        return f"has the wrong type ({type(value).__name__})"


def _check_together(config: ConfigDict) -> None:
    masking, train, saved = config.masking, config.train, config.checkpoint
    last = config.seed + train.seeds - 1 + train.restarts
    if last > _INT32:
        raise UserError(
            f"config.seed={config.seed}: config.train.seeds={train.seeds} and "
            f"config.train.restarts={train.restarts} use seeds up to {last}; the "
            f"largest seed is {_INT32}"
        )
    if masking.mask_fraction + masking.random_fraction > 1:
        raise UserError(
            f"config.masking.mask_fraction={masking.mask_fraction} and "
            f"random_fraction={masking.random_fraction} add up to more than 1"
        )
    if config.task.get("bilstm") and config.model.hidden_size % 2:
        raise UserError(
            f"config.model.hidden_size={config.model.hidden_size}: must be even for "
            "config.task.bilstm=True, which gives each direction a half"
        )
    if config.corpus.packing and "max_seq_length" in config.task:
        raise UserError(
            "config.corpus.packing=True: packs the rows of pre-training; the rows of "
            f"config.task.name={config.task.name} are not packed, leave it False"
        )
    if saved.keep_every % saved.save_every:
        raise UserError(
            f"config.checkpoint.keep_every={saved.keep_every}: must be a multiple of "
            f"config.checkpoint.save_every={saved.save_every}, or 0"
        )
    for split in config.evaluate.splits:
        if split not in _SPLITS and f"{split}_file" not in config.task:
            raise UserError(
                f"config.evaluate.splits={tuple(config.evaluate.splits)}: {split!r} is "
                f"not one of {', '.join(_SPLITS)}, and config.task.{split}_file does "
                "not exist"
            )
