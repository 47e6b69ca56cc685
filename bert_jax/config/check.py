"""Checks of a config: each value by its field, then values that must fit each other.

Checks that need more than the config (devices, data, weights) are made elsewhere, where
these are known.
"""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from bert_jax import registry
from bert_jax.config import fields
from bert_jax.config.field import INT32, Field
from bert_jax.errors import UserError

_SPLITS = ("train", "dev", "test", "dev_mismatched", "test_mismatched", "ax")


def check(config: ConfigDict, *, code: bool = True) -> None:
    """Checks every value.

    Args:
      code: Whether names in registries must be there, which a user's config file may
        have added.

    Raises:
      UserError: a value is not allowed, or not together with another field.
    """
    known = fields.of(config)
    for name, value in fields.each(config):
        by_name = name in known and isinstance(known[name].allowed, registry.Registry)
        if code or not by_name:
            require(known, name, value)
    _check_together(config)


def require(known: Mapping[str, Field], name: str, value: Any) -> None:
    """Raises UserError if a field that is `known` may not have this value."""
    if name in known and (fault := known[name].fault(value)):
        shown = repr(value) if isinstance(value, str) else str(value)
        raise UserError(f"config.{name}={shown[:200]}: {fault}")


def _check_together(config: ConfigDict) -> None:
    masking, train, saved = config.masking, config.train, config.checkpoint
    last = config.seed + train.seeds - 1
    if last > INT32:
        raise UserError(
            f"config.seed={config.seed}: config.train.seeds={train.seeds} uses seeds "
            f"up to {last}; the largest seed is {INT32}"
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
