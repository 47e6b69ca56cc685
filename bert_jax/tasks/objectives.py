"""Objectives of pre-training (section 3.1, left to right 5.1), and their report."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bert_jax.data.rows import PADDING_LABEL
from bert_jax.models.config import BertConfig, pretraining_flops
from bert_jax.registry import OBJECTIVES as OBJECTIVES
from bert_jax.tasks.cross_entropy import cross_entropy
from bert_jax.tasks.fill_mask import Continue, FillMask
from bert_jax.tasks.task import Results, Table
from bert_jax.types import Arrays, Scalars


class Targets(NamedTuple):
    """The tokens that the logits are to predict."""

    ids: Int[Array, "batch predictions"]  # the tokens, any where the weight is 0
    weights: Float[Array, "batch predictions"]  # 1, or 0 where nothing is predicted


def masked_targets(batch: Arrays) -> Targets:
    """Returns the masked tokens, or in a batch without masks, at each position the next
    token of the same sequence, [SEP] too."""
    if "masked_lm_ids" in batch:
        return Targets(batch["masked_lm_ids"], batch["masked_lm_weights"])
    real = batch["input_mask"][:, 1:]
    if "sequence_ids" in batch:
        sequences = batch["sequence_ids"]
        real = real * (sequences[:, 1:] == sequences[:, :-1])
    return Targets(batch["input_ids"][:, 1:], real.astype(jnp.float32))


def lm_losses(prefix: str, outputs: Arrays, batch: Arrays) -> Scalars:
    """Sums the cross entropy of the predicted tokens, in nats."""
    ids, weights = masked_targets(batch)
    losses = cross_entropy(outputs[f"{prefix}_logits"], ids)
    return {f"{prefix}_loss": jnp.sum(weights * losses)}


def lm_weights(prefix: str, batch: Arrays) -> Scalars:
    """Counts the tokens to predict."""
    return {f"{prefix}_loss": jnp.sum(masked_targets(batch).weights)}


class Objective(NamedTuple):
    """Pre-training's targets, as functions of a batch and the model's outputs.

    A batch has the columns of `loader.batch_at`, arrays [batch, ...]. The sum of the
    losses' means is trained, whatever their names. `dev` has them next to
    `token_scores`, the scores of the logits alone. By default it is BERT's masked LM.

    Attributes:
      losses: (outputs, batch) -> each loss, summed over the rows. With micro-batches
        the batch is one of them, and the sums are added: a mean with the weight 1 would
        count once for each. `batch["step"]` [batch] is the step, in training and in
        evaluation.
      weights: batch -> the divisor of each sum, which is a sum over the rows too.
      scores: (outputs, batch) -> further scores on held-out text, as (sum, weight).
      next_sentence: Whether the next sentence loss is added, where the config has it.
      prefix: Prefix of scores and logits. The model outputs `PREFIX_logits` for
        `masked_targets(batch)`: [batch, predictions, vocab], float32.
      causal: Whether nothing is masked, and each position sees those up to itself. A
        custom objective also needs `config.model.causal=True`.
      predictor: Predictor of the model's guesses, called as `FillMask` is.
      model: (its config) -> a module, called as `BertForPreTraining` is. None means
        the family's.
      flops: (model's config, length, predictions, pairs) -> model FLOPs of training on
        one row.
    """

    losses: Callable[[Arrays, Arrays], Scalars] = functools.partial(
        lm_losses, "masked_lm"
    )
    weights: Callable[[Arrays], Scalars] = functools.partial(lm_weights, "masked_lm")
    scores: Callable[[Arrays, Arrays], dict[str, tuple[Array, Array]]] = (
        lambda outputs, batch: {}
    )
    next_sentence: bool = True
    prefix: str = "masked_lm"
    causal: bool = False
    predictor: type[FillMask] = FillMask
    model: Callable[[BertConfig], nn.Module] | None = None
    flops: Callable[[BertConfig, int, int, int], int] = pretraining_flops


MASKED_LM = Objective()
LEFT_TO_RIGHT = Objective(
    functools.partial(lm_losses, "lm"),
    functools.partial(lm_weights, "lm"),
    next_sentence=False,  # with causal attention [CLS] attends to itself alone
    prefix="lm",
    causal=True,
    predictor=Continue,
)


def real_pairs(batch: Arrays) -> Float[Array, "batch *pairs"]:
    """Returns 1 for a real pair, 0 where one only pads the batch or the row."""
    return (batch["next_sentence_labels"] != PADDING_LABEL).astype(jnp.float32)


def next_sentence_losses(outputs: Arrays, batch: Arrays) -> Scalars:
    """Sums the cross entropy of whether the second text follows the first, in nats."""
    labels = jnp.maximum(batch["next_sentence_labels"], 0)
    losses = cross_entropy(outputs["next_sentence_logits"], labels)
    return {"next_sentence_loss": jnp.sum(real_pairs(batch) * losses)}


def next_sentence_weights(batch: Arrays) -> Scalars:
    """Counts the pairs to classify."""
    return {"next_sentence_loss": jnp.sum(real_pairs(batch))}


def next_sentence_scores(
    outputs: Arrays, batch: Arrays
) -> dict[str, tuple[Array, Array]]:
    """Counts the correct answers, and the random pairs."""
    guessed = jnp.argmax(outputs["next_sentence_logits"], axis=-1)
    labels, real = batch["next_sentence_labels"], real_pairs(batch)
    count, right = jnp.sum(real), jnp.sum(real * (guessed == labels))
    return {
        "next_sentence_accuracy": (right, count),
        "next_sentence_majority": (jnp.sum(real * labels), count),
    }


NEXT_SENTENCE = Objective(
    next_sentence_losses, next_sentence_weights, next_sentence_scores
)


def token_scores(
    prefix: str,
    outputs: Arrays,
    batch: Arrays,
    unigrams: Float[np.ndarray, "vocab"] | None,
) -> dict[str, tuple[Array, Array]]:
    """Returns scores that compare models however they were trained, as (sum, weight).

    They are cross entropy in nats and accuracy, and both for the tokens' counts.

    Args:
      unigrams: Log of each token's fraction of the training text. None leaves out
        their scores.
    """
    logits, (ids, weights) = outputs[f"{prefix}_logits"], masked_targets(batch)
    values = {
        f"{prefix}_loss": cross_entropy(logits, ids),
        f"{prefix}_accuracy": jnp.argmax(logits, axis=-1) == ids,
    }
    if unigrams is not None:
        values["unigram_loss"] = -jnp.asarray(unigrams)[ids]
        values["unigram_accuracy"] = ids == np.argmax(unigrams)
    total = jnp.sum(weights)
    return {name: (jnp.sum(weights * value), total) for name, value in values.items()}


def lm_table(
    prefix: str, split: str, scores: Mapping[str, float], baseline: Mapping[str, float]
) -> Table:
    """Tabulates scores on held-out text next to trivial ones: from the tokens' counts,
    and from the more common kind of pair.

    Args:
      prefix: Prefix of the language model's scores, as in `Objective`.
    """
    name, what = prefix, prefix.replace("lm", "LM").replace("_", " ")
    perplexity = math.exp(scores["unigram_loss"])
    rows = [
        (f"{what} loss (nats)", f"{name}_loss", scores["unigram_loss"]),
        (f"{what} perplexity", "perplexity", perplexity),
        (f"{what} accuracy", f"{name}_accuracy", scores["unigram_accuracy"]),
    ]
    table: list[tuple] = [
        (name, f"{scores[key]:.4g}", f"{uni:.4g}", "unigrams")
        for name, key, uni in rows
    ]
    if "next_sentence_accuracy" in scores:
        shown = (
            f"{scores[f'next_sentence_{name}']:.4g}"
            for name in ("accuracy", "majority")
        )
        table.append(("next sentence accuracy", *shown, "majority class"))
    return table, ("", "model", "baseline", "which is")


def lm_results(
    prefix: str, fetched: Sequence[Mapping[str, Mapping[str, Any]]]
) -> Results:
    """Adds the batches' sums and weights in double precision, and divides once.

    Args:
      fetched: `losses` and `scores` of each batch, as (sum, weight) by name. The sum
        of `next_sentence_majority` is the number of random pairs.

    Returns:
      These means as scores, with `loss` (the sum of the losses that are trained) and
      the language model's `perplexity`.
    """

    def means(kind: str) -> dict[str, float]:
        return {
            name: math.fsum(float(batch[kind][name][0]) for batch in fetched)
            / max(math.fsum(float(batch[kind][name][1]) for batch in fetched), 1e-6)
            for name in fetched[0][kind]
        }

    losses, scores = means("losses"), means("scores")
    if "next_sentence_majority" in scores:
        share = scores["next_sentence_majority"]
        scores["next_sentence_majority"] = max(share, 1 - share)
    perplexity = math.exp(min(scores[f"{prefix}_loss"], 700.0))
    loss = sum(losses.values())
    means_of_all = {**losses, **scores, "loss": loss, "perplexity": perplexity}
    return Results(means_of_all, table=functools.partial(lm_table, prefix))
