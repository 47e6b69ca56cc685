"""What pre-training predicts (section 3.1; left to right: 5.1), and its report."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bert_jax.tasks.results import Results

# `task.objective` -> the prefix of its losses, scores and logits.
PREFIXES = {"mlm": "masked_lm", "ltr": "lm"}


class Targets(NamedTuple):
    """The pieces that the logits are to predict."""

    ids: Int[Array, "batch predictions"]
    weights: Float[Array, "batch predictions"]  # 1, or 0 where nothing is predicted


def targets(batch: Mapping[str, Array]) -> Targets:
    """The masked pieces; of a batch without masks, at each position the next piece of
    the same sequence, [SEP] too."""
    if "masked_lm_ids" in batch:
        return Targets(batch["masked_lm_ids"], batch["masked_lm_weights"])
    real = batch["input_mask"][:, 1:]
    if "sequence_ids" in batch:
        own = batch["sequence_ids"]
        real = real * (own[:, 1:] == own[:, :-1])
    return Targets(batch["input_ids"][:, 1:], real.astype(jnp.float32))


class Guesses(Results):
    """Scores on held-out text, next to trivial ones: of the pieces' counts, and of the
    commoner kind of pair."""

    def table(
        self, split: str, scores: Mapping[str, float]
    ) -> tuple[list[tuple], tuple]:
        """The rows and header of the closing report."""
        del split
        perplexity = math.exp(scores["unigram_loss"])
        name, what = ("lm", "LM") if "lm_loss" in scores else ("masked_lm", "masked LM")
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


def guesses(prefix: str, fetched: Sequence[Mapping[str, Any]]) -> Guesses:
    """Adds the batches' sums and weights in double precision, divides once.

    Args:
      prefix: of PREFIXES.
      fetched: of each batch, (sum, weight) by name; the sum of
        `next_sentence_majority` is the number of random pairs.

    Returns:
      These means as scores, with `loss` (the sum of the losses) and the language
      model's `perplexity`.
    """
    means = {
        name: math.fsum(float(batch[name][0]) for batch in fetched)
        / max(math.fsum(float(batch[name][1]) for batch in fetched), 1e-6)
        for name in fetched[0]
    }
    if "next_sentence_majority" in means:
        share = means["next_sentence_majority"]
        means["next_sentence_majority"] = max(share, 1 - share)
    own = means[f"{prefix}_loss"]
    loss = own + means.get("next_sentence_loss", 0.0)
    return Guesses({"loss": loss, **means, "perplexity": math.exp(min(own, 700.0))})
