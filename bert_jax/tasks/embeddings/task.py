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
from bert_jax.runtime.storage import storage_path
from bert_jax.scores import classification, retrieval
from bert_jax.tasks.definition import Answers, TaskDefinition, numbered_lines
from bert_jax.tasks.embeddings import data, losses
from bert_jax.tasks.finetuning import Finetuning
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


class Embeddings(TaskDefinition):
    """Each text of a row is a sequence. An answer is a row's vectors, [texts, size].

    `config.task` has the fields of configs/finetune/embeddings.py. Rows have `texts`,
    and perhaps `score`. A query of RETRIEVAL also has `judged`: gains by document.
    """

    heads = ()
    loss_name = "embedding_loss"

    def __post_init__(self) -> None:
        """Checks the options.

        Raises:
          UserError: There is a BiLSTM.
        """
        if self.options.bilstm:
            raise UserError(
                "config.task.bilstm=True: is for a classifier, and vectors are those "
                "of the last layer; leave it False"
            )

    @property
    def main_score(self) -> str:
        """`spearman` of the cosine for rows with scores, else `mrr@10`."""
        splits = self.config.evaluate.splits
        dev = [s for s in splits if s.startswith("dev") and self.rows(s)]
        scored = dev and data.kind_of(self.rows(dev[0])) == "scores"
        return "spearman" if scored else "mrr@10"

    @property
    def sequences(self) -> int:
        """Number of texts of a training row."""
        rows = self.rows("train")
        return max(2, len(rows[0]["texts"]) if rows else 0)

    @property
    def loss(self) -> str:
        """Name of the loss: `task.loss`, or that of the training rows."""
        return self.options.loss or LOSSES[data.kind_of(self.rows("train"))][0]

    def read_rows(self, split: str) -> list[Row] | None:
        options = self.options
        source = self.split_file(split)
        if not source:
            return None
        if split == RETRIEVAL:
            documents, queries, judged = data.read_retrieval(storage_path(source))
            rows: list[Row] = [{"texts": (text,)} for text in documents]
            pairs = zip(queries, judged, strict=True)
            return rows + [
                {"texts": (text,), "judged": grades} for text, grades in pairs
            ]
        names = {
            name: options[name] for name in ("text", "text_b", "negative", "score")
        }
        rows = data.read_texts(
            source, names, options.format, options.max_score, split, self.text.notices
        )
        if split == "train":
            kind, chosen = data.kind_of(rows), options.loss
            if chosen and chosen not in LOSSES[kind]:
                raise UserError(
                    f"config.task.loss={chosen}: {options.train_file} has {kind}; "
                    f"choose one of {', '.join(LOSSES[kind])}"
                )
            negatives = len(rows[0]["texts"]) - 2
            if chosen == "triplet" and negatives > 1:
                raise UserError(
                    f"config.task.loss={chosen}: takes one negative, and a row has "
                    f"{negatives}; info_nce takes all"
                )
        return rows

    def group_names(self, rows: Sequence[Row]) -> list[str]:
        """Returns the first, in alphabetical order, of the texts that a chain of pairs
        connects with a row's. Negatives connect nothing."""
        parent: dict[str, str] = {}

        def find_first(text: str) -> str:
            while (above := parent.setdefault(text, text)) != text:
                parent[text] = parent[above]
                text = above
            return text

        for row in rows:
            ends = sorted(find_first(text) for text in row["texts"][:2])
            parent[ends[-1]] = ends[0]
        return [find_first(row["texts"][0]) for row in rows]

    def parse_row(self, row: Row) -> Row:
        """Takes `text`, and perhaps `text_b`, or the data's columns."""
        options = self.options
        found = {x: row.get(options[x], row.get(x)) for x in ("text", "text_b")}
        names = [x for x in found if x == "text" or found[x] is not None]
        return {"texts": tuple(require_text(found, name) for name in names)}

    def encode(self, rows: Sequence[Row], split: str) -> list[Feature]:
        """Encodes a row's sequences [CLS] text [SEP], [texts, length]. Cuts long texts.

        Rows are filled to the largest number of texts in `rows`.
        """
        max_texts = max((len(row["texts"]) for row in rows), default=0)
        max_texts = 2 if split == "train" and max_texts == 1 else max_texts
        default = self.options.prompt
        texts = [
            row.get("prompt", default) + text for row in rows for text in row["texts"]
        ]
        encodings = self.text.tokenize(texts, offsets=False)
        features = []
        for index, row in enumerate(rows):
            own = itertools.islice(encodings, len(row["texts"]))
            sequences = [
                self.text.sequence(encoding.ids, None, split) for encoding in own
            ]
            if split == "train" and len(sequences) == 1:
                sequences *= 2
            columns: dict[str, Any] = {**self.text.group(sequences, max_texts)}
            if "score" in row:
                columns["score"] = np.float32(row["score"])
            features.append(Feature(index, columns))
        return features

    def row_losses(self, logits: Arrays, batch: Arrays) -> Float[Array, "batch"]:
        raise NotImplementedError("a row alone has no loss; see batch_loss")

    def decode_answers(
        self, rows: Sequence[Row], features: Sequence[Feature], outputs: Answers
    ) -> list[Float[np.ndarray, "texts size"]]:
        """Returns the vectors of each row's texts."""
        pairs = zip(rows, outputs, strict=True)
        return [output["vectors"][: len(row["texts"])] for row, output in pairs]

    def scores(self, rows: Sequence[Row], answers: Answers) -> dict[str, float]:
        """Returns `spearman` and `pearson` of the cosines for scored pairs.

        For others it is `mrr@10` of finding a partner of each text among all of the
        split's partners, of which the text itself is none. Equal texts count once, and
        each partner that a text has in any row is relevant. For a retrieval split see
        `scores.retrieval`. With `config.task.dimensions` also each of them for vectors
        cut to these sizes: `spearman_64`.
        """
        found = self._scores(rows, answers)
        for size in self.options.dimensions:
            cut = self._scores(rows, [vectors[:, :size] for vectors in answers])
            found |= {f"{name}_{size}": value for name, value in cut.items()}
        return found

    def _scores(
        self, rows: Sequence[Row], answers: Sequence[np.ndarray]
    ) -> dict[str, float]:
        if judged := [row["judged"] for row in rows if "judged" in row]:
            number = len(rows) - len(judged)  # of documents, which come first
            vectors = retrieval.unit_vectors(np.concatenate(answers))
            similarities = vectors[number:] @ vectors[:number].T
            return retrieval.retrieval_scores(similarities, judged)
        if not rows or len(rows[0]["texts"]) == 1:
            return {}
        queries, partners = (
            retrieval.unit_vectors(np.stack([a[i] for a in answers])) for i in (0, 1)
        )
        if "score" in rows[0]:
            wanted = np.array([row["score"] for row in rows])
            cosines = np.sum(queries * partners, axis=1)
            functions = classification.spearman, classification.pearson
            return {score.__name__: score(wanted, cosines) for score in functions}
        pairs = [row["texts"][:2] for row in rows]
        texts, others = (_first_rows(x) for x in zip(*pairs, strict=True))
        places = {text: place for place, text in enumerate(others)}
        relevant = {
            x: {places[x]: retrieval.LEFT_OUT} if x in places else {} for x in texts
        }
        for text, partner in pairs:
            relevant[text][places[partner]] = 1.0
        similarities = queries[[*texts.values()]] @ partners[[*others.values()]].T
        found = retrieval.retrieval_scores(similarities, [*relevant.values()])
        return {"mrr@10": found["mrr@10"]}

    def prediction_files(
        self, split: str, rows: Sequence[Row], answers: Answers
    ) -> dict[str, str]:
        """Returns `SPLIT.jsonl` with each row's `index`, `similarity`, a cosine, and
        `gold` if known, or nothing for texts alone."""
        if not rows or len(rows[0]["texts"]) == 1:
            return {}
        lines = []
        for row, answer in zip(rows, answers, strict=True):
            similarity = self.format_answer(row, answer)["similarity"]
            gold = {"gold": row["score"]} if "score" in row else {}
            lines.append({"similarity": similarity, **gold})
        return {f"{split}.jsonl": numbered_lines(lines)}

    def format_answer(self, row: Row, answer: np.ndarray) -> dict[str, Any]:
        """Returns `vector` of the text, and for a pair also `similarity`, a cosine."""
        found: dict[str, Any] = {"vector": answer[0].tolist()}
        if len(answer) > 1:
            first, second = retrieval.unit_vectors(answer[:2])
            found["similarity"] = float(first @ second)
        return found


