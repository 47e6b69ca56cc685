"""The prepared data of a run. It is resolved once, and then the text is not needed.

The task of pre-training imports this on use, because it imports all modules that
prepare and read data, and inference needs none of them.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import grain
import numpy as np
from jaxtyping import Float32
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.config.phases import phase_at, phases
from bert_jax.data import loader, packing, prepare, vocabulary
from bert_jax.data.prepare import Prepared
from bert_jax.data.rows import Batch, RowIndex, scaled


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
        self._recorded: Mapping[str, str] = {}  # names of folders by length

    def recall(self, record: Mapping[str, Any]) -> None:
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
            "folders": {str(n): self.of(n).folder.name for n in self._lengths()},
        }

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The given tokenizer, the run's, or the one trained on the corpus.

        Raises:
          UserError: see `vocabulary.prepare`.
        """
        if self._tokenizer is not None:
            return self._tokenizer
        for length in self._lengths():
            if data := prepare.reopen(self._config, length, self._name(length)):
                return data.tokenizer
        return vocabulary.prepare(self._config)

    def all(self) -> list[Prepared]:
        """Returns the data of every phase, shortest first.

        If the config requires it, the data is packed and its word vectors counted.
        """
        by_length = [(length, self.of(length)) for length in self._lengths()]
        if self._config.corpus.packing:
            most = self._config.corpus.packed_pairs
            for length, data in by_length:
                packing.rows(data.folder, length, most)
        if self.counts_words:
            self.word_vectors()
        return [data for _, data in by_length]

    @property
    def counts_words(self) -> bool:
        """Whether a new model begins with counted word embeddings."""
        return bool(
            self._config.task.get("word_initializer") == "counted"
            and not self._config.init_from
        )

    def word_vectors(self) -> Float32[np.ndarray, "vocab width"]:
        """Returns `word_vectors.of` the longest rows, as wide as the model."""
        from bert_jax.data import word_vectors  # slow, and most runs count none

        data = self.of(self._lengths()[-1])
        return word_vectors.of(data, self._config.model.hidden_size)

    def batches(self, step: int, rows: RowIndex, seed: int) -> Iterator[Batch]:
        """Yields the training batches from `step` on, through both phases.

        Args:
          rows: Rows of a batch of `config.train.batch_size`. Other sizes are scaled.
        """
        config = self._config.copy_and_resolve_references()
        config.seed = seed
        for phase in phases(config):
            if step < phase.end_step:
                local_rows = scaled(rows, config.train.batch_size, phase.batch_size)
                data = self.of(phase.max_seq_length)
                yield from loader.batches(config, phase, data, step, local_rows)
                step = phase.end_step

    def dev(self, step: int = 0, rows: RowIndex = slice(None)) -> grain.MapDataset:
        """Returns the batches of dev, at the length of the last of `step` steps."""
        phase = phase_at(self._config, max(step - 1, 0))
        data = self.of(phase.max_seq_length)
        return loader.dataset(self._config, phase, data, "dev", rows)

    def of(self, length: int) -> Prepared:
        """Returns the data of a length, and prepares it if it is missing.

        Raises:
          UserError: see `prepare.prepare`.
        """
        if length not in self._prepared:
            self._prepared[length] = prepare.prepare(
                self._config, length, self.tokenizer, self._name(length)
            )
        return self._prepared[length]

    def _name(self, length: int) -> str:
        return self._recorded.get(str(length), "")

    def _lengths(self) -> list[int]:
        return sorted({phase.max_seq_length for phase in phases(self._config)})
