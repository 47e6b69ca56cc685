"""Masked LM and next sentence prediction (section 3.1; run_pretraining.py)."""

import functools
import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.data import loader, masking, prepare
from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig, pretraining_flops
from bert_jax.models.heads import BertForPreTraining, init_pretraining
from bert_jax.step import Sums
from bert_jax.tasks.fill_mask import FillMask


class Pretraining:
    """Pre-training, as the loop, the evaluation and prediction see it."""

    def __init__(self, config: ConfigDict):
        """Checks the config; touches no data.

        Raises:
          UserError: a sequence longer than the model's positions, or another value
            that does not fit the rest.
        """
        self.config = config
        self.model_config = BertConfig.create(config.model, _vocab_size(config))
        self.model = BertForPreTraining(self.model_config)
        masking.check(config.masking)
        if tuple(config.evaluate.splits) != ("dev",):
            raise UserError(
                f"config.evaluate.splits={tuple(config.evaluate.splits)}: pre-training "
                "holds back one split, ('dev',)"
            )
        positions = self.model_config.max_position_embeddings
        for phase in loader.phases(config):
            if not 5 <= phase.max_seq_length <= positions:
                raise UserError(
                    f"config.corpus.max_seq_length (or config.phase2.max_seq_length)="
                    f"{phase.max_seq_length}: must be at least 5 and at most "
                    f"config.model.max_position_embeddings={positions}"
                )
            if phase.max_predictions_per_seq < 1:
                raise UserError(
                    "config.masking.max_predictions_per_seq (or config.phase2."
                    f"max_predictions_per_seq)={phase.max_predictions_per_seq}: must "
                    "be at least 1"
                )

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary given, or the one trained on the corpus.

        Raises:
          UserError: it has more pieces than the model has embeddings.
        """
        tokenizer = prepare.prepare_tokenizer(self.config)
        pieces = tokenizer.get_vocab_size()
        if pieces > self.model_config.vocab_size:
            raise UserError(
                f"config.model.vocab_size={self.model_config.vocab_size}, but the "
                f"tokenizer has {pieces} pieces: set --config.model.vocab_size={pieces}"
            )
        return tokenizer

    def prepare(self) -> list[str]:
        """Prepares the data of every phase; gives the folders."""
        _ = self.tokenizer
        lengths = {phase.max_seq_length for phase in loader.phases(self.config)}
        return [str(prepare.prepare(self.config, n)) for n in sorted(lengths)]

    def init_params(self, key: Key[Array, ""]) -> dict:
        """Initial parameters, boxed with their logical axis names."""
        return init_pretraining(self.model_config, key)

    def predictor(self, tokenizer: Tokenizer) -> FillMask:
        """What `--mode=predict` asks; the vocabulary is the weights'."""
        return FillMask(self.config, self.model, tokenizer)

    def flops_per_sequence(self, phase: loader.Phase) -> int:
        """Model FLOPs of training on one sequence."""
        return pretraining_flops(
            self.model_config, phase.max_seq_length, phase.max_predictions_per_seq
        )

    def loss(
        self, params: Any, batch: Mapping[str, Array], key: Key[Array, ""] | None
    ) -> Sums:
        """`masked_lm_loss` and, with sentence pairs, `next_sentence_loss`: each the
        sum of its cross entropies (nats) and their number."""
        sums, _ = self._forward(params, batch, key)
        return sums

    def metrics(
        self, params: Any, batch: Mapping[str, Array], key: Key[Array, ""] | None
    ) -> Sums:
        """The losses, the accuracies, and the unigram loss on the same positions."""
        sums, outputs = self._forward(params, batch, key)
        weights = batch["masked_lm_weights"]
        total = jnp.sum(weights)
        guesses = jnp.argmax(outputs["masked_lm_logits"], axis=-1)
        right = jnp.sum(weights * (guesses == batch["masked_lm_ids"]))
        unigram = -jnp.asarray(self._unigram_log_probs)[batch["masked_lm_ids"]]
        sums["masked_lm_accuracy"] = (right, total)
        sums["unigram_loss"] = (jnp.sum(weights * unigram), total)
        commonest = batch["masked_lm_ids"] == int(np.argmax(self._unigram_log_probs))
        sums["unigram_accuracy"] = (jnp.sum(weights * commonest), total)
        if self.config.corpus.nsp:
            labels = batch["next_sentence_labels"]
            real = (labels != loader.PADDING_LABEL).astype(jnp.float32)
            guesses = jnp.argmax(outputs["next_sentence_logits"], axis=-1)
            right = jnp.sum(real * (guesses == labels))
            sums["next_sentence_accuracy"] = (right, jnp.sum(real))
        return sums

    def summarise(self, means: dict[str, float]) -> dict[str, float]:
        """Adds `loss`, the sum of the parts, and the masked LM's `perplexity`."""
        parts = [means["masked_lm_loss"], means.get("next_sentence_loss", 0.0)]
        perplexity = math.exp(min(means["masked_lm_loss"], 700.0))
        return {"loss": sum(parts), **means, "perplexity": perplexity}

    def summary_table(self, numbers: Mapping[str, int | float]) -> tuple[list, tuple]:
        """The rows and header of the closing report."""
        perplexity = math.exp(numbers["unigram_loss"])
        rows = [
            ("masked LM loss (nats)", "masked_lm_loss", numbers["unigram_loss"]),
            ("masked LM perplexity", "perplexity", perplexity),
            ("masked LM accuracy", "masked_lm_accuracy", numbers["unigram_accuracy"]),
        ]
        table = [(name, f"{numbers[key]:.4g}", f"{uni:.4g}") for name, key, uni in rows]
        if self.config.corpus.nsp:
            accuracy = f"{numbers['next_sentence_accuracy']:.4g}"
            table.append(("next sentence accuracy", accuracy, ""))
        return table, ("", "model", "unigram")

    def _forward(
        self, params: Any, batch: Mapping[str, Array], key: Key[Array, ""] | None
    ) -> tuple[Sums, dict[str, Array]]:
        outputs = self.model.apply(
            {"params": params},
            batch["input_ids"],
            batch["input_mask"],
            batch["segment_ids"],
            batch["masked_lm_positions"],
            key,
        )
        assert isinstance(outputs, dict)
        weights = batch["masked_lm_weights"]
        losses = optax.softmax_cross_entropy_with_integer_labels(
            outputs["masked_lm_logits"], batch["masked_lm_ids"]
        )
        sums = {"masked_lm_loss": (jnp.sum(weights * losses), jnp.sum(weights))}
        if self.config.corpus.nsp:
            labels = batch["next_sentence_labels"]
            real = (labels != loader.PADDING_LABEL).astype(jnp.float32)
            losses = optax.softmax_cross_entropy_with_integer_labels(
                outputs["next_sentence_logits"], jnp.maximum(labels, 0)
            )
            sums["next_sentence_loss"] = (jnp.sum(real * losses), jnp.sum(real))
        return sums, outputs

    @functools.cached_property
    def _unigram_log_probs(self) -> Float[np.ndarray, "vocab"]:
        """From the training split's counts, one added to each piece of the
        vocabulary so that none is impossible."""
        folder = prepare.prepare(self.config, self.config.corpus.max_seq_length)
        counts = prepare.token_counts(folder).astype(np.float64) + 1
        return np.log(counts / counts.sum()).astype(np.float32)


def _vocab_size(config: ConfigDict) -> int:
    """The tokenizer's size, without training it: a trained one is as large as asked."""
    if config.tokenizer.vocab_file:
        tokenizer = tokenization.load(
            config.tokenizer.vocab_file, config.tokenizer.lowercase
        )
        return tokenizer.get_vocab_size()
    return config.tokenizer.vocab_size
