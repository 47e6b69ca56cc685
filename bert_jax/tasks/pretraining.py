"""Masked LM and next sentence prediction (section 3.1 and run_pretraining.py).

Modules that prepare and read the data are imported on use: inference needs none.
"""

import dataclasses
import functools
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.config import phases
from bert_jax.data import masking
from bert_jax.data.rows import RowIndex
from bert_jax.data.tables import Row
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES, bert_config
from bert_jax.models.encoder import Packed, layer_loss_weights, layer_losses
from bert_jax.models.heads import init_model
from bert_jax.tasks import distillation
from bert_jax.tasks.fill_mask import FillMask, format_guesses
from bert_jax.tasks.objectives import (
    NEXT_SENTENCE,
    OBJECTIVES,
    Objective,
    lm_results,
    masked_targets,
    token_scores,
)
from bert_jax.tasks.task import (
    AnswerFn,
    Batch,
    Data,
    Results,
    Shapes,
)
from bert_jax.types import Arrays, DropoutKey, Scalars

log = logging.getLogger(__name__)

EXAMPLES = 3  # held-out sentences in the report


class Pretraining(distillation.Taught):
    """The pre-training task.

    Attributes:
      objective: The entry of OBJECTIVES that `config.task.objective` names.
      model: The module, with its heads.
    """

    main_score = "loss"

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer | None = None):
        """Checks the config, and reads no data.

        Args:
          tokenizer: Tokenizer. None means the config's, or one trained on the corpus.

        Raises:
          UserError: a sequence longer than the model's positions, or another value
            that does not fit the rest.
        """
        super().__init__(config)
        vocabulary = tokenizer or tokenization.load_config_tokenizer(config)
        self._vocabulary = vocabulary
        pieces = config.tokenizer.vocab_size  # size of a tokenizer yet to be trained
        if vocabulary is not None:
            pieces = vocabulary.get_vocab_size()
        entry = OBJECTIVES.lookup(config.task.objective)
        kind = entry if isinstance(entry, Objective) else entry(config)
        self.model_config = dataclasses.replace(
            bert_config(config.model, pieces), causal=kind.causal
        )
        family = FAMILIES[self.model_config.architecture]
        family.require(self.model_config)
        if kind.causal == masking.has_masks(config):
            wrong = f"config.task.objective={config.task.objective}: config.model."
            raise UserError(
                f"{wrong}causal=False, but it predicts from left to right; set it True"
                if kind.causal
                else f"{wrong}causal=True is a left-to-right model; set "
                "--config.task.objective=ltr"
            )
        parts = phases.phases_of(config)
        whole_word = any(x.value(config, "masking.whole_word") for x in parts)
        if whole_word and kind.causal:
            raise UserError(
                "config.masking.whole_word=True: config.task.objective="
                f"{config.task.objective} masks nothing; leave it False"
            )
        self.objective = kind
        corpus, task = config.corpus, config.task
        self._scores_pairs = corpus.nsp and task.nsp_loss and kind.next_sentence
        if self._scores_pairs and not family.has_nsp_head:
            raise UserError(
                f"config.corpus.nsp=True: {family.title} is trained without sentence "
                "pairs; set --config.corpus.nsp=False"
            )
        if corpus.shift_positions and not family.with_heads.trunk.has_positions:
            raise UserError(
                f"config.corpus.shift_positions=True: {family.title} has no embeddings "
                "of positions, which this trains; leave it False"
            )
        if family.has_segments:
            self.model_config.require_segments(2 if corpus.nsp else 1)
        self._parts = (kind, NEXT_SENTENCE) if self._scores_pairs else (kind,)
        self.model = (kind.model or family.pretraining_model)(self.model_config)
        for split in config.evaluate.splits or ("",):
            if split not in ("dev", "pydocs") and ":" not in split:
                raise UserError(
                    f"config.evaluate.splits: {split!r} is no split of pre-training, "
                    "which holds back dev; other texts are named as in "
                    "config.corpus.sources"
                )
        if not config.train.num_steps:
            raise UserError(
                "config.train.num_steps=0: pre-training counts steps, not epochs"
            )
        positions = self.model_config.max_position_embeddings
        for phase in phases.phases_of(config):
            if phase.max_seq_length > positions:
                raise UserError(
                    f"config.corpus.max_seq_length (or a later phase's)="
                    f"{phase.max_seq_length}: must be at most "
                    f"config.model.max_position_embeddings={positions}"
                )

    @functools.cached_property
    def _data(self) -> Any:  # a RunData
        from bert_jax.data.loader import RunData

        return RunData(self.config, self._vocabulary)

    @property
    def _first_length(self) -> int:
        """Tokens of a row of the first phase."""
        return phases.phases_of(self.config)[0].max_seq_length

    @property
    def tokenizer(self) -> Tokenizer:
        """The given vocabulary, or the one trained on the corpus.

        Raises:
          UserError: it has more tokens than the model has embeddings.
        """
        tokenizer = self._vocabulary or self._data.tokenizer
        pieces = tokenizer.get_vocab_size()
        if pieces > self.model_config.vocab_size:
            raise UserError(
                f"config.model.vocab_size={self.model_config.vocab_size}, but the "
                f"tokenizer has {pieces} pieces: set --config.model.vocab_size={pieces}"
            )
        return tokenizer

    def training_data(self) -> Data:
        """Prepares every phase's data. The fraction of [UNK] is the first phase's."""
        from bert_jax.data import prepare

        if masking.has_masks(self.config):
            _warn_of_few_predictions(self.config)
        datasets = self._data.prepare_all()
        last = phases.phases_of(self.config)[-1]
        for split in self.splits:
            if split != "dev":
                self._data.prepare_source(split, last.max_seq_length)
        first = self._data.prepare_length(self._first_length)
        return Data(
            first.unknown_share(),
            record=self._data.record(),
            folders=tuple(str(data.folder) for data in datasets),
            report=lambda folder: prepare.report_text(prepare.open_folder(folder)),
        )

    def reuse_prepared_data(self, record: Mapping[str, Any]) -> None:
        """Reuses the run's prepared data, see `RunData.reuse_recorded`."""
        self._data.reuse_recorded(record)

    def resolve(self) -> None:
        """Fills in open values, with `model.causal` and `task.nsp_loss` for `ltr`."""
        super().resolve()
        nsp_loss = self.options.nsp_loss and self.objective.next_sentence
        causal = self.model_config.causal
        self.fill_in({"model.causal": causal, "task.nsp_loss": nsp_loss})

    def init_params(self, key: Key[Array, ""]) -> dict:
        """Returns initial parameters, boxed with their logical axis names."""
        return init_model(self.model, key, inputs=4)

    def unused_parameters(self, *, predicts: bool = False) -> tuple[str, ...]:
        """Returns next sentence head and pooler, which filling masks does not need."""
        if self._scores_pairs and not predicts:
            return ()
        return ("bert/pooler", "next_sentence")

    def predictor(self, missing: Collection[str] = ()) -> FillMask:
        """Returns the predictor for `--mode=predict`."""
        has_nsp_head = self._scores_pairs and not missing
        return self.objective.predictor(
            self.config, self.model, self.tokenizer, has_nsp_head=has_nsp_head
        )

    @property
    def splits(self) -> tuple[str, ...]:
        """`dev`, and texts as `config.corpus.sources` names them."""
        return tuple(self.config.evaluate.splits)

    def batches(self, step: int, rows: RowIndex, seed: int) -> Iterator[Batch]:
        """Yields the batches from `step` on, through all phases."""
        yield from self._data.batches(step, rows, seed)

    def evaluation_batches(
        self, split: str, step: int, rows: RowIndex
    ) -> Iterator[Batch]:
        """Yields a split at the sequence length of the last step."""
        source = "" if split == "dev" else split
        yield from self._data.dev(step, rows, source).to_iter_dataset()

    def flops(self, shapes: Shapes) -> int:
        """Returns the model FLOPs of training on a batch."""
        batch, length = shapes["input_ids"]
        predictions = shapes.get("masked_lm_positions", (batch, length - 1))[1]
        pairs = shapes["cls_positions"][1] if "cls_positions" in shapes else 1
        sizes = self.model_config
        if not FAMILIES[sizes.architecture].has_nsp_head:
            pairs = 0
        return batch * self.objective.flops(sizes, length, predictions, pairs)

    def phases(self) -> list[phases.Phase]:
        """Returns the config's phases."""
        return [
            phase._replace(shapes=masking.batch_shapes(self.config, phase))
            for phase in phases.phases_of(self.config)
        ]

    def apply(
        self,
        params: Any,
        batch: Arrays,
        key: DropoutKey,
        terms: Collection[str] = (),
    ) -> dict[str, Any]:
        """Returns the model's outputs.

        Args:
          key: Dropout key. None means evaluation.
          terms: See `distillation.apply_model`.
        """
        names = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")
        inputs = (*map(batch.get, names), key, Packed.from_batch(batch))
        return distillation.apply_model(self.model, params, inputs, terms)

    def loss(self, params: Any, batch: Arrays, key: DropoutKey) -> Scalars:
        """Returns the sums of the objective's losses, and the next sentence loss. A
        teacher's are of the language model alone, as in DistilBERT."""
        outputs = self.apply(params, batch, key, self.compared)
        losses = self._losses(outputs, batch)
        of_layers = layer_losses(self.model_config, outputs, batch)
        if self.teacher is None:
            return losses | of_layers
        teacher_outputs = self.teacher.outputs(params, batch)
        name, options = f"{self.objective.prefix}_logits", self.options
        soft = distillation.soft_loss(
            outputs[name], teacher_outputs[name], options.teacher_temperature
        )
        total = jnp.sum(masked_targets(batch).weights * soft)
        joined = self.teacher.join(losses, total, outputs, teacher_outputs, batch)
        return joined | of_layers

    def _losses(self, outputs: Arrays, batch: Arrays) -> Scalars:
        return _merge_dicts(part.losses(outputs, batch) for part in self._parts)

    def loss_weights(self, batch: Arrays) -> Scalars:
        """Returns the divisor of each sum."""
        weights = self._divisors(batch) | layer_loss_weights(self.model_config, batch)
        if self.teacher is None:
            return weights
        tokens = jnp.sum(masked_targets(batch).weights)
        return weights | self.teacher.loss_weights(tokens, batch)

    def _divisors(self, batch: Arrays) -> Scalars:
        return _merge_dicts(part.weights(batch) for part in self._parts)

    def outputs(
        self, params: Any, batch: Arrays
    ) -> dict[str, dict[str, tuple[Array, Array]]]:
        """Returns sums and weights of the trained `losses`, and of the `scores`: the
        tokens', whatever is trained, and the objective's further ones."""
        unigrams = self._unigram_log_probs
        outputs = self.apply(params, batch, None)
        sums, totals = self._losses(outputs, batch), self._divisors(batch)
        pieces = token_scores(self.objective.prefix, outputs, batch, unigrams)
        scores = _merge_dicts(part.scores(outputs, batch) for part in self._parts)
        return {
            "losses": {name: (sums[name], totals[name]) for name in sums},
            "scores": {**scores, **pieces},
        }

    def results(
        self, split: str, fetched: Sequence[Any], *, learns: bool = False
    ) -> Results:
        """Returns `objectives.lm_results`."""
        return lm_results(self.objective.prefix, fetched)

    def show_examples(self, answer: AnswerFn) -> tuple[str, Sequence[Row]]:
        """Returns a few guesses."""
        from bert_jax.data import prepare

        predictor = self.predictor()
        last = phases.phases_of(self.config)[-1]  # the scores are for its length
        data = self._data.prepare_length(last.max_seq_length)
        examples = predictor.held_out(self._data.dev(last.end_step)[0], EXAMPLES)
        answers = answer(predictor, [feature for feature, _ in examples])
        pairs = zip(examples, answers, strict=True)
        rows = [predictor.show(*example, one) for example, one in pairs]
        lines = ["", *prepare.describe_dev(data.report["totals"]), ""]
        lines.append(
            "a few held-out sentences, the token at each blank, and the guesses"
        )
        return "\n".join([*lines, format_guesses(rows)]), rows

    @functools.cached_property
    def _unigram_log_probs(self) -> Float[np.ndarray, "vocab"] | None:
        """Log probabilities from train's counts, with add-one smoothing. None where
        other texts alone are evaluated, and train is gone."""
        length = self._first_length
        if "dev" in self.splits:
            data = self._data.prepare_length(length)
        elif (recorded := self._data.find_prepared(length)) is not None:
            data = recorded
        else:
            return None
        counts = data.token_counts().astype(np.float64) + 1
        return np.log(counts / counts.sum()).astype(np.float32)


def _warn_of_few_predictions(config: ConfigDict) -> None:
    """Warns where a full row has fewer predictions than `masked_lm_prob` asks for, as
    where a config changes this alone."""
    for phase in phases.phases_of(config):
        share = phase.value(config, "masking.masked_lm_prob")
        wanted = phase.max_seq_length * share
        max_predictions = phase.max_predictions_per_seq
        if max_predictions < int(wanted):
            log.warning(
                "warning: config.masking.masked_lm_prob=%g of %d tokens is %.0f, but "
                "max_predictions_per_seq=%d: no more are predicted",
                *(share, phase.max_seq_length, wanted, max_predictions),
            )


def _merge_dicts(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}
