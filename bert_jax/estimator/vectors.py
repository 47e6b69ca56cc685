"""Vectors of texts, and a classifier of few labelled texts by their vectors."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from bert_jax import api
from bert_jax.estimator.texts import labels_of, single_texts, text_tags
from bert_jax.estimator.training import Trained, choose_config, draw_seed, train
from bert_jax.pretrained import load


class BertVectors(TransformerMixin, BaseEstimator):
    """The vectors of texts, for another estimator. It learns nothing.

    With few labelled texts, a linear model of these is often best:
    `make_pipeline(BertVectors("FOLDER"), LogisticRegression())`.

    Attributes:
      model_: The model, with everything that `bert_jax.load` offers.
    """

    def __init__(
        self,
        init_from: str = "mini",
        *,
        layer: int | None = None,
        prompt: str | None = None,
        size: int | None = None,
    ):
        """Stores its arguments: weights, and those of `Bert.sentences`."""
        self.init_from = init_from
        self.layer = layer
        self.prompt = prompt
        self.size = size

    def fit(self, X: Any, y: Any = None) -> Self:
        """Loads the model."""
        single_texts(X)
        self.model_ = load(self.init_from)
        self._size = self.transform(["a"]).shape[1]
        return self

    def transform(self, X: Any) -> Float[np.ndarray, "texts size"]:
        """Returns the vector of each text."""
        check_is_fitted(self, "model_")
        return self.model_.sentences(
            single_texts(X), self.layer, prompt=self.prompt, size=self.size
        )

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Returns the names of the vectors' numbers, as scikit-learn has them."""
        check_is_fitted(self, "model_")
        names = [f"bertvectors{number}" for number in range(self._size)]
        return np.array(names, object)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes, without the model, which is loaded again."""
        return {n: x for n, x in super().__getstate__().items() if n != "model_"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_size" in state:
            self.model_ = load(self.init_from)

    def __sklearn_tags__(self) -> Any:
        return text_tags(super().__sklearn_tags__())


class BertFewShot(ClassifierMixin, Trained):
    """A classifier of few labelled texts: vectors that are tuned on pairs of them, and
    a linear model of the vectors (SetFit, Tunstall et al. 2022, arXiv:2209.11055).

    It starts from a model of vectors, such as all-MiniLM-L6-v2 (docs/weights.md).

    Attributes:
      classes_: The classes, sorted, in the order of `predict_proba`'s columns.
      head_: The linear model.
      model_: The model of vectors, with everything that `bert_jax.load` offers.
    """

    def __init__(
        self,
        init_from: str = "mini",
        *,
        pairs_per_text: int = 20,
        learning_rate: float = 2e-5,
        batch_size: int = 16,
        max_seq_length: int = 128,
        fields: Mapping[str, Any] | None = None,
        verbose: bool = False,
        random_state: int | np.random.RandomState | None = 0,
    ):
        """Stores its arguments.

        Args:
          init_from: Weights to start from.
          pairs_per_text: Pairs of each text with another of its class, and as many with
            one of another class.
          learning_rate: Largest rate.
          batch_size: Pairs of a step.
          max_seq_length: Tokens of a text, of which the rest is cut.
          fields: Other config fields of finetune/embeddings by name.
          verbose: Whether to print what `--mode=train` prints.
          random_state: Seed of the pairs, their order and dropout. None means another
            one at each `fit`, drawn by NumPy.
        """
        self.init_from = init_from
        self.pairs_per_text = pairs_per_text
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_seq_length = max_seq_length
        self.fields = fields
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Tunes the vectors on pairs of texts, and fits the linear model.

        Raises:
          ValueError: There are not as many classes as texts, or only one class.
          UserError: See `bert_jax.fit`.
        """
        texts, labels = single_texts(X), labels_of(y)
        if labels.shape != (len(texts),):
            raise ValueError(f"{len(texts)} texts, but y has the shape {labels.shape}")
        self.classes_ = np.unique(labels)
        if len(self.classes_) < 2:
            raise ValueError(f"one class, {self.classes_}: at least two are needed")
        seed = draw_seed(self.random_state)
        rows = label_pairs(texts, labels, self.pairs_per_text, seed)
        fields = {
            "init_from": self.init_from,
            "train.num_epochs": 1.0,
            "train.batch_size": min(self.batch_size, len(rows)),
            "task.max_seq_length": self.max_seq_length,
            "task.loss": "squared_error",
            "optimizer.name": "adamw",  # as SetFit: with bias correction
            "optimizer.eps": 1e-8,
            "optimizer.learning_rate": float(self.learning_rate),
            "seed": seed,
            **(self.fields or {}),
        }
        config = api.make_config(choose_config("embeddings", self.init_from), fields)
        self._files = train(config, {"train": rows}, verbose=self.verbose)
        self._open()
        self.head_ = LogisticRegression(max_iter=1000)
        self.head_.fit(self.model_.sentences(texts), labels)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Returns each text's class."""
        return self.head_.predict(self._vectors(X))

    def predict_proba(self, X: Any) -> Float[np.ndarray, "texts classes"]:
        """Returns the probability of each class."""
        return self.head_.predict_proba(self._vectors(X))

    def _vectors(self, X: Any) -> Float[np.ndarray, "texts size"]:
        check_is_fitted(self, "model_")
        return self.model_.sentences(single_texts(X))

    def __sklearn_tags__(self) -> Any:
        return text_tags(super().__sklearn_tags__())


def label_pairs(
    texts: Sequence[str], labels: np.ndarray, per_text: int, seed: int
) -> list[dict[str, Any]]:
    """Returns rows `text`, `text_b`, `score`: each text with `per_text` others of its
    class, whose score is 1, and as many of other classes, whose score is 0.

    The others are drawn with replacement. A text that is alone in its class is its own
    partner.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for place, label in enumerate(labels):
        for score, group in ((1.0, labels == label), (0.0, labels != label)):
            others = np.setdiff1d(np.flatnonzero(group), [place])
            chosen = rng.choice(others if len(others) else [place], per_text)
            rows += [
                {"text": texts[place], "text_b": texts[other], "score": score}
                for other in chosen
            ]
    return rows