class EmbeddingTask(Finetuning):
    """The run's task of `Embeddings`: vectors pooled from the last layer, whose loss
    compares rows (Reimers & Gurevych 2019).

    A text alone is its own partner, with another dropout (Gao et al. 2021).
    """

    definition: Embeddings
    compares_rows = True

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer | None = None):
        super().__init__(Embeddings, config, tokenizer)
        options = self.options
        self._dense = VectorLayers(self.model_config, tuple(options.dense))
        hidden = self.model_config.hidden_size * (1 + options.pooling.count("+"))
        # The size of the encoder's part and of the whole vector
        self._pooled = hidden
        size = int(options.dense[-1].partition(":")[0]) if options.dense else hidden
        if any(not 0 < size_ <= size for size_ in options.dimensions):
            raise UserError(
                f"config.task.dimensions={tuple(options.dimensions)}: each must be "
                f"from 1 to the size of a vector, {size}"
            )

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
            match self.definition.loss:
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
        return {self.definition.loss_name: sum(found) * jnp.sum(weights)}

    def loss(self, params: Any, batch: Arrays, key: DropoutKey) -> Scalars:
        return self.batch_loss(self.vectors(params, batch, key), batch)

    def outputs(self, params: Any, batch: Arrays) -> dict[str, Array]:
        """Returns `vectors`, of length 1 if `config.task.normalized`."""
        vectors = self.vectors(params, batch, None)["vectors"]
        if self.options.normalized:
            vectors = losses.normalize_vectors(vectors)
        return {"vectors": vectors}


def _first_rows(texts: Sequence[str]) -> dict[str, int]:
    """Returns the index of the first of equal texts, by text."""
    first: dict[str, int] = {}
    for index, text in enumerate(texts):
        first.setdefault(text, index)
    return first
