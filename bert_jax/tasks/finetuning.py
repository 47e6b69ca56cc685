"""The parts that all fine-tuning tasks share: rows, batches, model, evaluation. A task
is one file: a subclass of Finetuning (docs/fine_tuning.md)."""

import abc
import functools
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from ml_collections import ConfigDict
from tokenizers import Encoding, Tokenizer

from bert_jax import tokenization
from bert_jax.config.phases import Phase
from bert_jax.data import overlap, packing, truncation
from bert_jax.data.rows import Batch, Feature, RowIndex, Rows
from bert_jax.data.tables import Row
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES, bert_config
from bert_jax.models.architectures import HEADS, BertWithHeads
from bert_jax.models.encoder import Packed
from bert_jax.models.heads import init_model
from bert_jax.runtime.storage import Path
from bert_jax.tasks import distillation
from bert_jax.tasks.task import Data, Predictor, Results, write_rows
from bert_jax.types import Arrays, DropoutKey, Scalars

Answers = Sequence[Any]
Outputs = dict[str, np.ndarray]
# Characters tokenized together, or else one text: the tokenizer's objects take a
# hundred times the memory of a text.
_CHARACTERS = 2_000_000
_SCORED = 16  # rows computed together by `scores_of`


class Finetuning(distillation.Taught, Predictor):
    """Base class of fine-tuning tasks. Input rows are answered as in evaluation.

    A row is a dict, as its task's `read_rows` and `parse_row` make it.
    """

    head: ClassVar[str]  # see models.architectures.BertWithHeads
    loss_name: str  # name in metrics.jsonl
    fill: Mapping[str, int] = {}  # padding values of columns, where not 0

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer | None = None):
        """Checks the config and reads the vocabulary, but no data.

        Args:
          tokenizer: Tokenizer. None means the config's.

        Raises:
          UserError: there is no vocabulary, or a config value is out of range.
        """
        super().__init__(config)
        self._tokenizer = tokenizer or tokenization.required_tokenizer(config)
        self.special_tokens = tokenization.special_ids(self._tokenizer)
        self.last = self.special_tokens.last  # at a sequence's end
        self._kind = tokenization.kind_of(self._tokenizer)
        self._examples: dict[str, Sequence[Row]] = {}
        self._encoded: dict[str, list[Feature]] = {}
        self._tables: dict[str, Rows] = {}
        self.model_config = bert_config(config.model, self._tokenizer.get_vocab_size())
        limit, length = config.model.max_position_embeddings, config.task.max_seq_length
        self.max_seq_length = length
        if length > limit:
            raise UserError(
                f"config.task.max_seq_length={length}: must be at most "
                f"config.model.max_position_embeddings={limit}"
            )
        self.texts_per_row = self.options.texts_per_row
        self._check_texts_per_row()

    # Members that a task defines.

    def read_rows(self, split: str) -> Sequence[Row] | None:
        """Returns the rows of a split, in file order.

        By default they are `read_file` of `config.task.SPLIT_file`.

        Args:
          split: `train`, `dev`, `test`, or one that only this task has.

        Returns:
          The rows, or None if the config names no such data.

        Raises:
          UserError: a file or record is wrong. The message names file, line and remedy.
        """
        source = self.options.get(f"{split}_file")
        return self.read_file(source, split) if source else None

    def read_file(self, source: str, split: str) -> Sequence[Row]:
        """Returns the rows of a split's file. Raises as `read_rows`."""
        raise NotImplementedError

    @abc.abstractmethod
    def parse_row(self, row: Row) -> Row:
        """Checks a row of `--mode=predict`'s input, and returns one as `read_rows`
        does.

        Raises:
          ValueError: the row is wrong. The message says how.
        """

    @abc.abstractmethod
    def encode(self, examples: Sequence[Row], split: str) -> list[Feature]:
        """Turns rows into sequences. Those of a row are consecutive.

        Args:
          split: Split, for `notices`. `train` has labels, `predict` has none.
        """

    @abc.abstractmethod
    def row_losses(
        self, logits: Arrays, batch: Arrays
    ) -> Float[Array, "batch *tokens"]:
        """Returns the loss of each sequence, or of each of its tokens."""

    def row_weights(self, batch: Arrays) -> Float[Array, "batch *tokens"]:
        """Returns the weight of each of `row_losses` in their mean, 0 for padding
        rows."""
        return batch["row_weights"]

    def decode_answers(
        self,
        examples: Sequence[Row],
        features: Sequence[Feature],
        outputs: Sequence[Outputs],
    ) -> list[Any]:
        """Returns the answer to each row, from the logits of its sequences.

        By default a row is one sequence, and its `logits` are the answer.

        Args:
          outputs: Logits of each sequence by name, padded to some length.
        """
        return [output["logits"] for output in outputs]

    @abc.abstractmethod
    def format_answer(self, example: Row, answer: Any) -> Row:
        """Returns the fields that `--mode=predict` adds to a row."""

    @abc.abstractmethod
    def scores(
        self, split: str, examples: Sequence[Row], answers: Answers
    ) -> dict[str, float]:
        """Returns the official scores, or none if the rows have no labels."""

    def prediction_row(self, example: Row, answer: Any) -> Row:
        """Returns the fields that `write_predictions` writes for a row."""
        return self.format_answer(example, answer)

    def write_predictions(
        self, folder: Path, split: str, examples: Sequence[Row], answers: Answers
    ) -> None:
        """Writes the predictions of a split into `folder`, each file atomically.

        By default it writes `SPLIT.jsonl`: each row's `index` (from 0) and
        `prediction_row`.
        """
        found = map(self.prediction_row, examples, answers)
        rows = ({"index": index, **row} for index, row in enumerate(found))
        write_rows(folder / f"{split}.jsonl", rows)

    def baseline_scores(self, split: str, examples: Sequence[Row]) -> dict[str, float]:
        """Returns the majority baseline's scores, or none if they would mean little.

        Only rows with labels have a baseline.
        """
        return {}

    def score_details(self, examples: Sequence[Row], answers: Answers) -> str:
        """Formats the text that the closing report prints below a split's table."""
        return ""

    def fit_to_rows(self, examples: Sequence[Row], answers: Answers) -> dict[str, Any]:
        """Returns the values to fit to the first dev split, before scoring it."""
        return {}

    def find_labels(self) -> Sequence[str]:
        """Returns the names of the model's outputs if `config.task.labels` is empty.

        Raises:
          NotImplementedError: The head classifies, and the task does not name them.
        """
        if self.head in ("sequence_classification", "token_classification"):
            raise NotImplementedError(f"{type(self).__name__}.find_labels")
        return ()

    # Members derived from these.

    def make_rows(self, features: Sequence[Feature]) -> Rows:
        if self.texts_per_row == 1:
            return Rows(features, self.padding)
        return packing.PackedRows(features, self.padding, self.texts_per_row)

    def resolve(self) -> None:
        super().resolve()
        train = self.config.train
        # Labels named by a task's class are kept as well: an export reads them.
        if labels := tuple(self.labels or self.find_labels()):
            self.fill_in({"task.labels": labels})
        if not train.num_steps:
            rows = train.num_epochs * len(self._rows("train"))
            steps = max(1, int(rows / train.batch_size))
            self.fill_in({"train.num_steps": steps})

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the model's outputs, in order."""
        return tuple(self.options.labels)

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    @property
    def heads(self) -> tuple[str, ...]:
        """The model's heads."""
        return (self.head,) if self.head else ()

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
        return tuple(s for s in self.config.evaluate.splits if self.examples(s))

    def unused_parameters(self, *, predicts: bool = False) -> tuple[str, ...]:
        return () if self.model.uses_pooler(self.head) else ("bert/pooler",)

    def training_data(self) -> Data:
        rows = self._rows("train")
        unknown = rows.fraction(self.special_tokens.unk)
        if FAMILIES[self.config.model.architecture].has_segments:
            self.model_config.require_segments(rows.segments)
        dev = {split: self._rows(split).digest() for split in self.dev_splits}
        held = [split for split in self.splits if split.startswith(("dev", "test"))]
        others = {split: self.examples(split) for split in held}
        self.notices.update(overlap.shared_texts(self.examples("train"), others))
        if self.teacher is not None and len(self.labels) > 1:
            self.teacher.log_accuracy(self.examples("train"))
        return Data(unknown, len(rows), {"rows": rows.digest(), "dev": dev})

    def init_params(self, key: Key[Array, ""]) -> dict:
        return init_model(self.model, key)

    def batches(self, step: int, rows: RowIndex, seed: int) -> Iterator[Batch]:
        table, size = self._rows("train"), self.config.train.batch_size
        return table.batches(step, size, rows, seed, **self._lengths)

    def evaluation_batches(
        self, split: str, step: int, rows: RowIndex
    ) -> Iterator[Batch]:
        size = self.config.evaluate.batch_size
        return self._rows(split).each_once(size, rows, **self._lengths)

    def loss(self, params: Any, batch: Arrays, key: DropoutKey) -> Scalars:
        outputs = self.apply(params, batch, key, self.compared)
        return self.losses(params, outputs, batch)

    def losses(
        self, params: Any, outputs: dict[str, Any], batch: Arrays
    ) -> dict[str, Array]:
        """Returns the loss of the model's outputs, with a teacher its losses too."""
        # Losses and weights are per text, however rows are shared.
        texts, logits = packing.by_text(batch), self.logits_of(outputs, batch)
        weights = self.row_weights(texts)
        losses = {self.loss_name: jnp.sum(weights * self.row_losses(logits, texts))}
        if self.teacher is None:
            return losses
        theirs = self.teacher.outputs(params, batch)
        targets = self.teacher.task.logits_of(theirs, batch)
        soft = jnp.sum(weights * self.soft_losses(logits, targets, texts))
        return self.teacher.join(losses, soft, outputs, theirs, batch)

    def loss_weights(self, batch: Arrays) -> Scalars:
        total = jnp.sum(self.row_weights(packing.by_text(batch)))
        others = self.teacher.loss_weights(total, batch) if self.teacher else {}
        return {self.loss_name: total, **others}

    def soft_losses(
        self, logits: Arrays, targets: Arrays, batch: Arrays
    ) -> Float[Array, "batch *tokens"]:
        """Returns the distances from a teacher's logits, of the shape of `row_losses`.

        By default each of the logits' last axis has the classes.
        """
        heat = self.options.teacher_temperature
        each = [
            distillation.soft_loss(logits[name], targets[name], heat) for name in logits
        ]
        return jnp.mean(jnp.stack(each), axis=0)

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
        """Returns the head's logits, float32, for shared rows [texts, labels]."""
        trunk = ("hidden_states", "pooled", *distillation.LAYERS)
        logits = {k: v for k, v in outputs.items() if k not in trunk}
        if "sequence_ids" not in batch:
            return logits
        return {k: v.reshape(-1, v.shape[-1]) for k, v in logits.items()}

    def outputs(self, params: Any, batch: Arrays) -> dict[str, Array]:
        return self.logits(params, batch)

    def results(
        self, split: str, fetched: Sequence[Outputs], *, learns: bool = False
    ) -> Results:
        """Returns the answers to a split's examples, and their scores.

        The scores of logits with NaN are NaN: without a largest logit there is no
        answer.
        """
        outputs = self.by_feature(split, fetched)
        has_nan = any(np.isnan(x).any() for each in outputs for x in each.values())
        if has_nan:
            outputs = jax.tree.map(np.nan_to_num, outputs)
        examples = self.examples(split)
        answers = self.decode_answers(examples, self.encode_examples(split), outputs)
        fits = learns and not has_nan
        learned = self.fit_to_rows(examples, answers) if fits else {}
        task = self.with_fitted({**self.fitted, **learned})
        scores = task.scores(split, examples, answers)
        if has_nan:
            scores = dict.fromkeys(scores, math.nan)
        return Results(
            scores,
            task.fitted,
            baseline=lambda: task.baseline_scores(split, examples),
            details=lambda: task.score_details(examples, answers),
            write=lambda folder: task.write_predictions(
                folder, split, examples, answers
            ),
        )

    def scores_of(self, params: Any, rows: Sequence[Row]) -> dict[str, float]:
        """Returns the scores of a model's parameters on some rows with labels."""
        features, compute = self.encode(rows, "scored"), jax.jit(self.outputs)
        table, outputs = Rows(features, self.padding), [Outputs() for _ in features]
        batches = table.each_once(_SCORED, slice(None), **self._lengths)
        for indices, batch in zip(table.by_length(_SCORED), batches, strict=True):
            fetched = jax.device_get(compute(params, batch))
            for place, index in enumerate(indices):
                if index < len(table):
                    outputs[index] = {k: v[place] for k, v in fetched.items()}
        answers = self.decode_answers(rows, features, outputs)
        return self.scores("train", rows, answers)

    def by_feature(self, split: str, fetched: Sequence[Outputs]) -> list[Outputs]:
        """Reorders the outputs of a split's batches by feature."""
        table, size = self._rows(split), self.config.evaluate.batch_size
        ordered: list[Outputs] = [{} for _ in range(len(table))]
        for indices, outputs in zip(table.by_length(size), fetched, strict=True):
            for place, index in enumerate(indices):
                if index < len(table):
                    ordered[index] = {k: v[place] for k, v in outputs.items()}
        return ordered

    def predictor(self, missing: Collection[str] = ()) -> Predictor:
        return self

    def decode(
        self,
        examples: Sequence[Row],
        features: Sequence[Feature],
        outputs: Sequence[Outputs],
    ) -> list[dict[str, Any]]:
        """Returns `format_answer` of each example's answer."""
        answers = self.decode_answers(examples, features, outputs)
        return [
            self.format_answer(e, a) for e, a in zip(examples, answers, strict=True)
        ]

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
        return (self.options.max_seq_length,)

    def examples(self, split: str) -> Sequence[Row]:
        """Returns the cached rows of `read_rows`, or none if there is no such data."""
        if split not in self._examples:
            self._examples[split] = self.read_rows(split) or ()
        return self._examples[split]

    def tokenize_texts(
        self, texts: Sequence[str], *, offsets: bool = True
    ) -> Iterator[Encoding]:
        """Yields each text's tokens, without [CLS] and [SEP].

        "[SEP]" inside a text is three ordinary tokens, as in Google's tokenizer.

        Args:
          offsets: Whether the tokens' offsets must be right. False means that they may
            be wrong, which saves a fifth of the time.
        """
        tokenizer = self.tokenizer
        encode = tokenizer.encode_batch if offsets else tokenizer.encode_batch_fast
        ends = np.cumsum([len(text) for text in texts]) // _CHARACTERS
        for _, group in itertools.groupby(range(len(texts)), key=ends.__getitem__):
            tokenizer.encode_special_tokens = True
            yield from encode([texts[i] for i in group], add_special_tokens=False)

    def sequence(
        self, a: list[int], b: list[int] | None, split: str
    ) -> dict[str, Int[np.ndarray, "length"]]:
        """Returns `input_ids` and `segment_ids` of [CLS] a [SEP] or, for a pair,
        [CLS] a [SEP] b [SEP], cut to `config.task.max_seq_length`.

        The second part's segment is 1 (run_classifier.py, convert_single_example).
        """
        between = () if b is None else self.between
        room = self.max_seq_length - 2 - len(between)
        if len(a) + len(b or ()) > room:
            self.notices[f"{split}: texts longer than max_seq_length, cut"] += 1
            if b is None:
                cut = self.options.truncation
                a = truncation.truncate_tokens(a, room, cut)
            else:
                first, second = truncation.pair_lengths(
                    len(a), len(b), room, self._kind.odd_to_longer
                )
                a, b = a[:first], b[:second]
        ids = [self.special_tokens.cls, *a, *between, *(b or ()), self.last]
        # The token that ends the first text is part of it.
        segments = (np.arange(len(ids)) > len(a) + 1).astype(np.int32)
        return {"input_ids": np.array(ids, np.int32), "segment_ids": segments}

    def grouped(
        self, sequences: Sequence[Mapping[str, np.ndarray]], rows: int
    ) -> dict[str, Int[np.ndarray, "rows length"]]:
        """Returns the columns of a feature of several sequences, padded to the longest
        one and to `rows`."""
        length = max(len(each["input_ids"]) for each in sequences)
        ids = np.full((rows, length), self.special_tokens.pad, np.int32)
        mask, segments = np.zeros((2, rows, length), np.int32)
        for row, each in enumerate(sequences):
            size = len(each["input_ids"])
            ids[row, :size], mask[row, :size] = each["input_ids"], 1
            segments[row, :size] = each["segment_ids"]
        return {"input_ids": ids, "input_mask": mask, "segment_ids": segments}

    @functools.cached_property
    def between(self) -> tuple[int, ...]:
        """Tokens between two texts. The first belongs to the first text."""
        return self.special_tokens.between

    @property
    def padding(self) -> dict[str, int]:
        """Padding value of each column, where it is not 0."""
        return {"input_ids": self.special_tokens.pad, **self.fill}

    def encode_examples(self, split: str) -> list[Feature]:
        """Returns the cached result of `encode`.

        Raises:
          UserError: there is no such data, or `encode` found an error.
        """
        if split not in self._encoded:
            if not self.examples(split):
                raise UserError(
                    f"config.task: no {split} data is named, or it has no records"
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

    def _check_texts_per_row(self) -> None:
        """Raises UserError where a row can have only one text."""
        config = self.config
        can_share = (
            self.head == "sequence_classification"
            and self.head not in HEADS
            and not config.model.causal
            and not self.options.bilstm
        )
        if self.texts_per_row > 1 and not can_share:
            raise UserError(
                f"config.task.texts_per_row={self.texts_per_row}: is for a BERT's "
                "classes, numbers and labels, without model.causal and task.bilstm; "
                "leave it 1"
            )
