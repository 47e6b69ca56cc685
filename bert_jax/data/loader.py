"""Batches as a pure function of (config, step): nothing to save, nothing to skip.

Grain gives the order, random access and prefetching; a batch's rows are read, put
together and masked at once.
"""

import functools
import json
from collections.abc import Iterator

import grain
import numpy as np
from array_record.python.array_record_data_source import ArrayRecordDataSource
from jaxtyping import Int
from ml_collections import ConfigDict

from bert_jax import tokenization
from bert_jax.config.phases import Phase, phase_at, phases
from bert_jax.data import masking, prepare, records, workers
from bert_jax.data.prepare import Prepared
from bert_jax.data.rows import EPOCHS, RowIndex
from bert_jax.errors import UserError

Batch = dict[str, np.ndarray]

# Of the next sentence label of a row that only fills up the last batch.
PADDING_LABEL = -1


def dataset(
    config: ConfigDict,
    phase: Phase,
    data: Prepared,
    split: str = "train",
    rows: RowIndex = slice(None),
) -> grain.MapDataset:
    """The batches of a phase, the first one at index 0.

    Args:
      config: the whole config.
      phase: from `phases`.
      data: sentence pairs of the phase's length.
      split: `train`, shuffled for each epoch and without end, or `dev`, once in the
        order written, the last batch filled up with empty rows.
      rows: of the global batch; a host reads its own only.
    """
    pairs = _Pairs(config, phase, data, split)
    count = len(pairs)
    if split == "train":
        size = phase.batch_size
        order = grain.MapDataset.range(count).seed(config.seed).shuffle()
        order = order.repeat(EPOCHS)
    else:
        size = config.evaluate.batch_size
        order = grain.MapDataset.range(-(-count // size) * size)

    def batch(index: int, record: Int[np.ndarray, "batch"]) -> Batch:
        position = index * size + np.arange(size)[rows]
        return pairs.batch(record[rows], position // count if split == "train" else 0)

    return order.batch(size).map_with_index(batch)


def batch_at(config: ConfigDict, step: int, split: str = "train") -> Batch:
    """The global batch of a step.

    The data is resolved from the config, once for all calls with the same one.

    Args:
      config: the whole config; data that is missing is prepared.
      step: from 0; of the dev split, the batch's number.
      split: `train` or `dev`.

    Returns:
      `input_ids`, `input_mask`, `segment_ids` [batch, length]; `masked_lm_positions`,
      `masked_lm_ids`, `masked_lm_weights` [batch, predictions];
      `next_sentence_labels` [batch] (0: IsNext, 1: NotNext, -1: the row is filling).
    """
    phase = phase_at(config, step) if split == "train" else phases(config)[0]
    first = phase.first_step if split == "train" else 0
    return _resolved(config.to_json(), phase, split)[step - first]


def batches(
    config: ConfigDict,
    phase: Phase,
    data: Prepared,
    step: int,
    rows: RowIndex = slice(None),
) -> Iterator[Batch]:
    """The batches of a phase from `step` to its end, read ahead while a step runs."""
    # On few cores a second reader only takes the time of the step.
    threads = min(4, max(1, workers.cores() // 2))
    ahead = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=8)
    first, end = step - phase.first_step, phase.end_step - phase.first_step
    rest = dataset(config, phase, data, rows=rows)[first:end]
    return iter(rest.to_iter_dataset(ahead))


class _Pairs:
    """The prepared sentence pairs of a split, made into masked batches."""

    def __init__(self, config: ConfigDict, phase: Phase, data: Prepared, split: str):
        self._folder = data.folder
        self._source = ArrayRecordDataSource(
            sorted(str(path) for path in data.folder.glob(f"*-{split}.array_record-*"))
        )
        self._special = tokenization.special_ids(data.tokenizer)
        vocabulary = data.tokenizer.get_vocab()
        self._continuation = np.zeros(len(vocabulary), bool)
        for piece, index in vocabulary.items():
            self._continuation[index] = piece.startswith("##")
        self._config = config
        # Dev's masks are of the data, whatever the run's seed.
        self._seed = config.seed if split == "train" else config.corpus.seed
        self._phase = phase

    def __len__(self) -> int:
        return len(self._source)

    def batch(
        self, record: Int[np.ndarray, "batch"], epoch: Int[np.ndarray, "batch"] | int
    ) -> Batch:
        """Reads and masks records; those past the last give empty rows."""
        phase, special = self._phase, self._special
        real = record[record < len(self)]
        # The reader cannot read nothing: a process may hold filling rows only.
        try:
            found = self._source.__getitems__(real.tolist()) if len(real) else ()
        except RuntimeError as error:  # ArrayRecord's, of a disk or a bucket
            raise UserError(
                f"{self._folder}: the prepared data cannot be read ({error}); start "
                "again, or remove this folder first, so that it is made anew"
            ) from error
        rows = [records.parse(row) for row in found]
        ids = np.full((len(record), phase.max_seq_length), special.pad, np.int32)
        mask = np.zeros_like(ids)
        segments = np.zeros_like(ids)
        candidates = np.zeros(ids.shape, bool)
        labels = np.full(len(record), PADDING_LABEL, np.int32)
        for row, (tokens_a, tokens_b, is_random_next) in enumerate(rows):
            a_end = len(tokens_a) + 1
            ids[row, 0] = special.cls
            ids[row, 1:a_end] = tokens_a
            ids[row, a_end] = special.sep
            candidates[row, 1:a_end] = True
            end = a_end + 1
            if len(tokens_b):
                b_end = end + len(tokens_b)
                ids[row, end:b_end] = tokens_b
                ids[row, b_end] = special.sep
                candidates[row, end:b_end] = True
                segments[row, end : b_end + 1] = 1
                end = b_end + 1
            mask[row, :end] = 1
            labels[row] = is_random_next
        masked = masking.apply(
            ids,
            mask,
            candidates,
            masking.draw(
                self._seed,
                np.broadcast_to(epoch, record.shape),
                record,
                phase.max_seq_length,
                phase.max_predictions_per_seq,
            ),
            self._config.masking,
            special.mask,
            self._continuation,
        )
        return {
            "input_ids": masked.input_ids,
            "input_mask": mask,
            "segment_ids": segments,
            "masked_lm_positions": masked.masked_lm_positions,
            "masked_lm_ids": masked.masked_lm_ids,
            "masked_lm_weights": masked.masked_lm_weights,
            "next_sentence_labels": labels,
        }


@functools.lru_cache(maxsize=8)
def _resolved(config_json: str, phase: Phase, split: str) -> grain.MapDataset:
    config = ConfigDict(json.loads(config_json))
    data = prepare.prepare(config, phase.max_seq_length)
    return dataset(config, phase, data, split)
