"""The prepared data of a run: resolved once; afterwards the text is not needed."""

import functools
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.config.phases import phases
from bert_jax.data import mix, packing, prepare
from bert_jax.data.prepare import Prepared


class RunData:
    """Sentence pairs at the length of each phase, and their vocabulary."""

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer | None):
        """Touches no data.

        Args:
          config: the whole config.
          tokenizer: None: the one that the run started with, or a newly trained one.
        """
        self._config = config
        self._given = tokenizer
        self._found: dict[int, Prepared] = {}  # by length
        self._record: Mapping[str, Any] = {}

    def recall(self, record: Mapping[str, Any]) -> None:
        """Takes the `record` of a resumed run; call it first.

        The run's prepared data is reused where `config.corpus.data_dir` still has it,
        even if its text is gone or has grown. A record of other sources than the
        config's is ignored.
        """
        if record.get("sources") == list(self._config.corpus.sources):
            self._record = record

    def record(self) -> dict[str, Any]:
        """The folders' names by length, and the settings that shaped them, as JSON."""
        found = self.all()
        shaped_by = {
            name: value
            for name, value in found[0].report.items()
            if name not in ("totals", "cleaning")  # what came out
        }
        return {
            "sources": list(self._config.corpus.sources),
            "folders": {str(n): self.of(n).folder.name for n in self._lengths()},
            "shaped_by": shaped_by,
        }

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The given tokenizer, the run's, or the one trained on the corpus.

        Raises:
          UserError: see `prepare.prepare_tokenizer`.
        """
        if self._given is not None:
            return self._given
        recorded = filter(None, map(self._recorded, self._lengths()))
        for data in recorded:
            return data.tokenizer
        return prepare.prepare_tokenizer(self._config)

    def all(self) -> list[Prepared]:
        """The data of every phase, shortest first; packed if the config says so."""
        found = [(length, self.of(length)) for length in self._lengths()]
        for length, data in found if self._config.corpus.packing else ():
            packing.rows(data.folder, length)
        return [data for _, data in found]

    def mix(self) -> list[str]:
        """How often each phase sees each source, a line each; none without weights."""
        found = []
        for phase in phases(self._config) if self._config.corpus.weights else ():
            rows = (phase.end_step - phase.first_step) * phase.batch_size
            report = self.of(phase.max_seq_length).report
            found += mix.told(self._config, report, rows)
        return found

    def of(self, length: int) -> Prepared:
        """The data of a length; prepares it if it is missing.

        Raises:
          UserError: see `prepare.prepare`.
        """
        if length not in self._found:
            recorded = self._recorded(length)
            self._found[length] = recorded or prepare.prepare(
                self._config, length, self.tokenizer, self._record
            )
        return self._found[length]

    def _lengths(self) -> list[int]:
        return sorted({phase.max_seq_length for phase in phases(self._config)})

    def _recorded(self, length: int) -> Prepared | None:
        """The data that the run started with, if it still exists."""
        name = prepare.recorded(self._record, length)
        found = prepare.reopen(self._config, name, length) if name else None
        if found is None or (self._given and not found.is_of(self._given)):
            return None
        return found
