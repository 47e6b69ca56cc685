"""`bert_jax.load`: opens a model in any format, and computes vectors and answers."""

import dataclasses
import functools
import logging
import os
import pathlib
from collections.abc import Mapping, Sequence, Set
from typing import Any, NotRequired, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.config import configuration
from bert_jax.convert import merge, sentence_transformers, weights
from bert_jax.convert.layout import Weights
from bert_jax.convert.sentence_transformers import TextVectors
from bert_jax.data import tables
from bert_jax.data.rows import (
    Columns,
    Feature,
    Rows,
    batch_columns,
    encode_texts,
    text_feature,
)
from bert_jax.errors import UserError
from bert_jax.extract import Extractor
from bert_jax.family import FAMILIES
from bert_jax.models.stacking import attention_probabilities
from bert_jax.runtime import hub, storage
from bert_jax.scores import retrieval
from bert_jax.tasks import row_files
from bert_jax.tasks.embeddings.task import EmbeddingTask
from bert_jax.tasks.task import ApplyFn, Predictor
from bert_jax.training import run_config, setup, sharding
from bert_jax.training.inference import Answerer, find_predictor
from bert_jax.types import Arrays
from bert_jax.workdir import folder as workdir

log = logging.getLogger(__name__)

_BATCH = 32  # texts that `encode` computes at a time


def load(path: str | storage.Path) -> "Bert":
    """Opens a model: a work directory, or a Hugging Face or Google folder.

    A missing or damaged tokenizer raises an error only when a text is encoded: `apply`
    needs none.

    Raises:
      UserError: There is no model, or it is damaged.
    """
    return Bert(path, weights.read_weights(path))


def _read_texts(given: Any, types: Any = str) -> list[Any]:
    """Returns texts of a list, an array, a column or the column `text` of a table, or
    others of these types.

    Raises:
      TypeError: It is not of these. Names the index.
      ValueError: A text is not Unicode.
    """
    if isinstance(given, str | bytes | Mapping | Set):
        raise TypeError(f"a list of texts is required, not one {type(given).__name__}")
    names = getattr(given, "column_names", getattr(given, "columns", None))
    if names is not None:
        if "text" not in [*names]:
            raise TypeError(
                'a list of texts is required, or a table with a column "text", not '
                f"{', '.join(map(str, names)):.200}: pass one of these columns"
            )
        given = given["text"]
    texts = [tables.plain_value(x, f"text {index}") for index, x in enumerate(given)]
    for index, text in enumerate(texts):
        if not isinstance(text, types):
            raise TypeError(f"text {index}: {text!r:.60} is not a string")
    return texts


def _log_notices(answerer: Answerer) -> None:
    """Logs how many texts an answerer has cut, and forgets it."""
    for what, count in answerer.notices.items():
        log.warning("%s: %s", what, f"{count:,}")
    answerer.notices.clear()


class Encoded(Columns):
    """Results of `Bert.encode`, with `pooled` only if the model has a pooler."""

    hidden_states: Float[np.ndarray, "texts length hidden"]  # the last layer's output
    pooled: NotRequired[Float[np.ndarray, "texts hidden"]]


