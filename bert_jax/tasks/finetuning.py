"""The machinery that all fine-tuning tasks share: rows, batches, model, evaluation.

A task is a file of its own, a `TaskDefinition` (docs/fine_tuning.md).
"""

import dataclasses
import functools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.config.phases import Phase
from bert_jax.data import overlap, packing
from bert_jax.data.rows import Batch, Feature, RowIndex, Rows
from bert_jax.data.tables import ColumnSpec, Row
from bert_jax.data.texts import hold_out
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES, bert_config
from bert_jax.models import crf
from bert_jax.models.architectures import HEADS, BertWithHeads
from bert_jax.models.encoder import Packed, layer_loss_weights, layer_losses
from bert_jax.models.heads import init_model
from bert_jax.tasks import distillation, windows
from bert_jax.tasks.definition import NO_LABEL, Outputs, TaskDefinition
from bert_jax.tasks.sequences import Sequences
from bert_jax.tasks.task import Data, Predictor, Results
from bert_jax.types import Arrays, DropoutKey, Scalars

_SCORED = 16  # rows computed together by `scores_of`


class Finetuning(distillation.Taught, Predictor):
    """A run's task of a `TaskDefinition`. Input rows are answered as in evaluation.

    Attributes:
      definition: The definition, with the run's config and fitted values.
      text: Its vocabulary, and how texts become sequences.
      texts_per_row: Maximum number of texts that share a row, `task.texts_per_row`.
    """

    def __init__(
        self,
        definition: type[TaskDefinition],
        config: ConfigDict,
        tokenizer: Tokenizer | None = None,
    ):
        """Checks the config and reads the vocabulary, but no data.

        Args:
          definition: The task's definition.
          config: The whole config.
          tokenizer: Tokenizer. None means the config's.

        Raises:
          UserError: there is no vocabulary, or a config value is out of range.
        """
        super().__init__(config)
        tokenizer = tokenizer or tokenization.load_config_tokenizer(config)
        if tokenizer is None:
            raise UserError(
                "config.tokenizer.vocab_file is empty: name a "
                f"{FAMILIES[config.model.architecture].vocabulary.files[0]}, or start "
                "from weights with a vocabulary: --config.init_from"
            )
        self._read: dict[str, Sequence[Row]] = {}
        self._examples: dict[str, Sequence[Row]] = {}
        self._encoded: dict[str, list[Feature]] = {}
        self._tables: dict[str, Rows] = {}
        self.model_config = bert_config(config.model, tokenizer.get_vocab_size())
        if config.train.phases:
            raise UserError(
                "config.train.phases: are pre-training's; leave it empty to fine-tune"
            )
        limit, length = config.model.max_position_embeddings, config.task.max_seq_length
        self.max_seq_length = length
        if length > limit:
            raise UserError(
                f"config.task.max_seq_length={length}: must be at most "
                f"config.model.max_position_embeddings={limit}"
            )
        self.text = self.make_text(definition, tokenizer)
        self.definition = definition(self.config, self.options, self.text, self.rows)
        self.texts_per_row = self.options.texts_per_row
        count = self.options.windows
        if count > 1 and self.definition.sequences != count:
            raise UserError(
                f"config.task.windows={count}: is for tasks on texts; leave it 1"
            )
        can_share = (
            self.heads == ("sequence_classification",)
            and self.heads[0] not in HEADS
            and not config.model.causal
            and not self.options.bilstm
        )
        if self.texts_per_row > 1 and not can_share:
            raise UserError(
                f"config.task.texts_per_row={self.texts_per_row}: is for a BERT's "
                "classes, numbers and labels, without model.causal and task.bilstm; "
                "leave it 1"
            )

    def make_text(
        self, definition: type[TaskDefinition], tokenizer: Tokenizer
    ) -> Sequences:
        """Returns how the definition's texts become this model's sequences."""
        return Sequences(self.options, tokenizer, self.notices)

    def fill_in(self, values: Mapping[str, Any]) -> None:
        super().fill_in(values)
        self.definition = dataclasses.replace(
            self.definition, config=self.config, options=self.options
        )

    def with_fitted(self, fitted: Mapping[str, Any]) -> Self:
        task = super().with_fitted(fitted)
        task.definition = dataclasses.replace(self.definition, fitted=task.fitted)
        return task

    @property
    def main_score(self) -> str:  # type: ignore[override]
        return self.definition.main_score

    @property
    def kind(self) -> str:
        return self.definition.kind

    @property
    def row_fields(self) -> tuple[str, ...]:
        """See `TaskDefinition.row_fields`."""
        return self.definition.row_fields

    @property
    def row_columns(self) -> ColumnSpec:
        return self.definition.row_columns

    def parse_row(self, row: Row) -> Row:
        return self.definition.parse_row(row)

    def encode(self, examples: Sequence[Row], split: str) -> list[Feature]:
        return self.definition.encode(examples, split)

    def make_rows(self, features: Sequence[Feature]) -> Rows:
        if self.texts_per_row == 1:
            return Rows(features, self.padding)
        return packing.PackedRows(features, self.padding, self.texts_per_row)

    def resolve(self) -> None:
        super().resolve()
        train = self.config.train
        if inferred := self.definition.infer_fields():
            self.fill_in(inferred)
        if not train.num_steps:
            rows = train.num_epochs * len(self._rows("train"))
            steps = max(1, int(rows / train.batch_size))
            self.fill_in({"train.num_steps": steps})

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the model's outputs, in order."""
        return self.definition.labels

    @property
    def tokenizer(self) -> Tokenizer:
        return self.text.tokenizer

    @property
    def heads(self) -> tuple[str, ...]:
        """The model's heads."""
        return self.definition.heads

    @functools.cached_property
    def model(self) -> BertWithHeads:
        return FAMILIES[self.model_config.architecture].with_heads(
            self.model_config,
            heads=self.heads,
            labels=max(1, len(self.labels)),
            bilstm=self.options.bilstm,
        )

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits of `config.evaluate.splits` that have data."""
        # Numbers their labels: a wrong one is found before anything is computed.
        return tuple(s for s in self.config.evaluate.splits if self.examples(s))

    def unused_parameters(self, *, predicts: bool = False) -> tuple[str, ...]:
        uses_pooler = any(map(self.model.uses_pooler, self.heads))
        return () if uses_pooler else ("bert/pooler",)

    def training_data(self) -> Data:
        rows = self._rows("train")
        unknown = rows.fraction(self.text.special.unk)
        if FAMILIES[self.config.model.architecture].has_segments:
            self.model_config.require_segments(rows.segments)
        dev = {split: self._rows(split).digest() for split in self.dev_splits}
        held = [split for split in self.splits if split.startswith(("dev", "test"))]
        others = {split: self.examples(split) for split in held}
        self.notices.update(overlap.shared_texts(self.examples("train"), others))
        if self.teacher is not None and len(self.labels) > 1:
            self.teacher.log_accuracy(self.examples("train"))
        record = {"rows": rows.digest(), "dev": dev}
        if facts := self.definition.fit(self.examples("train"), None):
            record["facts"] = facts
        return Data(unknown, len(rows), record)

    def init_params(self, key: Key[Array, ""]) -> dict:
        return init_model(self.model, key)

    def batches(self, step: int, rows: RowIndex, seed: int) -> Iterator[Batch]:
        table, size = self._rows("train"), self.config.train.batch_size
        return table.batches(step, size, rows, seed, **self._lengths)

    def evaluation_batches(
        self, split: str, step: int, rows: RowIndex
    ) -> Iterator[Batch]:
        size = self.config.evaluate.batch_size
        return self._rows(split).sorted_batches(size, rows, **self._lengths)

    def loss(self, params: Any, batch: Arrays, key: DropoutKey) -> Scalars:
        outputs = self.apply(params, batch, key, self.compared)
        return self.losses(params, outputs, batch)

    def losses(
        self, params: Any, outputs: dict[str, Any], batch: Arrays
    ) -> dict[str, Array]:
        """Returns the loss of the model's outputs, with a teacher its losses too."""
        # Losses and weights are per text, however rows are shared.
        texts, logits = packing.unpack_texts(batch), self.logits_of(outputs, batch)
        definition = self.definition
        weights = definition.row_weights(texts)
        row_losses = definition.row_losses(logits, texts)
        losses = {definition.loss_name: jnp.sum(weights * row_losses)}
        of_layers = layer_losses(self.model_config, outputs, batch)
        if self.teacher is None:
            return losses | of_layers
        teacher_outputs = self.teacher.outputs(params, batch)
        targets = self.teacher.task.logits_of(teacher_outputs, batch)
        heat = self.options.teacher_temperature
        apart = distillation.output_losses(logits, targets, texts, self.kind, heat)
        soft = jnp.sum(weights * apart)
        joined = self.teacher.join(losses, soft, outputs, teacher_outputs, batch)
        return joined | of_layers

    def loss_weights(self, batch: Arrays) -> Scalars:
        total = jnp.sum(self.definition.row_weights(packing.unpack_texts(batch)))
        others = self.teacher.loss_weights(total, batch) if self.teacher else {}
        layers = layer_loss_weights(self.model_config, batch)
        return {self.definition.loss_name: total, **layers, **others}

    def apply(
        self,
        params: Any,
        batch: Arrays,
        key: DropoutKey = None,
        terms: Collection[str] = (),
    ) -> dict[str, Any]:
        """Returns the model's outputs for a batch.

        Args:
          terms: See `distillation.apply_model`.
        """
        inputs = [batch[n] for n in ("input_ids", "input_mask", "segment_ids")]
        packed = Packed.from_batch(batch)
        rest = (key,) if packed is None else (key, packed)
        return distillation.apply_model(self.model, params, (*inputs, *rest), terms)

    def logits(
        self, params: Any, batch: Arrays, key: DropoutKey = None
    ) -> dict[str, Array]:
        """Returns `logits_of` the model's outputs."""
        return self.logits_of(self.apply(params, batch, key), batch)

    def logits_of(self, outputs: dict[str, Any], batch: Arrays) -> dict[str, Array]:
        """Returns the heads' outputs, float32, for shared rows [texts, labels]. Those
        of a text's windows are combined."""
        trunk = ("hidden_states", "pooled", "layer_losses", *distillation.LAYERS)
        logits = {k: v for k, v in outputs.items() if k not in trunk}
        if self.options.windows > 1:
            mask, how = batch["input_mask"], self.options.window_logits
            by_window = logits["logits"].reshape(*mask.shape[:2], -1)
            return {"logits": windows.combine_logits(by_window, mask, how)}
        if "sequence_ids" not in batch:
            return logits
        return {k: v.reshape(-1, v.shape[-1]) for k, v in logits.items()}

    def outputs(self, params: Any, batch: Arrays) -> dict[str, Array]:
        """Returns `logits_of`. With a CRF it returns `tags` [batch, length], the most
        probable ones that the scheme allows, and the probability of each."""
        logits = self.logits(params, batch)
        if "crf" not in self.heads:
            return logits
        allowed = crf.allowed_transitions(
            self.labels, self.options.tag_scheme or "none"
        )
        transitions = crf.read_transitions(logits).penalize_forbidden(allowed)
        # The sentence's words around the part that the row tags, too: an entity may
        # continue where a sentence is cut.
        tags = crf.viterbi(logits["logits"], batch["words"], transitions)
        every = crf.marginals(logits["logits"], batch["words"], transitions)
        shares = jnp.take_along_axis(every, tags[..., None], axis=-1)
        return {"tags": tags, "probability": shares[..., 0]}

    def results(
        self, split: str, fetched: Sequence[Outputs], *, learns: bool = False
    ) -> Results:
        """Returns the answers to a split's examples, and their scores.

        The scores of logits with NaN are NaN: without a largest logit there is no
        answer.
        """
        outputs = sort_outputs(
            self._rows(split), self.config.evaluate.batch_size, fetched
        )
        has_nan = any(np.isnan(x).any() for batch in outputs for x in batch.values())
        if has_nan:
            outputs = jax.tree.map(np.nan_to_num, outputs)
        rows, features = self.examples(split), self.encode_examples(split)
        answers = self.definition.decode_answers(rows, features, outputs)
        fits = learns and not has_nan
        learned = self.definition.fit(rows, answers) if fits else {}
        definition = self.with_fitted({**self.fitted, **learned}).definition
        scores = definition.scores(rows, answers)
        if has_nan:
            scores = dict.fromkeys(scores, math.nan)
        return Results(
            scores,
            definition.fitted,
            baseline=lambda: definition.baseline_scores(rows),
            details=lambda: definition.score_details(rows, answers),
            files=lambda: definition.prediction_files(split, rows, answers),
        )

    def scores_of(self, params: Any, rows: Sequence[Row]) -> dict[str, float]:
        """Returns the scores of a model's parameters on some rows with labels."""
        features, compute = self.encode(rows, "scored"), jax.jit(self.outputs)
        table = Rows(features, self.padding)
        batches = table.sorted_batches(_SCORED, slice(None), **self._lengths)
        fetched = [jax.device_get(compute(params, batch)) for batch in batches]
        outputs = sort_outputs(table, _SCORED, fetched)
        answers = self.definition.decode_answers(rows, features, outputs)
        return self.definition.scores(rows, answers)

    def predictor(self, missing: Collection[str] = ()) -> Predictor:
        return self

    def decode(
        self,
        examples: Sequence[Row],
        features: Sequence[Feature],
        outputs: Sequence[Outputs],
    ) -> list[dict[str, Any]]:
        """Returns `format_answer` of each example's answer."""
        definition = self.definition
        answers = definition.decode_answers(examples, features, outputs)
        return [*map(definition.format_answer, examples, answers)]

    def phases(self) -> list[Phase]:
        """Returns one phase, at `config.task.max_seq_length`."""
        train, length = self.config.train, self.options.max_seq_length
        rows, parts = train.batch_size, train.micro_batches
        shapes = {"input_ids": (rows, *self.row_shape)}
        if self.texts_per_row > 1:
            shapes = packing.packed_shapes((rows, length), self.texts_per_row)
            rows = shapes["input_ids"][0]
        return [Phase(0, train.num_steps, rows, length, 0, parts, shapes)]

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of the longest row's `input_ids`."""
        count = self.definition.sequences * self.text.orders
        length = (self.options.max_seq_length,)
        return length if count == 1 else (count, *length)

    def rows(self, split: str) -> Sequence[Row]:
        """Returns the cached rows of `TaskDefinition.read_rows`, or none if there is no
        such data. With `task.dev_fraction`, `train` and `dev` are parts of `train`."""
        if split in self._read:
            return self._read[split]
        definition, fraction = self.definition, self.options.dev_fraction
        # A file that a run is evaluated on later replaces what was held out.
        has_file = bool(definition.split_file("dev"))
        is_part = split == "train" or (split == "dev" and not has_file)
        if not (fraction and is_part):
            self._read[split] = definition.read_rows(split) or ()
            return self._read[split]
        whole = definition.read_rows("train") or ()
        groups = definition.group_names(whole)
        kept, held = hold_out(whole, fraction, groups)
        if whole and not held:
            raise UserError(
                f"config.task.dev_fraction={fraction}: holds out none of the "
                f"{len(whole)} training records, of which {len({*groups})} may be "
                "apart; name a larger share, or other data as dev"
            )
        self._read["train"] = kept
        if not has_file:
            self._read["dev"] = held
        return self._read[split]

    def examples(self, split: str) -> Sequence[Row]:
        """Returns the cached rows of a split, with numbered labels."""
        if split not in self._examples:
            rows = self.definition.number_labels(self.rows(split))
            self._examples[split] = rows
        return self._examples[split]

    @property
    def padding(self) -> dict[str, int]:
        """Padding value of each column, where it is not 0."""
        return {"input_ids": self.text.special.pad, "labels": NO_LABEL}

    def encode_examples(self, split: str) -> list[Feature]:
        """Returns the cached result of `encode`.

        Raises:
          UserError: there is no such data, or `encode` found an error.
        """
        if split not in self._encoded:
            if not self.examples(split):
                raise UserError(
                    f"config.task.{split}_file={self.definition.split_file(split)!r}: "
                    "is empty, or has no records; name a file that has some"
                )
            self._encoded[split] = self.encode(self.examples(split), split)
        return self._encoded[split]

    def _rows(self, split: str) -> Rows:
        if split not in self._tables:
            self._tables[split] = self.make_rows(self.encode_examples(split))
            if split == "train":  # only evaluation needs the features again
                del self._encoded[split]
        return self._tables[split]

    @property
    def _lengths(self) -> dict[str, Any]:
        options = self.options
        return {"limit": options.max_seq_length, "to_limit": options.pad_to_max}


def sort_outputs(table: Rows, size: int, fetched: Sequence[Outputs]) -> list[Outputs]:
    """Returns the outputs of each row, from the outputs of `Rows.sorted_batches`.

    Args:
      size: Rows of a batch.
    """
    ordered: list[Outputs] = [{} for _ in range(len(table))]
    for indices, outputs in zip(table.sorted_indices(size), fetched, strict=True):
        for place, index in enumerate(indices):
            if index < len(table):
                ordered[index] = {k: v[place] for k, v in outputs.items()}
    return ordered
