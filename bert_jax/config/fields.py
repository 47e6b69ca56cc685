"""The allowed values of each config field, in one table, and rules across fields.

Checks that need more than the config (devices, data, weights) are where that is known.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from bert_jax import registry
from bert_jax.config import languages, rules
from bert_jax.errors import UserError
from bert_jax.registry import FAMILIES

# What a config file of the user's may add to.
_ADDED_TO: dict[str, rules.Rule] = {
    "task.name": rules.filled,
    **{names.field: names.fault for names in registry.EVERY},
}
_TABLE: dict[str, rules.Rule] = {
    **_ADDED_TO,
    "seed": rules.whole(),
    "init_from": rules.text,
    "model.vocab_size": rules.whole(),
    "model.hidden_size": rules.whole(1, rules.SIZE),
    "model.num_hidden_layers": rules.whole(1, 10_000),
    "model.num_attention_heads": rules.whole(1, rules.SIZE),
    "model.intermediate_size": rules.whole(1, rules.SIZE),
    "model.max_position_embeddings": rules.whole(1, rules.SIZE),
    "model.type_vocab_size": rules.whole(1, rules.SIZE),
    "model.hidden_act": rules.one_of("gelu", "gelu_tanh", "relu"),
    "model.hidden_dropout_prob": rules.number("[0, 1)"),
    "model.attention_probs_dropout_prob": rules.number("[0, 1)"),
    "model.initializer_range": rules.number("(0, inf)"),
    "model.position_initializer": rules.one_of("normal", "sinusoidal"),
    "model.layer_norm_eps": rules.number("(0, inf)"),
    "model.dtype": rules.one_of("float32", "bfloat16"),
    "model.epilogue": rules.one_of("xla", "fused"),
    "model.remat": rules.one_of("none", "full", "dots"),
    "model.scan_layers": rules.flag,
    "model.causal": rules.flag,
    "tokenizer.vocab_file": rules.text,
    "tokenizer.vocab_size": rules.whole(1),
    "tokenizer.lowercase": rules.flag,
    "tokenizer.strip_accents": rules.flag,
    "tokenizer.sample_bytes": rules.whole(1, 2**62),
    "corpus.sources": rules.sources,
    "corpus.weights": rules.weights,
    "corpus.language": languages.fault,
    "corpus.data_dir": rules.filled,
    "corpus.runner": rules.text,
    "corpus.beam_options": rules.texts,
    "corpus.max_seq_length": rules.whole(5, rules.SIZE),
    "corpus.short_seq_prob": rules.number("[0, 1]"),
    "corpus.max_document_bytes": rules.whole(),
    "corpus.seed": rules.whole(),
    "corpus.dev_fraction": rules.number("(0, 1)"),
    "corpus.nsp": rules.flag,
    "corpus.full_sentences": rules.flag,
    "corpus.packing": rules.flag,
    "corpus.packed_pairs": rules.whole(1, 64),
    "corpus.shift_positions": rules.flag,
    "masking.masked_lm_prob": rules.number("(0, 1]"),
    "masking.max_predictions_per_seq": rules.whole(1, rules.SIZE),
    "masking.whole_word": rules.flag,
    "masking.mask_fraction": rules.number("[0, 1]"),
    "masking.random_fraction": rules.number("[0, 1]"),
    "phase2.fraction": rules.number("[0, 1)"),
    "phase2.max_seq_length": rules.whole(5, rules.SIZE),
    "phase2.max_predictions_per_seq": rules.whole(1, rules.SIZE),
    "phase2.micro_batches": rules.whole(1),
    "phase2.batch_size": rules.whole(),
    "phase2.learning_rate": rules.number(),
    "phase2.warmup_steps": rules.whole(),
    "task.nsp_loss": rules.flag,
    "task.word_initializer": rules.one_of("normal", "counted"),
    "optimizer.learning_rate": rules.number(),
    "optimizer.warmup_steps": rules.whole(),
    "optimizer.warmup_fraction": rules.number("[0, 1]"),
    "optimizer.decay_power": rules.number(),
    "optimizer.decay_fraction": rules.number("[0, 1]"),
    "optimizer.weight_decay": rules.number(),
    "optimizer.beta1": rules.number("[0, 1)"),
    "optimizer.beta2": rules.number("[0, 1)"),
    "optimizer.eps": rules.number(),
    "optimizer.clip_norm": rules.number(),
    "optimizer.frozen": rules.texts,
    "train.num_steps": rules.whole(),
    "train.num_epochs": rules.number("[0, 1000000]"),
    "train.extend": rules.flag,
    "train.batch_size": rules.whole(1),
    "train.micro_batches": rules.whole(1),
    "train.log_every": rules.whole(1),
    "train.trackers": rules.several_of("wandb", "mlflow"),
    "train.eval_every": rules.whole(),
    "train.eval_every_epoch": rules.flag,
    "train.early_stop": rules.whole(),
    "train.seeds": rules.whole(1),
    "train.on_anomaly": rules.one_of("stop", "skip"),
    "train.spike_factor": rules.spike,
    "train.deterministic": rules.flag,
    "evaluate.batch_size": rules.whole(1),
    "evaluate.splits": rules.distinct,
    "evaluate.checkpoint": rules.one_of("last", "best"),
    "evaluate.score": rules.text,
    "checkpoint.save_every": rules.whole(1),
    "checkpoint.keep": rules.whole(1),
    "checkpoint.keep_every": rules.whole(),
    "predict.top_k": rules.whole(1),
    "predict.batch_size": rules.whole(1),
    "predict.attentions": rules.text,
    "predict.layers": rules.layers,
    "predict.combine": rules.one_of("none", "concatenated", "sum", "mean"),
    "predict.vectors": rules.one_of("pieces", "words", "words_mean", "cls", "mean"),
    "serve.hosts": rules.texts,
    "serve.grace_seconds": rules.number("[0, 86400]"),
    "mesh.data": rules.whole(-1),
    "mesh.fsdp": rules.whole(-1),
    "mesh.tensor": rules.whole(-1),
    "mesh.optimizer": rules.one_of("as_parameters", "zero1"),
    # Fields of fine-tuning tasks; each task has some of them.
    "task.max_seq_length": rules.whole(5, rules.SIZE),
    "task.bilstm": rules.flag,
    "task.pad_to_max": rules.flag,
    "task.texts_per_row": rules.whole(1, 64),
    "task.data_dir": rules.text,
    "task.train_file": rules.text,
    "task.dev_file": rules.text,
    "task.test_file": rules.text,
    "task.labels": rules.texts,
    "task.kind": rules.one_of("classification", "multilabel", "regression"),
    "task.class_weights": rules.one_of("none", "balanced"),
    "task.truncation": rules.one_of("head", "tail", "head_tail"),
    "task.text": rules.filled,
    "task.text_b": rules.text,
    "task.label": rules.filled,
    "task.label_separator": rules.filled,
    "task.label_names": rules.distinct,
    "task.format": rules.one_of("", "csv", "tsv", "jsonl"),
    "task.dev_fraction": rules.number("[0, 1)"),
    "task.null_answers": rules.flag,
    "task.doc_stride": rules.whole(1, rules.SIZE),
    "task.max_query_length": rules.whole(0, rules.SIZE),
    "task.n_best_size": rules.whole(1, rules.SIZE),
    "task.max_answer_length": rules.whole(1, rules.SIZE),
    "task.token_column": rules.whole(-rules.SIZE, rules.SIZE),
    "task.tag_column": rules.whole(-rules.SIZE, rules.SIZE),
    "task.scheme": rules.one_of("entities", "none"),
    "task.document_context": rules.flag,
    "task.words": rules.one_of("learned", "spaces", "punctuation", "characters"),
}

# The fields that name evaluation data, and all data that a task reads.
EVALUATED = ("task.data_dir", "task.dev_file", "task.test_file")
DATA = (*EVALUATED, "task.train_file")
_SPLITS = ("train", "dev", "test", "dev_mismatched", "test_mismatched", "ax")


def check(config: ConfigDict, defined_in: Collection[str] = ()) -> None:
    """Checks every value; the type alone of those `defined_in` the user's code.

    Raises:
      UserError: a value is not allowed, or not together with another field.
    """
    table = {**_TABLE, **of_family(config)}
    for name, value in each(config):
        _require(
            (name not in defined_in and table.get(name)) or _of_type(value), name, value
        )
    _check_together(config)


def require(name: str, value: Any, family_rules: Mapping[str, rules.Rule]) -> None:
    """Raises UserError if one field may not have this value, by the rules of every
    config and the family's."""
    _require({**_TABLE, **family_rules}[name], name, value)