class Bert:
    """A loaded model.

    Attributes:
      config: Its sizes.
      params: Its parameters, in the layout of `models`.
      labels: Names of a classifier's outputs.
      heads: Names of its heads, as in `params`.
    """

    def __init__(self, path: str | storage.Path, model: Weights):
        self._path, self._about = path, dataclasses.replace(model, params={})
        self.config = model.config
        self.labels = model.labels
        self.heads = model.heads
        self._model = FAMILIES[model.config.architecture].with_heads(
            model.config,
            heads=model.heads,
            labels=len(model.labels),
            bilstm="bilstm" in model.params,
        )
        self.params = jax.tree.map(jnp.asarray, model.params)
        self._run = jax.jit(self.forward, static_argnames="attentions")
        self._mesh = sharding.make_mesh(
            configuration.with_defaults(), (), jax.devices()[:1]
        )
        self._extracting: dict[tuple, Answerer] = {}  # by the fields of `Extractor`
        self._answering: dict[tuple, Answerer] = {}  # by what `predict` is asked

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer in the weights' folder.

        Raises:
          UserError: There is none, it is damaged, or it does not fit the model.
        """
        tokenizer = weights.find_source(self._path).tokenizer(self.config)
        if tokenizer is None:
            raise UserError("no vocab.txt or tokenizer.json beside the weights; add it")
        return tokenizer

    def apply(
        self,
        input_ids: Any,
        input_mask: Any,
        segment_ids: Any,
        *,
        attentions: bool = False,
    ) -> dict:
        """Computes all of the model's outputs, without dropout.

        Args:
          input_ids: Integers [batch, length], or [batch, choices, length] for a
            multiple choice model.
          input_mask: 1 for a token, 0 for padding.
          segment_ids: 0 for the first sentence, 1 for the second.
          attentions: Whether to return the attention's probabilities too.

        Returns:
          `hidden_states`, a list: the embeddings' output, then each layer's. `pooled`,
          if the model has a pooler. Its heads' logits: `masked_lm_logits` (at every
          position) or `lm_logits` (of the next token, if it is left to right),
          `next_sentence_logits`, `logits` (classes, tags or choices), `start_logits`,
          `end_logits`. With `attentions` also `attentions`, a list with an array for
          each layer: [batch, heads, from, to], the weight of position `to` in `from`.

        Raises:
          ValueError: An id or length out of range, or shapes that differ.
        """
        config = self.config
        ids, mask, segments = (
            np.asarray(x, np.int32) for x in (input_ids, input_mask, segment_ids)
        )
        if not ids.shape == mask.shape == segments.shape:
            raise ValueError(
                f"shapes differ: {ids.shape} {mask.shape} {segments.shape}"
            )
        limits = [("input_ids", ids, config.vocab_size)]
        if FAMILIES[config.architecture].has_segments:
            limits.append(("segment_ids", segments, config.type_vocab_size))
        for name, array, size in limits:
            # JAX would clamp an index out of range without an error.
            if array.size and not 0 <= array.min() <= array.max() < size:
                raise ValueError(f"{name} must be in [0, {size})")
        return self._run(self.params, ids, mask, segments, attentions=attentions)

    def save(
        self, folder: str | os.PathLike[str], params: Any = None, *, onnx: str = ""
    ) -> None:
        """Writes a Hugging Face folder, as `--mode=export` does.

        Args:
          folder: A new or empty folder.
          params: Parameters like `params`, which have been trained further. None means
            the loaded ones.
          onnx: `float32` or `int8`, for an ONNX graph too, as `--onnx`. Empty means
            none.

        Raises:
          UserError: The folder has files, or `transformers` has no such model, or
            there is no ONNX graph of it.
        """
        target = pathlib.Path(folder)
        given = None if params is None else jax.device_get(params)
        weights.find_source(self._path).export(target, params=given, onnx=onnx)

    def encode(self, texts: Any, texts_b: Any = None) -> Encoded:
        """Encodes texts, or pairs of texts.

        Args:
          texts: A list, an array, a column or a table's column `text`. Each text is a
            row, [CLS] first. Shorter ones are padded.
          texts_b: The second text of each, if any.

        Returns:
          `hidden_states` [texts, length, hidden] of the last layer, 0 after a text's
          end, and `pooled` [texts, hidden], if the model has a pooler. `input_ids`,
          `input_mask` and `segment_ids`, in the form that `apply` takes. Each token's
          `offsets` and `word_ids` in the text (`data.rows.Columns` describes them) and
          `tokens`. `length` is that of the longest text.

        Raises:
          TypeError, ValueError: A text is none. Names its index.
          UserError: See `tokenizer`. Also, a text is too long, or the model computes
            NaN.
        """
        texts = _read_texts(texts)
        texts_b = None if texts_b is None else _read_texts(texts_b)
        if not texts and not texts_b:
            found: dict[str, Any] = {**self.encode([""])}
            return cast(Encoded, {name: x[:0] for name, x in found.items()})
        positions = self.config.max_position_embeddings
        tokenized = encode_texts(self.tokenizer, texts, texts_b, positions)
        columns = batch_columns(tokenized, self._pad)
        answers = self._encoding.start([*map(text_feature, tokenized)])()
        shape = (*columns["input_ids"].shape, self.config.hidden_size)
        hidden = np.zeros(shape, np.float32)
        for row, answer in zip(hidden, answers, strict=True):
            part = answer.pop("hidden_states")[: len(row)]
            row[: len(part)] = part
        rest = {n: np.stack([answer[n] for answer in answers]) for n in answers[0]}
        return cast(Encoded, {"hidden_states": hidden, **rest, **columns})

    @functools.cached_property
    def _pad(self) -> int:
        return tokenization.special_ids(self.tokenizer).pad

    @functools.cached_property
    def _encoding(self) -> Answerer:
        return self._answerer(_Texts(self, self._vectors), self.params)

    def _answerer(
        self, predictor: Predictor, params: Any, rows: int = _BATCH
    ) -> Answerer:
        return Answerer(predictor, params, self._mesh, rows, self.config)

    def predict(
        self,
        rows: Any,
        *,
        reasons: int = 0,
        labels: Sequence[str] = (),
        hypothesis: str | None = None,
    ) -> Any:
        """Answers rows as `--mode=predict` does.

        Args:
          rows: A list of objects, as in docs/fine_tuning.md. A string is a `text`. Or a
            data frame (pandas, polars), a table of Arrow, or a column of texts. Values
            are read as `data.tables.plain_value` has them.
          reasons: Words that speak for each answer, see `tasks.reasons.Reasons`.
          labels: Classes for a model of natural language inference, see
            `tasks.zero_shot.ZeroShot`. Empty means the model's own.
          hypothesis: Sentence that a text of a class entails. None means the default of
            `config.predict.hypothesis`.

        Returns:
          A list with each row and the task's additions: `masks` (`next`, left to
          right), `label` and `scores`, `answer`, `tags`, ... Of a data frame, a table
          or a column (then with the texts as `text`) a frame with the same index, and
          these as columns, `scores.NAME` for each class.

        Raises:
          UserError: The weights lack a head.
          TypeError, ValueError: A row is wrong. Names its number.
        """
        if isinstance(labels, str) or not all(isinstance(x, str) for x in labels):
            raise TypeError(f"labels={labels!r:.60}: a list of names is required")
        if hasattr(rows, "to_frame"):
            rows = rows.to_frame(name="text")
        is_frame = hasattr(rows, "columns")
        given = rows if is_frame or isinstance(rows, str | Mapping) else [*rows]
        plain = tables.python_rows(given)
        answers = []
        if plain:
            predicting = self._predicting(reasons, tuple(labels), hypothesis)
            answers = predicting.answer(plain)
            _log_notices(predicting)
        if is_frame:
            return row_files.answered_frame(given, answers) if answers else given
        # Objects are as they were, texts as they were read.
        objects = [
            dict(row) if isinstance(row, Mapping) else read
            for row, read in zip(given, plain, strict=True)
        ]
        pairs = zip(objects, answers, strict=True)
        return [row_files.answered_row(row, answer) for row, answer in pairs]

    def fill_mask(self, text: str) -> list[list[dict[str, Any]]]:
        """Returns the guesses for each [MASK] of a text, like `masks` of `predict`.

        Raises:
          ValueError: The model does not predict masked words.
        """
        (row,) = self.predict([text])
        if "masks" not in row:
            raise ValueError("not a masked language model; see predict")
        return row["masks"]

    def words(
        self, rows: Any, layers: Sequence[int] = (-1,)
    ) -> list[tuple[list[str], Float[np.ndarray, "words layers hidden"]]]:
        """Returns each row's words and the vectors of their first tokens (section 5.3).

        Args:
          rows: A list, an array, a column or a table's column `text`, of texts or lists
            of words.
          layers: 0 is the embeddings' output, 1 the first layer, -1 the last.

        Raises:
          TypeError, ValueError: A row is neither. Names its index.
          UserError: A layer does not exist. See also `tokenizer`.
        """
        rows = _read_texts(rows, (str, list))
        extracted = self._extract_rows(rows, layers=tuple(layers), vectors="words")
        return [(row["names"], row["vectors"]) for row in extracted]

    def sentences(
        self,
        texts: Any,
        layer: int | None = None,
        *,
        prompt: str | None = None,
        size: int | None = None,
    ) -> Float[np.ndarray, "texts size"]:
        """Computes a vector for each text.

        A run of text vectors or a folder of sentence-transformers specifies how. In
        other models, or for a given layer, it is the mean of the text's tokens in that
        layer, without [CLS] and [SEP]. The default is the one before the last, as
        BERT's author advised (google-research/bert#71).

        Args:
          texts: A list, an array, a column or a table's column `text`. Texts that are
            too long are cut, and their number is logged.
          layer: 0 is the embeddings' output, 1 the first layer, -1 the last.
          prompt: Text before each text, or the name of one of the model's prompts. None
            means the model's default.
          size: Numbers of each vector to keep, from the first (Matryoshka). What
            remains of a normalized vector is normalized again. None means all.

        Raises:
          TypeError, ValueError: A text is none. Names its index.
          UserError: The layer does not exist, or a module is not supported. See also
            `tokenizer`.
          ValueError: `size` is more than a vector has.
        """
        texts = _read_texts(texts)
        if not texts:
            return self.sentences([""], layer, size=size)[:0]
        vectors = None if layer is not None else self._text_vectors
        if vectors is None:
            layers = (-2 if layer is None else layer,)
            whole = [f"{prompt}{text}" for text in texts] if prompt else texts
            extracted = self._extract_rows(whole, layers=layers, vectors="mean")
            found = np.stack([row["vectors"] for row in extracted])
            found = found.reshape(-1, self.config.hidden_size)
        else:
            before = vectors.find_prompt(prompt)
            rows = [{"texts": (text,), "prompt": before} for text in texts]
            answers = self._embedding.start(rows)()
            _log_notices(self._embedding)
            found = np.stack([answer["vectors"][0] for answer in answers])
        if size is None:
            return found
        if not 0 < size <= found.shape[1]:
            raise ValueError(f"size={size}: vectors have {found.shape[1]} numbers")
        found = found[:, :size]
        is_normalized = vectors is not None and vectors.normalized
        return retrieval.unit_vectors(found) if is_normalized else found

    @functools.cached_property
    def _text_vectors(self) -> TextVectors | None:
        return weights.find_source(self._path).text_vectors()

    @functools.cached_property
    def _embedding(self) -> Answerer:
        """The answerer of `_text_vectors`."""
        model, parts = self.config, ("architecture", "layer", "positions")
        config = configuration.with_defaults("embeddings", model.architecture)
        config.model.update({name: getattr(model, name) for name in parts})
        config.init_from = os.fspath(self._path)
        task, params, _ = self._task_of(config)
        return self._answerer(_Vectors(task), params)

    def _extract_rows(self, rows: Sequence[Any], **fields: Any) -> list[dict[str, Any]]:
        key = tuple(sorted(fields.items()))
        if key not in self._extracting:
            config = configuration.with_defaults()
            config.predict.update(fields)
            model = dataclasses.replace(self.config, dtype=config.model.dtype)
            extractor = Extractor(config, model, self.tokenizer)
            params = {"bert": self._add_pooler(self.params)["bert"]}
            self._extracting[key] = self._answerer(extractor, params)
        answerer = self._extracting[key]
        answers = answerer.answer(
            [{"text" if isinstance(row, str) else "words": row} for row in rows]
        )
        cast(Extractor, answerer.predictor).warn()
        return answers

    def _predicting(self, *asked: Any) -> Answerer:
        """Returns the answerer of the task that the weights record, or of their head's.

        Args:
          asked: Values of `config.predict`: reasons, labels, hypothesis.
        """
        if asked not in self._answering:
            task, params, report = self._recorded
            named = zip(("reasons", "labels", "hypothesis"), asked, strict=True)
            options = {name: value for name, value in named if value is not None}
            predictor = find_predictor(task, report.missing, options)
            size = task.config.predict.batch_size
            self._answering[asked] = self._answerer(predictor, params, size)
        return self._answering[asked]

    @functools.cached_property
    def _recorded(self) -> tuple[Any, Any, merge.Report]:
        """The result of `_task_of` for the task of the weights."""
        return self._task_of(None)

    def _task_of(self, given: ConfigDict | None) -> tuple[Any, Any, merge.Report]:
        """Returns a task, its parameters, and what these weights lack of them.

        Args:
          given: A config with `init_from`. None means the one that the weights imply.
        """
        nowhere = storage.storage_path(self._path) / "no-run"  # weights of `init_from`
        config = run_config.config_of(
            nowhere, given, {"init_from": self._path}, is_inference=True
        )
        task = setup.build_task(config, nowhere, from_data=False)
        source, params = weights.find_source(self._path), self.params
        if task.options.dense and (dense := source.dense()):
            params = {**params, sentence_transformers.DENSE: dense}
        params, report = merge.merge_weights(
            sharding.abstract_arrays(task.param_shapes, self._mesh),
            dataclasses.replace(self._about, params=params),
            task.model_config,
            hub.resolve_revision(str(self._path)),
        )
        unused = task.unused_parameters(predicts=True)
        params = merge.require_complete(params, report, unused)
        if isinstance(source, weights.Run):
            workdir.warn_unfitted(config.task, report.facts)
        return task.with_fitted(report.facts), params, report

    def _add_pooler(self, params: Any) -> Any:
        """Adds a pooler, which the module needs, if missing. Its output is dropped."""
        if "pooler" in params["bert"]:
            return params
        size = self.config.hidden_size
        pooler = {"kernel": jnp.zeros((size, size)), "bias": jnp.zeros(size)}
        return {**params, "bert": {**params["bert"], "pooler": pooler}}

    def _vectors(self, params: Any, batch: Arrays) -> dict[str, Array]:
        """Returns the outputs of `forward` that `encode` needs, without heads."""
        mask = batch["input_mask"]
        outputs = self.forward(params, batch["input_ids"], mask, batch["segment_ids"])
        hidden = outputs["hidden_states"][-1] * mask[..., None]
        pooled = {name: outputs[name] for name in outputs if name == "pooled"}
        return {"hidden_states": hidden, **pooled}

    def forward(
        self,
        params: Any,
        input_ids: Any,
        input_mask: Any,
        segment_ids: Any,
        attentions: bool = False,
    ) -> dict:
        """Computes `apply` as a pure function, for example to differentiate.

        It has no dropout, and takes no key for it.
        """
        inputs = [
            jnp.asarray(x, jnp.int32) for x in (input_ids, input_mask, segment_ids)
        ]
        has_pooler = "pooler" in params["bert"]
        params = self._add_pooler(params)
        outputs, kept = self._model.apply(
            {"params": params},
            *inputs,
            mutable=["intermediates"] if attentions else [],
        )
        assert isinstance(outputs, dict)
        if not has_pooler:
            del outputs["pooled"]
        if attentions:
            outputs["attentions"] = attention_probabilities(
                kept.get("intermediates", {})
            )
        return outputs


class _Texts(Predictor):
    """Tokenized texts, and the results of a function of (params, batch) for each."""

    def __init__(self, model: Bert, function: ApplyFn):
        self.max_seq_length = model.config.max_position_embeddings
        self._function, self._pad = function, model._pad

    def make_rows(self, features: Sequence[Feature]) -> Rows:
        return Rows(features, {"input_ids": self._pad})

    def outputs(self, params: Any, batch: Arrays) -> dict[str, Array]:
        return self._function(params, batch)


class _Vectors(Predictor):
    """The vectors of `{"texts": (text,)}`, as the task of text vectors computes them,
    [1, size]."""

    def __init__(self, task: EmbeddingTask):
        self.max_seq_length, self._task = task.max_seq_length, task
        self.notices = task.notices

    def encode(self, examples: Sequence[Any], split: str) -> list[Feature]:
        return self._task.encode(examples, split)

    def make_rows(self, features: Sequence[Feature]) -> Rows:
        return self._task.make_rows(features)

    def outputs(self, params: Any, batch: Arrays) -> dict[str, Array]:
        return self._task.outputs(params, batch)
