"""Sentence vectors (Reimers & Gurevych 2019): similar texts have a cosine near 1."""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.data.rows import Feature
from bert_jax.data.tables import Row
from bert_jax.errors import UserError
from bert_jax.models.heads import VectorLayers
from bert_jax.models.layers import pool_tokens
from bert_jax.runtime.storage import Path, storage_path
from bert_jax.scores import classification, retrieval
from bert_jax.tasks.embeddings import data, losses
from bert_jax.tasks.finetuning import Answers, Finetuning, Outputs
from bert_jax.tasks.task import require_text
from bert_jax.types import Arrays, DropoutKey, Scalars

# The losses that rows of a kind can have. The first is the default.
LOSSES = {
    "texts": ("info_nce",),
    "pairs": ("info_nce",),
    "triplets": ("info_nce", "triplet"),
    "scores": ("cosent", "squared_error"),
}
RETRIEVAL = "retrieval"  # a split of queries and documents


class Embeddings(Finetuning):
    """Each text of a row is a sequence, and its vector is pooled from the last layer.

    A text alone is its own partner, with another dropout (Gao et al. 2021).

    Args:
      config: The whole config. `config.task` has the fields of
        configs/finetune/embeddings.py.

    An answer is a row's vectors, [texts, size].
    """

    head = ""
    loss_name = "embedding_loss"
    compares_rows = True

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer | None = None):
        super().__init__(config, tokenizer)
        self._kinds: dict[str, str] = {}
        self._loss = self.options.loss
        self._row_texts = 2
        self._judged: tuple[int, list[dict[int, float]]] = (0, [])
        task = config.task
        if task.bilstm:
            raise UserError(
                "config.task.bilstm=True: is for a classifier, and vectors are those "
                "of the last layer; leave it False"
            )
        self._dense = VectorLayers(self.model_config, tuple(task.dense))
        hidden = self.model_config.hidden_size * (1 + task.pooling.count("+"))
        # The size of the encoder's part and of the whole vector
        self._pooled = hidden
        size = int(task.dense[-1].partition(":")[0]) if task.dense else hidden
        if any(not 0 < size_ <= size for size_ in task.dimensions):
            raise UserError(
                f"config.task.dimensions={tuple(task.dimensions)}: each must be from 1 "
                f"to the size of a vector, {size}"
            )

    @property
    def main_score(self) -> str:  # type: ignore[override]
        """`spearman` of the cosine for rows with scores, else `mrr@10`."""
        first = next(iter(self.dev_splits), "")
        return "spearman" if self._kinds.get(first) == "scores" else "mrr@10"

    def read_file(self, source: str, split: str) -> list[Row]:
        options = self.options
        if split == RETRIEVAL:
            return self._read_retrieval(source)
        names = {
            name: options[name] for name in ("text", "text_b", "negative", "score")
        }
        rows, self._kinds[split] = data.read_texts(
            source, names, options.format, options.max_score, split, self.notices
        )
        if split == "train":
            self._row_texts = max(2, len(rows[0]["texts"]))
            self._check_loss()
        return rows

    def _read_retrieval(self, source: str) -> list[Row]:
        """Returns documents, then queries."""
        documents, queries, judgements = data.read_retrieval(storage_path(source))
        self._judged = len(documents), judgements
        self._kinds[RETRIEVAL] = "texts"
        return [{"texts": (text,)} for text in (*documents, *queries)]

    def _check_loss(self) -> None:
        kind, chosen = self._kinds["train"], self.options.loss
        if chosen and chosen not in LOSSES[kind]:
            raise UserError(
                f"config.task.loss={chosen}: {self.options.train_file} has {kind}; "
                f"choose one of {', '.join(LOSSES[kind])}"
            )
        if chosen == "triplet" and self._row_texts > 3:
            raise UserError(
                f"config.task.loss={chosen}: takes one negative, and a row has "
                f"{self._row_texts - 2}; info_nce takes all"
            )
        self._loss = chosen or LOSSES[kind][0]

    def parse_row(self, row: Row) -> Row:
        """Takes `text`, and perhaps `text_b`, or the data's columns."""
        options = self.options
        found = {x: row.get(options[x], row.get(x)) for x in ("text", "text_b")}
        names = [x for x in found if x == "text" or found[x] is not None]
        return {"texts": tuple(require_text(found, name) for name in names)}

    def encode(self, examples: Sequence[Row], split: str) -> list[Feature]:
        """Encodes a row's sequences [CLS] text [SEP], [texts, length]. Cuts long texts.

        Rows are filled to the largest number of texts in `examples`.
        """
        most = max((len(row["texts"]) for row in examples), default=0)
        most = 2 if split == "train" and most == 1 else most
        default = self.options.prompt
        texts = [
            row.get("prompt", default) + text
            for row in examples
            for text in row["texts"]
        ]
        encodings = self.tokenize_texts(texts, offsets=False)
        features = []
        for index, row in enumerate(examples):
            own = itertools.islice(encodings, len(row["texts"]))
            sequences = [self.sequence(each.ids, None, split) for each in own]
            if split == "train" and len(sequences) == 1:
                sequences *= 2
            columns: dict[str, Any] = {**self.grouped(sequences, most)}
            if "score" in row:
                columns["score"] = np.float32(row["score"])
            features.append(Feature(index, columns))
        return features

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of a sequence for each text."""
        return (self._row_texts, self.options.max_seq_length)

    def init_params(self, key: Key[Array, ""]) -> dict:
        params = super().init_params(key)
        if self.options.dense:
            shape = jnp.zeros((1, self._pooled))
            params["dense"] = self._dense.init(jax.random.fold_in(key, 1), shape)[
                "params"
            ]
        return params

    def vectors(self, params: Any, batch: Arrays, key: DropoutKey) -> Arrays:
        """Returns `vectors` [batch, texts, size], float32, not yet normalized."""
        states = self.apply(params, batch, key)["hidden_states"][-1]
        *rows, length = batch["input_mask"].shape
        mask = batch["input_mask"].reshape(-1, length)
        pooled = pool_tokens(states, mask, self.options.pooling)
        if self.options.dense:
            own = {"params": params["dense"]}
            pooled = jnp.asarray(self._dense.apply(own, pooled))
        return {"vectors": pooled.reshape(*rows, -1)}

    def batch_loss(self, vectors: Arrays, batch: Arrays) -> Scalars:
        """Returns the loss of `config.task.loss`, or with `dimensions` its sum over
        vectors cut to each of these sizes (Kusupati et al. 2022)."""
        whole, options = vectors["vectors"], self.options
        weights = batch["row_weights"]
        found = []
        for size in options.dimensions or (whole.shape[-1],):
            cut = whole[..., :size]
            match self._loss:
                case "info_nce":
                    loss = losses.info_nce(
                        cut, weights, options.temperature, batch["input_ids"]
                    )
                case "cosent":
                    loss = losses.cosent_loss(
                        cut, weights, batch["score"], options.temperature
                    )
                case "squared_error":
                    loss = losses.squared_error(cut, weights, batch["score"])
                case "triplet":
                    loss = losses.triplet_loss(cut, weights, options.margin)
            found.append(loss)
        return {self.loss_name: sum(found) * jnp.sum(weights)}

    def loss(self, params: Any, batch: Arrays, key: DropoutKey) -> Scalars:
        return self.batch_loss(self.vectors(params, batch, key), batch)

    def row_losses(self, logits: Arrays, batch: Arrays) -> Float[Array, "batch"]:
        raise NotImplementedError("a row alone has no loss; see batch_loss")

    def outputs(self, params: Any, batch: Arrays) -> dict[str, Array]:
        """Returns `vectors`, of length 1 if `config.task.normalized`."""
        vectors = self.vectors(params, batch, None)["vectors"]
        if self.options.normalized:
            vectors = losses.normalize_vectors(vectors)
        return {"vectors": vectors}

    def decode_answers(
        self,
        examples: Sequence[Row],
        features: Sequence[Feature],
        outputs: Sequence[Outputs],
    ) -> list[Float[np.ndarray, "texts size"]]:
        """Returns the vectors of each row's texts."""
        pairs = zip(examples, outputs, strict=True)
        return [output["vectors"][: len(row["texts"])] for row, output in pairs]

    def scores(
        self, split: str, examples: Sequence[Row], answers: Sequence[np.ndarray]
    ) -> dict[str, float]:
        """Returns `spearman` and `pearson` of the cosines for scored pairs.

        For others it is `mrr@10` of finding a partner of each text among all of the
        split's partners, of which the text itself is none. Equal texts count once, and
        each partner that a text has in any row is relevant. For a retrieval split see
        `scores.retrieval`. With `config.task.dimensions` also each of them for vectors
        cut to these sizes: `spearman_64`.
        """
        found = self._scores(split, examples, answers)
        for size in self.options.dimensions:
            cut = self._scores(split, examples, [each[:, :size] for each in answers])
            found |= {f"{name}_{size}": value for name, value in cut.items()}
        return found

    def _scores(
        self, split: str, examples: Sequence[Row], answers: Sequence[np.ndarray]
    ) -> dict[str, float]:
        if split == RETRIEVAL:
            number, judgements = self._judged
            vectors = unit_vectors(np.concatenate(answers))
            similarities = vectors[number:] @ vectors[:number].T
            return retrieval.retrieval_scores(similarities, judgements)
        if not examples or len(examples[0]["texts"]) == 1:
            return {}
        queries, partners = (
            unit_vectors(np.stack([a[i] for a in answers])) for i in (0, 1)
        )
        if "score" in examples[0]:
            wanted = np.array([row["score"] for row in examples])
            cosines = np.sum(queries * partners, axis=1)
            functions = classification.spearman, classification.pearson
            return {each.__name__: each(wanted, cosines) for each in functions}
        pairs = [row["texts"][:2] for row in examples]
        texts, others = (_first_rows(x) for x in zip(*pairs, strict=True))
        places = {text: place for place, text in enumerate(others)}
        judged = {
            x: {places[x]: retrieval.LEFT_OUT} if x in places else {} for x in texts
        }
        for text, partner in pairs:
            judged[text][places[partner]] = 1.0
        similarities = queries[[*texts.values()]] @ partners[[*others.values()]].T
        found = retrieval.retrieval_scores(similarities, [*judged.values()])
        return {"mrr@10": found["mrr@10"]}

    def prediction_row(self, example: Row, answer: np.ndarray) -> Row:
        """Returns `similarity`, a cosine, and `gold` if known."""
        similarity = self.format_answer(example, answer)["similarity"]
        gold = {"gold": example["score"]} if "score" in example else {}
        return {"similarity": similarity, **gold}

    def write_predictions(
        self, folder: Path, split: str, examples: Sequence[Row], answers: Answers
    ) -> None:
        """Writes `SPLIT.jsonl`, or nothing for texts alone."""
        if examples and len(examples[0]["texts"]) > 1:
            super().write_predictions(folder, split, examples, answers)

    def format_answer(self, example: Row, answer: np.ndarray) -> dict[str, Any]:
        """Returns `vector` of the text, and for a pair also `similarity`, a cosine."""
        found: dict[str, Any] = {"vector": answer[0].tolist()}
        if len(answer) > 1:
            first, second = unit_vectors(answer[:2])
            found["similarity"] = float(first @ second)
        return found


def _first_rows(texts: Sequence[str]) -> dict[str, int]:
    """Returns the index of the first of equal texts, by text."""
    first: dict[str, int] = {}
    for index, text in enumerate(texts):
        first.setdefault(text, index)
    return first


def unit_vectors(
    vectors: Float[np.ndarray, "texts size"],
) -> Float[np.ndarray, "texts size"]:
    """Divides vectors by their lengths."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
