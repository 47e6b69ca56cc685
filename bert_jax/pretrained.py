"""`bert_jax.load`: opens a model in any format; computes vectors and answers."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.attentions import of_layers
from bert_jax.config import configuration
from bert_jax.convert import merge, sentence_transformers, weights
from bert_jax.convert.layout import Weights
from bert_jax.data import encodings
from bert_jax.data.rows import Feature, Rows
from bert_jax.errors import UserError
from bert_jax.extract import Extractor
from bert_jax.family import FAMILIES
from bert_jax.runtime import hub, storage
from bert_jax.runtime.storage import Path
from bert_jax.tasks import row_files
from bert_jax.tasks.task import ApplyFn, Predictor
from bert_jax.training import run_config, setup, sharding
from bert_jax.training.inference import Answerer
from bert_jax.types import Arrays

_BATCH = 32  # texts that `encode` computes at a time


def load(path: str | Path) -> "Bert":
    """Opens a model: a work directory, or a Hugging Face or Google folder.

    A missing or damaged tokenizer raises an error only when a text is encoded: `apply`
    needs none.

    Raises:
      UserError: there is no model, or it is damaged.
    """
    return Bert(path, weights.read(path, place=_on_device))


def _on_device(array: np.ndarray) -> Array:
    return jax.block_until_ready(jnp.asarray(array))


def _check_texts(texts: Sequence[Any]) -> None:
    if isinstance(texts, str):
        raise TypeError("a list of texts is required, not one text")
    if not texts:
        raise ValueError("no texts")


class Encoded(encodings.Columns):
    """What `Bert.encode` gives; `pooled` only if the model has a pooler."""

    hidden_states: Float[Array, "texts length hidden"]  # of the last layer
    pooled: NotRequired[Float[Array, "texts hidden"]]


class Bert:
    """A loaded model.

    Attributes:
      config: its sizes.
      params: its parameters, in the layout of `models`.
      labels: names of a classifier's outputs.
      heads: names of its heads, as in `params`.
    """

    def __init__(self, path: str | Path, model: Weights):
        self._path, self._about = path, dataclasses.replace(model, params={})
        self.config = model.config
        self.labels = model.labels
        self.heads = model.heads
        self._model = FAMILIES[model.config.architecture].with_heads(
            model.config,
            heads=model.heads,
            labels=len(model.labels),
            tied="decoder" not in model.params,
            bilstm="bilstm" in model.params,
        )
        self.params = jax.tree.map(jnp.asarray, model.params)
        self._run = jax.jit(self.forward, static_argnames="attentions")
        self._mesh = sharding.make_mesh(configuration.defaults(), (), jax.devices()[:1])
        self._extracting: dict[tuple, Answerer] = {}  # by the fields of `Extractor`

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer in the weights' folder.

        Raises:
          UserError: there is none, it is damaged, or it does not fit the model.
        """
        tokenizer = weights.read_tokenizer(self._path, self.config)
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
          input_ids: integers [batch, length], or [batch, choices, length] for a
            multiple choice model.
          input_mask: 1 for a token, 0 for padding.
          segment_ids: 0 for the first sentence, 1 for the second.
          attentions: also return the attention's probabilities.

        Returns:
          `hidden_states`, a list: the embeddings' output, then each layer's; `pooled`,
          if the model has a pooler; and its heads' logits: `masked_lm_logits` (at every
          position; `lm_logits`, of the next token, if it is left to right),
          `next_sentence_logits`, `logits` (classes, tags or choices), `start_logits`,
          `end_logits`. With `attentions` also `attentions`, a list with an array for
          each layer: [batch, heads, from, to], what each position takes from which.

        Raises:
          ValueError: an id or length out of range, or shapes that differ.
        """
        config = self.config
        ids, mask, segments = (
            np.asarray(x, np.int32) for x in (input_ids, input_mask, segment_ids)
        )
        if not ids.shape == mask.shape == segments.shape:
            raise ValueError(
                f"shapes differ: {ids.shape} {mask.shape} {segments.shape}"
            )
        for name, array, size in (
            ("input_ids", ids, config.vocab_size),
            ("segment_ids", segments, config.type_vocab_size),
        ):
            # JAX would clamp an index out of range without an error.
            if array.size and not 0 <= array.min() <= array.max() < size:
                raise ValueError(f"{name} must be in [0, {size})")
        return self._run(self.params, ids, mask, segments, attentions=attentions)

    def encode(
        self, texts: Sequence[str], texts_b: Sequence[str] | None = None
    ) -> Encoded:
        """Encodes texts, or pairs of texts.

        Args:
          texts: each becomes a row, [CLS] first; shorter ones are padded.
          texts_b: the second text of each, if any.

        Returns:
          `hidden_states` [texts, length, hidden] of the last layer, 0 after a text's
          end, and `pooled` [texts, hidden], if the model has a pooler; `input_ids`,
          `input_mask` and `segment_ids`, as `apply` takes them; each token's `offsets`
          and `word_ids` in the text (`encodings.Columns` says more) and `tokens`.
          `length` is that of the longest text.

        Raises:
          UserError: see `tokenizer`; a text is too long; the model computes NaN.
        """
        positions = self.config.max_position_embeddings
        tokenized = encodings.encoded(self.tokenizer, texts, texts_b, positions)
        columns = encodings.columns(tokenized, self._pad)
        answers = self._encoding.start([*map(encodings.feature, tokenized)])()
        shape = (*columns["input_ids"].shape, self.config.hidden_size)
        hidden = np.zeros(shape, np.float32)
        for row, answer in zip(hidden, answers, strict=True):
            part = answer.pop("hidden_states")[: len(row)]
            row[: len(part)] = part
        rest = {n: np.stack([answer[n] for answer in answers]) for n in answers[0]}
        vectors = jax.tree.map(jnp.asarray, {"hidden_states": hidden, **rest})
        return cast(Encoded, {**vectors, **columns})

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

    def predict(self, rows: Sequence[Mapping[str, Any] | str]) -> list[dict[str, Any]]:
        """Answers rows as `--mode=predict` does.

        Args:
          rows: objects, as in docs/fine_tuning.md; a string is a `text`.

        Returns:
          Each row with what the task adds: `masks` (`next`, left to right), `label`
          and `scores`, `answer`, `tags`, ...

        Raises:
          UserError: the weights lack a head.
          ValueError: a row is wrong.
        """
        if isinstance(rows, str | Mapping):
            raise TypeError("a list of rows is required, not one row")
        objects = [{"text": row} if isinstance(row, str) else row for row in rows]
        answers = self._predicting.answer(objects) if objects else []
        pairs = zip(objects, answers, strict=True)
        return [row_files.answered(dict(row), answer) for row, answer in pairs]

    def fill_mask(self, text: str) -> list[list[dict[str, Any]]]:
        """The guesses for each [MASK] of a text, as `masks` of `predict`.

        Raises:
          TypeError: not a text.
          ValueError: the model does not predict masked words.
        """
        if not isinstance(text, str):
            raise TypeError("one text is required; for a list of texts see predict")
        (row,) = self.predict([text])
        if "masks" not in row:
            raise ValueError("not a masked language model; see predict")
        return row["masks"]

    def words(
        self, rows: Sequence[str | Sequence[str]], layers: Sequence[int] = (-1,)
    ) -> list[tuple[list[str], Float[np.ndarray, "words layers hidden"]]]:
        """Each row's words and their vectors, of a word's first piece (section 5.3).

        Args:
          rows: texts, or lists of words.
          layers: 0 is the embeddings' output, 1 the first layer, -1 the last.

        Raises:
          UserError: a layer does not exist; see also `tokenizer`.
        """
        extracted = self._extracted(rows, layers=tuple(layers), vectors="words")
        return [(row["names"], row["vectors"]) for row in extracted]

    def sentences(
        self, texts: Sequence[str], layer: int | None = None
    ) -> Float[np.ndarray, "texts size"]:
        """Computes a vector for each text.

        A run of text vectors or a folder of sentence-transformers says how. Else, or
        for a given layer, it is the mean of the text's tokens in that layer, without
        [CLS] and [SEP]; by default in the one before the last, as BERT's author advised
        (google-research/bert#71).

        Args:
          layer: 0 is the embeddings' output, 1 the first layer, -1 the last.

        Raises:
          UserError: the layer does not exist, or a module is not supported; see also
            `tokenizer`.
        """
        pipeline = None if layer is not None else self._pipeline
        if pipeline is None:
            layers = (-2 if layer is None else layer,)
            extracted = self._extracted(texts, layers=layers, vectors="mean")
            size = self.config.hidden_size
            return np.stack([row["vectors"] for row in extracted]).reshape(-1, size)
        _check_texts(texts)
        tokenizer, answerer = self._embedding
        tokenized = tokenizer.encode_batch([pipeline.prompt + text for text in texts])
        answers = answerer.start([*map(encodings.feature, tokenized)])()
        return np.stack([answer["vectors"] for answer in answers])

    @functools.cached_property
    def _pipeline(self) -> sentence_transformers.Pipeline | None:
        recorded = weights.find(self._path).recorded() or {}
        if recorded.get("task", {}).get("name") == "embeddings":
            return sentence_transformers.of_task(recorded["task"])
        folder = hub.path(self._path)
        return sentence_transformers.read(folder, self.config.max_position_embeddings)

    @functools.cached_property
    def _embedding(self) -> tuple[Tokenizer, Answerer]:
        """What cuts texts as `_pipeline` says, and what computes their vectors."""
        assert self._pipeline is not None
        of_tokens = self._pipeline.vectors

        def vectors(params: Any, batch: Arrays) -> dict[str, Array]:
            hidden = self._vectors(params, batch)["hidden_states"]
            return {"vectors": of_tokens(hidden, batch["input_mask"])}

        answerer = self._answerer(_Texts(self, vectors), self.params)
        return self._pipeline.tokenizer(self.tokenizer), answerer

    def _extracted(self, rows: Sequence[Any], **fields: Any) -> list[dict[str, Any]]:
        _check_texts(rows)
        key = tuple(sorted(fields.items()))
        if key not in self._extracting:
            config = configuration.defaults()
            config.predict.update(fields)
            model = dataclasses.replace(self.config, dtype=config.model.dtype)
            extractor = Extractor(config, model, self.tokenizer)
            params = {"bert": self._with_pooler(self.params)["bert"]}
            self._extracting[key] = self._answerer(extractor, params)
        answerer = self._extracting[key]
        answers = answerer.answer(
            [{"text" if isinstance(row, str) else "words": row} for row in rows]
        )
        cast(Extractor, answerer.predictor).warn()
        return answers

    @functools.cached_property
    def _predicting(self) -> Answerer:
        """Answers as the task does that the weights record, or that of their head."""
        nowhere = storage.path(self._path) / "no-run"  # the weights are of `init_from`
        first = [f"--config.init_from={self._path}"]
        config = run_config.config_of(nowhere, None, first, asks=True)
        task = setup.build_task(config, nowhere, from_data=False)
        params, report = merge.merge(
            sharding.abstract_params(task.init_params, self._mesh),
            dataclasses.replace(self._about, params=self.params),
            task.model_config,
            hub.resolved(str(self._path)),
        )
        params = merge.whole(params, report, task.unused(predicts=True))
        task.facts.update(report.facts)
        predictor = task.predictor(report.missing)
        return self._answerer(predictor, params, config.predict.batch_size)

    def _with_pooler(self, params: Any) -> Any:
        """With a pooler, which the module needs; an added one's output is dropped."""
        if "pooler" in params["bert"]:
            return params
        size = self.config.hidden_size
        pooler = {"kernel": jnp.zeros((size, size)), "bias": jnp.zeros(size)}
        return {**params, "bert": {**params["bert"], "pooler": pooler}}

    def _vectors(self, params: Any, batch: Arrays) -> dict[str, Array]:
        """What `encode` needs of `forward`; the heads are not computed."""
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
        """`apply` as a pure function, for example to differentiate."""
        inputs = [
            jnp.asarray(x, jnp.int32) for x in (input_ids, input_mask, segment_ids)
        ]
        has_pooler = "pooler" in params["bert"]
        params = self._with_pooler(params)
        outputs, kept = self._model.apply(
            {"params": params},
            *inputs,
            mutable=["intermediates"] if attentions else [],
        )
        assert isinstance(outputs, dict)
        if not has_pooler:
            del outputs["pooled"]
        if attentions:
            trunk = kept.get("intermediates", {}).get("bert", {})
            outputs["attentions"] = of_layers(
                trunk, self.config.attention, "attentions=True"
            )
        return outputs


class _Texts(Predictor):
    """Tokenized texts, and what a function of (params, batch) gives of each."""

    def __init__(self, model: Bert, function: ApplyFn):
        self.max_seq_length = model.config.max_position_embeddings
        self._function, self._pad = function, model._pad

    def table(self, features: Sequence[Feature]) -> Rows:
        return Rows(features, {"input_ids": self._pad})

    def outputs(self, params: Any, batch: Arrays) -> dict[str, Array]:
        return self._function(params, batch)