def each(config: ConfigDict) -> Iterator[tuple[str, Any]]:
    """The full name and the value of each field."""
    for name, value in config.items():
        if isinstance(value, ConfigDict):
            yield from ((f"{name}.{inner}", its) for inner, its in each(value))
        else:
            yield name, value


def named(config: ConfigDict) -> dict[str, str]:
    """The values that a config file may have defined, by field."""
    return {n: str(v) for n, v in each(config) if n in _ADDED_TO or n not in _TABLE}


def has_added(config: ConfigDict) -> bool:
    """Whether a value names what a config file has added."""
    return any(value in registry.ADDED for value in named(config).values())


def of_family(config: ConfigDict) -> Mapping[str, rules.Rule]:
    """The rules of the fields that only configs of this family have."""
    model, task = config.get("model", {}), config.get("task", {})
    name, architecture = task.get("name"), model.get("architecture")
    family = name if name in FAMILIES else architecture
    return FAMILIES[family].rules if family in FAMILIES else {}


def _of_type(value: Any) -> rules.Rule:
    """The rule for a field of a user's own task."""
    match value:
        case bool():
            return rules.flag
        case int():
            return rules.whole(-(2**63), 2**63 - 1)
        case float():
            return rules.number("(-inf, inf)")
        case str():
            return rules.text
    return rules.plain


