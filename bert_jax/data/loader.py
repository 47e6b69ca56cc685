"""Batches as a pure function of (config, step): nothing to save, nothing to skip.

Grain shuffles, gives random access and prefetches. A whole batch is read, framed and
masked at a time. A run resolves its data once, and then the text is not needed.
"""

import functools
import itertools
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import grain
import numpy as np
from jaxtyping import Bool, Int
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.config import fields
from bert_jax.config.phases import Phase, find_phase, phases_of
from bert_jax.data import masking, packing, prepare
from bert_jax.data.prepare import Prepared
from bert_jax.data.rows import (
    EPOCHS,
    PADDING_LABEL,
    Batch,
    RowIndex,
    read_ahead,
    scale_rows,
)
from bert_jax.data.table import Table
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.runtime import storage
from bert_jax.tokenization.wordpiece import WORDPIECE

log = logging.getLogger(__name__)
Numbers: TypeAlias = Int[np.ndarray, "batch"]
# Of rows, their epochs, and the step.
RowMaker: TypeAlias = Callable[..., Batch]


def batch_dataset(
    config: ConfigDict,
    phase: Phase,
    data: Prepared,
    split: str = "train",
    rows: RowIndex = slice(None),
) -> grain.MapDataset:
    """Returns the batches of a phase, the first one at index 0.

    Args:
      config: The whole config. The values of the phase hold for train, so dev's masks
        are the same in all phases.
      phase: One of `phases_of`.
      data: Sentence pairs of the phase's length.
      split: `train` (endless, reshuffled each epoch, with `corpus.packing` several
        pairs a row, with `corpus.weights` in the order of a `SourceMixture`) or `dev`
        (once, in the order written, one pair a row, the last batch padded with empty
        rows).
      rows: Rows of the global batch to read. A host reads only its rows.
    """
    table = data.table(split)
    if split == "train":
        seed, before = _reading_place(config, phase)
        config = fields.with_values(config, {**dict(phase.changes), "seed": seed})
    make, count = row_maker(config, phase, data, split), table.rows
    if split == "dev":
        size = config.evaluate.batch_size
        order = grain.MapDataset.range(-(-count // size) * size)
        return order.batch(size).map(lambda row: make(row[rows], 0 * row[rows], 0))
    mixed = None
    if config.corpus.packing:
        make, count = _packed_maker(config, phase, data, make)
    elif config.corpus.weights:
        mixed = _mix_sources(config, table)
        count = mixed.size
    size = phase.batch_size
    order = grain.MapDataset.range(count).seed(config.seed).shuffle()

    def batch(index: int, row: Numbers) -> Batch:
        epoch = (before + index * size + np.arange(size)[rows]) // count
        records = row[rows], epoch
        if mixed is not None:
            records = mixed.records(*records)
        return make(*records, phase.first_step + index)

    return order.repeat(EPOCHS)[before:].batch(size).map_with_index(batch)


def _reading_place(config: ConfigDict, phase: Phase) -> tuple[int, int]:
    """Returns a phase's seed, and the number of rows that it finds read.

    Phases of one length read the same data, and a phase goes on where those before it
    stopped. One with other weights of the sources begins another order of the rows, so
    it has a seed of its own. A phase of another length begins other data.
    """

    def weights(phase: Phase) -> tuple[float, ...]:
        return tuple(phase.value(config, "corpus.weights"))

    length, step = phase.max_seq_length, phase.first_step
    until = [p for p in phases_of(config) if p.first_step < step]
    alike = [*(p for p in until if p.max_seq_length == length), phase]
    *orders, last = [[*group] for _, group in itertools.groupby(alike, weights)]
    seed = config.seed
    if orders:
        seed = int(np.random.SeedSequence((seed, len(orders))).generate_state(1)[0])
    return seed, sum(p.steps * p.batch_size for p in last[:-1])


def batch_at(config: ConfigDict, step: int, split: str = "train") -> Batch:
    """Returns the global batch of a step.

    Calls with the same config share the data, which is resolved once.

    Args:
      config: The whole config. Missing data is prepared.
      step: Step, from 0. For the dev split, the batch's number.
      split: `train` or `dev`.

    Returns:
      `input_ids`, `input_mask`, `segment_ids` [batch, length], `masked_lm_positions`,
      `masked_lm_ids`, `masked_lm_weights` [batch, predictions] (none of the three with
      `task.objective=ltr`, whose ids are the text's), and
      `next_sentence_labels` [batch] (0: IsNext, 1: NotNext, -1: a padding row). With
      `corpus.packing` the training batches are those of `packing.pack_pairs`.
    """
    phases = phases_of(config)
    phase = find_phase(phases, step) if split == "train" else phases[0]
    first = phase.first_step if split == "train" else 0
    return _open_dataset(config.to_json(), phase, split)[step - first]


def row_maker(config: ConfigDict, phase: Phase, data: Prepared, split: str) -> RowMaker:
    """Returns a function that frames and masks rows of a split.

    An index past the last row gives an empty row.
    """
    table, special = data.table(split), tokenization.special_ids(data.tokenizer)
    tokens = tokenization.tokens_by_id(data.tokenizer)
    kind = tokenization.kind_of(data.tokenizer)
    continues = np.array([kind.continues(token) for token in tokens], bool)
    may_mask = np.ones(len(tokens), bool)
    may_mask[[*tokenization.custom_special_ids(data.tokenizer), special.sep]] = False
    frame = FAMILIES[config.model.architecture].assemble
    # Dev's masks depend on the data alone, not on the run's seed.
    seed = config.seed if split == "train" else config.corpus.seed

    def make(index: Numbers, epoch: Numbers, step: int = 0) -> Batch:
        pairs = table.take(index)
        batch, candidates = frame(pairs, phase.max_seq_length, special)
        labels = pairs["is_random_next"].values.astype(np.int32)
        labels[index >= table.rows] = PADDING_LABEL
        batch["next_sentence_labels"] = labels
        if not masking.has_masks(config):
            return batch
        ids = batch["input_ids"]
        return batch | masking.mask_pairs(
            ids,
            batch["input_mask"],
            candidates & may_mask[ids],
            functools.partial(masking.row_uniforms, seed, b"mask", epoch, index),
            config.masking,
            phase.max_predictions_per_seq,
            special.mask,
            continues,
            step,
            tokens,
        )

    return make


def _packed_maker(
    config: ConfigDict, phase: Phase, data: Prepared, make: RowMaker
) -> tuple[RowMaker, int]:
    """Returns a function as `make`, of rows that share pairs, and their number."""
    length, max_pairs = phase.max_seq_length, config.corpus.packed_pairs
    packed = packing.packed_rows(data.folder, data.table("train"), length, max_pairs)
    pad = tokenization.special_ids(data.tokenizer).pad
    shapes = masking.batch_shapes(config, phase)
    _, predictions = shapes.get("masked_lm_ids", (0, 0))

    def make_packed(index: Numbers, epoch: Numbers, step: int = 0) -> Batch:
        pair = packed[index]
        filled = pair >= 0
        pairs = make(pair[filled], epoch[np.nonzero(filled)[0]], step)
        batch = packing.pack_pairs(pairs, filled, predictions, pad)
        if config.corpus.shift_positions:  # drawn for each row's first pair
            first, seed = pair[:, 0], config.seed
            drawn = masking.row_uniforms(seed, b"shift", epoch, first, 1)
            choices = config.model.max_position_embeddings - length + 1
            batch["position_ids"] += (drawn * choices).astype(np.int32)
        return batch

    return make_packed, len(packed)


def _mix_sources(config: ConfigDict, table: Table) -> "SourceMixture":
    """Returns the mix of `config.corpus.weights`.

    Args:
      table: Rows in the order of their sources.

    Raises:
      UserError: It has no rows.
    """
    weights, source = config.corpus.weights, table["source"].values
    ends = np.searchsorted(source, np.arange(len(weights), dtype=source.dtype), "right")
    mixed = SourceMixture(np.diff(ends, prepend=0).tolist(), weights, config.seed)
    if not mixed.size:
        raise UserError(
            f"config.corpus.weights={tuple(weights)}: no source with a weight above 0 "
            "has rows to train on"
        )
    return mixed


def assemble_rows(
    pairs: Table, length: int, special: tokenization.SpecialIds
) -> tuple[Batch, Bool[np.ndarray, "rows length"]]:
    """Frames each pair: [CLS] A [SEP] B [SEP], or [CLS] A [SEP].

    Args:
      pairs: Rows of `Prepared.table`. Those without tokens are empty.
      length: Tokens of a row.

    Returns:
      `input_ids`, `input_mask` (1 for a token, special ones too) and `segment_ids` (1
      for B and its [SEP]) [rows, length], and which positions are tokens of A and B.
    """
    size_a = pairs["size_a"].values[:, None]
    size_b = pairs["tokens"].sizes()[:, None] - size_a
    end = np.where(size_a, size_a + 2 + np.where(size_b, size_b + 1, 0), 0)
    column = np.arange(length)
    mask = column < end
    segments = mask & (column > size_a + 1)
    candidates = mask & (column > 0) & (column != size_a + 1) & (column != end - 1)
    ids = np.where(mask, special.sep, special.pad).astype(np.int32)
    ids[:, :1][size_a > 0] = special.cls
    ids[candidates] = pairs["tokens"].values
    batch = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
    return {name: x.astype(np.int32) for name, x in batch.items()}, candidates


class SourceMixture:
    """Sources seen more or less often than others, by `config.corpus.weights`.

    A pass over the mix takes `weight` times the rows of each source, rounded to a whole
    row (at least one), all reshuffled. Over the passes each source's rows come equally
    often. Within one pass, with a weight above 1, a row may come twice before another
    comes. The next pass over the mix continues where the last one ended. So a weight of
    2 is exactly two epochs a pass and 0.5 half of one, and the record at a position in
    the training order follows from (weights, seed, position) alone.

    Attributes:
      size: Rows of a pass.
    """

    def __init__(self, rows: Sequence[int], weights: Sequence[float], seed: int):
        """Takes each source's rows and weight. Its records follow the last source's.

        Args:
          rows: Number of rows of each source. Sources without rows, or with the weight
            0, are skipped.
        """
        self._rows = np.array(rows)
        wanted = self._rows * np.array(weights)
        at_least = np.maximum(1, np.rint(wanted))
        self._parts = np.where(wanted > 0, at_least, 0).astype(int)
        self._ends = np.cumsum(self._parts)
        self.size = int(self._ends[-1])
        self._first = np.cumsum(self._rows) - self._rows
        # Each source has a separate seed: equal ones could undo the mix's shuffling.
        self._streams = [
            grain.MapDataset.range(max(1, count))
            .seed((seed + 1 + number) % 2**32)
            .shuffle()
            .repeat(EPOCHS)
            for number, count in enumerate(rows)
        ]

    def records(self, place: Numbers, turn: Numbers) -> tuple[Numbers, Numbers]:
        """Returns the record at each position of a pass, and its source's epoch.

        Args:
          place: Positions in the pass, below `size`.
          turn: Number of the pass.
        """
        source = np.searchsorted(self._ends, place, "right")
        inside = place - (self._ends - self._parts)[source]
        position = turn * self._parts[source] + inside
        drawn = [
            int(self._streams[one][at])
            for one, at in zip(source.tolist(), position.tolist(), strict=True)
        ]
        record = self._first[source] + np.array(drawn, int)
        return record, position // self._rows[source]


@functools.lru_cache(maxsize=8)
def _open_dataset(config_json: str, phase: Phase, split: str) -> grain.MapDataset:
    config = ConfigDict(json.loads(config_json))
    data = RunData(config, None).prepare_length(phase.max_seq_length)
    return batch_dataset(config, phase, data, split)


class RunData:
    """Sentence pairs at the length of each phase, and their vocabulary."""

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer | None):
        """Reads no data yet.

        Args:
          config: The whole config.
          tokenizer: Tokenizer. None means the one that the run started with, or a newly
            trained one.
        """
        self._config = config
        self._tokenizer = tokenizer
        self._prepared: dict[int, Prepared] = {}  # by length
        self._others: dict[tuple[str, int], Prepared] = {}  # texts, by length too
        self._recorded: Mapping[str, str] = {}  # names of folders by length

    def reuse_recorded(self, record: Mapping[str, Any]) -> None:
        """Takes the `record` of a resumed run. Call it first.

        The run's prepared data is reused where `config.corpus.data_dir` still has it,
        even if its text is gone or has grown. A record of sources other than the
        config's is ignored.
        """
        if record.get("sources") == list(self._config.corpus.sources):
            self._recorded = record["folders"]

    def record(self) -> dict[str, Any]:
        """Returns the sources, and the folders' names by length, as JSON."""
        return {
            "sources": list(self._config.corpus.sources),
            "folders": {
                str(n): self.prepare_length(n).folder.name for n in self._lengths()
            },
        }

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The given tokenizer, the run's, or the one trained on the corpus.

        Raises:
          UserError: see `prepare.prepare_tokenizer`.
        """
        if self._tokenizer is not None:
            return self._tokenizer
        data_dir = storage.storage_path(self._config.corpus.data_dir)
        for name in self._recorded.values():
            if data := prepare.reopen(data_dir, name):
                return data.tokenizer
        return prepare.prepare_tokenizer(self._config)

    def prepare_all(self) -> list[Prepared]:
        """Returns the data of every phase, shortest first.

        If the config requires it, the data is packed.

        Raises:
          UserError: A phase has no rows to train on.
        """
        found = [self.prepare_length(length) for length in self._lengths()]
        for phase in phases_of(self._config):
            length = phase.max_seq_length
            data = self.prepare_length(length)
            config = fields.with_values(self._config, dict(phase.changes))
            if config.corpus.packing:
                pairs = config.corpus.packed_pairs
                packing.packed_rows(data.folder, data.table("train"), length, pairs)
            elif config.corpus.weights:
                _mix_sources(config, data.table("train"))
        return found

    def batches(self, step: int, rows: RowIndex, seed: int) -> Iterator[Batch]:
        """Yields the training batches from `step` on, through all phases, read ahead.

        Args:
          rows: Rows of a batch of `config.train.batch_size`. Other sizes are scaled.
        """
        config = fields.with_values(self._config, {"seed": seed})
        for phase in phases_of(config):
            if step < phase.end_step:
                local_rows = scale_rows(rows, config.train.batch_size, phase.batch_size)
                data = self.prepare_length(phase.max_seq_length)
                every = batch_dataset(config, phase, data, rows=local_rows)
                first, end = step - phase.first_step, phase.end_step - phase.first_step
                yield from read_ahead(every[first:end])
                step = phase.end_step

    def dev(
        self, step: int = 0, rows: RowIndex = slice(None), source: str = ""
    ) -> grain.MapDataset:
        """Returns the batches of dev, at the length of the last of `step` steps.

        Args:
          source: A text like those of `config.corpus.sources`, all of which is taken.
            Empty means the corpus's held-out documents.
        """
        phase = find_phase(phases_of(self._config), max(step - 1, 0))
        length = phase.max_seq_length
        if source:
            data = self.prepare_source(source, length)
        else:
            data = self.prepare_length(length)
        return batch_dataset(self._config, phase, data, "dev", rows)

    def prepare_length(self, length: int) -> Prepared:
        """Returns the data of a length, and prepares it if it is missing.

        Raises:
          UserError: see `prepare.prepare_pairs`.
        """
        if length not in self._prepared:
            self._prepared[length] = self._prepare(
                self._config.corpus, length, self._recorded.get(str(length), "")
            )
        return self._prepared[length]

    def find_prepared(self, length: int) -> Prepared | None:
        """Returns the data of a length if it is there, and prepares nothing."""
        data_dir = storage.storage_path(self._config.corpus.data_dir)
        recorded = prepare.reopen(data_dir, self._recorded.get(str(length), ""))
        return self._prepared.get(length) or recorded

    def prepare_source(self, source: str, length: int) -> Prepared:
        """Returns all of a text as the dev split of this length.

        Raises:
          UserError: see `prepare.prepare_pairs`.
        """
        if (source, length) not in self._others:
            whole = {"sources": (source,), "weights": (), "dev_fraction": 1.0}
            changed = {f"corpus.{name}": value for name, value in whole.items()}
            settings = fields.with_values(self._config, changed).corpus
            self._others[source, length] = data = self._prepare(settings, length)
            tokens = data.table("dev")["tokens"].values
            unknown = np.mean(tokens == tokenization.special_ids(data.tokenizer).unk)
            if unknown > tokenization.MANY_UNKNOWN:
                log.warning("warning: %s: %.1f%% [UNK]", source, 100 * unknown)
        return self._others[source, length]

    def _prepare(
        self, settings: ConfigDict, length: int, recorded: str = ""
    ) -> Prepared:
        around = FAMILIES[self._config.model.architecture].vocabulary.around
        # A row of text alone has room for two tokens more.
        length += WORDPIECE.around - around
        return prepare.prepare_pairs(settings, length, self.tokenizer, recorded)

    def _lengths(self) -> list[int]:
        return sorted({phase.max_seq_length for phase in phases_of(self._config)})
