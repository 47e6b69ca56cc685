"""Left to right: each piece predicted from those before it (section 5.1)."""

import functools

import numpy as np
from tokenizers import Encoding

from bert_jax.data.rows import Batch, Feature
from bert_jax.tasks.fill_mask import FillMask, Row
from bert_jax.tasks.objectives import Objective, lm_losses, lm_weights
from bert_jax.tasks.task import Outputs


class Continue(FillMask):
    """`{"text": ...}` -> the same with `next`: the guesses for the piece after it."""

    blank = "[MASK]"  # after the text

    def _masks(self, encoding: Encoding) -> list[int]:
        """The text's last piece; the [SEP] after it is not seen from there."""
        return [len(encoding.ids) - 2]

    def answer(self, feature: Feature, output: Outputs) -> Row:
        """Returns `next`."""
        return {"next": self._guesses(output, 1)[0]}

    def examples(
        self, batch: Batch, count: int
    ) -> tuple[dict[str, np.ndarray], list[list[str]]]:
        """A few rows of a batch, each cut in its middle, and the pieces after it."""
        lengths = batch["input_mask"].sum(axis=1)
        real = int(np.sum(lengths > 0))
        rows = np.linspace(0, real - 1, min(count, real)).astype(int)
        names = ("input_ids", "input_mask", "segment_ids")
        features = {name: batch[name][rows] for name in names}
        ends = np.maximum(1, lengths[rows] // 2)
        wanted = [
            [self._piece(ids[end])]
            for ids, end in zip(features["input_ids"], ends, strict=True)
        ]
        features["input_mask"] = features["input_mask"] * (
            np.arange(batch["input_ids"].shape[1]) < ends[:, None]
        )
        features["masked_lm_positions"] = (ends - 1)[:, None].astype(np.int32)
        return features, wanted

    def _shows(self, piece: int | np.integer) -> bool:
        return True


LEFT_TO_RIGHT = Objective(
    functools.partial(lm_losses, "lm"),
    functools.partial(lm_weights, "lm"),
    next_sentence=False,  # with causal attention [CLS] attends to itself alone
    prefix="lm",
    causal=True,
    predictor=Continue,
)