def _require(rule: rules.Rule, name: str, value: Any) -> None:
    try:
        fault = rule(value)
    except TypeError:
        fault = f"has the wrong type ({type(value).__name__})"
    if fault:
        shown = repr(value) if isinstance(value, str) else str(value)
        raise UserError(f"config.{name}={shown[:200]}: {fault}")


def _check_together(config: ConfigDict) -> None:
    masking, train, saved = config.masking, config.train, config.checkpoint
    last = config.seed + train.seeds - 1
    if last > rules.INT32:
        raise UserError(
            f"config.seed={config.seed}: config.train.seeds={train.seeds} uses seeds "
            f"up to {last}; the largest seed is {rules.INT32}"
        )
    finetunes = "max_seq_length" in config.task
    if finetunes and not (train.num_steps or train.num_epochs):
        raise UserError(
            "config.train.num_epochs=0.0: set it, or config.train.num_steps, now 0 too"
        )
    if masking.mask_fraction + masking.random_fraction > 1:
        raise UserError(
            f"config.masking.mask_fraction={masking.mask_fraction} and "
            f"random_fraction={masking.random_fraction} add up to more than 1"
        )
    if config.corpus.weights:
        _check_weights(config)
    if config.task.get("bilstm") and config.model.hidden_size % 2:
        raise UserError(
            f"config.model.hidden_size={config.model.hidden_size}: must be even for "
            "config.task.bilstm=True, which gives each direction a half"
        )
    if config.corpus.packing and finetunes:
        raise UserError(
            "config.corpus.packing=True: packs the rows of pre-training; the rows of "
            f"config.task.name={config.task.name} are not packed, leave it False"
        )
    corpus = config.corpus
    if corpus.full_sentences and (corpus.nsp or corpus.packing or corpus.weights):
        raise UserError(
            "config.corpus.full_sentences=True: fills rows with text of any document; "
            "set --config.corpus.nsp=False, and leave packing and weights out"
        )
    if config.corpus.shift_positions and not config.corpus.packing:
        raise UserError(
            "config.corpus.shift_positions=True: shifts packed rows; set "
            "--config.corpus.packing=True too"
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


def _check_weights(config: ConfigDict) -> None:
    weights, sources = config.corpus.weights, config.corpus.sources
    if len(weights) != len(sources):
        raise UserError(
            f"config.corpus.weights={tuple(weights)}: one for each of the "
            f"{len(sources)} config.corpus.sources"
        )
    if config.corpus.packing:
        raise UserError(
            f"config.corpus.weights={tuple(weights)}: not with config.corpus.packing, "
            "whose rows have pairs of several sources"
        )
