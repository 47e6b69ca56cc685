"""Classifiers and regression by fine-tuning."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from jaxtyping import Float
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from bert_jax import api
from bert_jax.config.fields import iter_fields
from bert_jax.estimator.texts import labels_of, text_rows, text_tags
from bert_jax.estimator.training import Trained, choose_config, draw_seed, train

_EPOCHS, _LEAST_STEPS = 3.0, 100


class _FineTuned(Trained):
    """What `BertClassifier` and `BertRegressor` share."""

    def __init__(
        self,
        init_from: str = "mini",
        *,
        config: str | None = None,
        num_epochs: float | None = None,
        learning_rate: float | None = None,
        batch_size: int = 32,
        max_seq_length: int = 128,
        fields: Mapping[str, Any] | None = None,
        verbose: bool = False,
        random_state: int | np.random.RandomState | None = 0,
    ):
        """Stores its arguments.

        Args:
          init_from: Weights to start from (docs/weights.md).
          config: A config file of text classification, with its arguments, such as
            "finetune/text:recipe=base". None means finetune/text of the weights' family
            and, for those as small as mini, with recipe=tiny.
          num_epochs: Passes over the training texts. None means 3, as in the paper, or
            100 steps if these are more (Mosbach et al. 2021, arXiv:2006.04884).
          learning_rate: Largest rate. None means the config's.
          batch_size: Texts of a step.
          max_seq_length: Tokens of a text, of which the rest is cut.
          fields: Other config fields by name, such as {"optimizer.name": "adamw"}.
          verbose: Whether to print what `--mode=train` prints.
          random_state: Seed of the head, the order of the texts and dropout. None means
            another one at each `fit`, drawn by NumPy.
        """
        self.init_from = init_from
        self.config = config
        self.num_epochs = num_epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_seq_length = max_seq_length
        self.fields = fields
        self.verbose = verbose
        self.random_state = random_state

    def _fit_rows(
        self, kind: str, rows: dict[str, list[dict]], given: Mapping[str, Any]
    ) -> Self:
        """Fine-tunes.

        Args:
          kind: See `config.task.kind`.
          rows: Rows of `train`, and perhaps of `dev`.
          given: Fields of the config, by name.
        """
        own, num_epochs = dict(self.fields or {}), self.num_epochs
        fields = {
            "init_from": self.init_from,
            "train.num_epochs": _EPOCHS if num_epochs is None else float(num_epochs),
            "train.batch_size": self.batch_size,
            "task.max_seq_length": self.max_seq_length,
            "task.kind": kind,
            "seed": draw_seed(self.random_state),
            **given,
        }
        if "text_b" in rows["train"][0]:
            fields["task.text_b"] = "text_b"
        if "weight" in rows["train"][0]:
            fields["task.weight"] = "weight"
        fields |= own
        if num_epochs is None and "train.num_epochs" not in own:
            learns = len(rows["train"]) * (1 - fields.get("task.dev_fraction", 0.0))
            if _EPOCHS * learns < _LEAST_STEPS * fields["train.batch_size"]:
                fields.setdefault("train.num_steps", _LEAST_STEPS)
        if self.learning_rate is not None:
            fields["optimizer.learning_rate"] = float(self.learning_rate)
        spec = self.config or choose_config("text", self.init_from)
        config = api.make_config(spec, fields)
        if dict(iter_fields(config)).get("task.kind") != kind:
            raise ValueError(f"config={self.config}: is not for labels of texts")
        self._files = train(config, rows, verbose=self.verbose)
        self._open()
        return self

    def _answers(self, X: Any) -> list[dict[str, Any]]:
        check_is_fitted(self, "model_")
        return self.model_.predict(text_rows(X))

    def __sklearn_tags__(self) -> Any:
        return text_tags(super().__sklearn_tags__())


class BertClassifier(ClassifierMixin, _FineTuned):
    """A fine-tuned BERT that gives a class to each text, or several labels.

    Attributes:
      classes_: The classes, sorted, in the order of `predict_proba`'s columns. With
        several labels, the numbers of y's columns.
      model_: The model, with everything that `bert_jax.load` offers.
    """

    def __init__(
        self,
        init_from: str = "mini",
        *,
        config: str | None = None,
        num_epochs: float | None = None,
        learning_rate: float | None = None,
        batch_size: int = 32,
        max_seq_length: int = 128,
        class_weight: Mapping[Any, float] | str | None = None,
        fields: Mapping[str, Any] | None = None,
        verbose: bool = False,
        random_state: int | np.random.RandomState | None = 0,
    ):
        """Stores its arguments, see `BertRegressor`.

        Args:
          class_weight: Weight of each class in the loss, "balanced" as in scikit-learn,
            or None for 1.
        """
        super().__init__(
            init_from,
            config=config,
            num_epochs=num_epochs,
            learning_rate=learning_rate,
            batch_size=batch_size,
            max_seq_length=max_seq_length,
            fields=fields,
            verbose=verbose,
            random_state=random_state,
        )
        self.class_weight = class_weight

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, dev: tuple | None = None
    ) -> Self:
        """Fine-tunes on texts and their classes, or their labels.

        Args:
          y: A class of each text, or [texts, labels] with 1 where a label applies.
          sample_weight: Weight of each text in the loss. None means 1.
          dev: (X, y) to evaluate, and for what `fields` fit there.

        Raises:
          ValueError: There are not as many classes as texts, or only one class.
          UserError: See `bert_jax.fit`.
        """
        labels = labels_of(y)
        self._is_multilabel = labels.ndim == 2
        if self._is_multilabel:
            self.classes_ = np.arange(labels.shape[1])
            names = [str(number) for number in self.classes_]
        else:
            self.classes_ = np.unique(labels)
            names = [str(label) for label in self.classes_.tolist()]
        if len(self.classes_) < 2 and not self._is_multilabel:
            raise ValueError(f"one class, {self.classes_[:1]}: at least two are needed")
        # By number: two classes may have equal names, and JSON has fewer types.
        self._names = [str(number) for number in range(len(names))]
        rows = {"train": self._rows(X, labels, sample_weight)}
        if dev is not None:
            rows["dev"] = self._rows(dev[0], labels_of(dev[1]))
        given: dict[str, Any] = {}
        if self.class_weight is not None:
            given["task.class_weights"] = self._class_weights()
        if self._is_multilabel:
            given["task.labels"] = tuple(self._names)
        elif len({name.strip() for name in names} - {""}) == len(names):
            pairs = zip(self._names, names, strict=True)
            given["task.label_names"] = tuple(map("=".join, pairs))
            self._names = names
        if len(self.classes_) == 2 and not self._is_multilabel:
            given["task.positive_label"] = self._names[1]  # as scikit-learn's scores
        kind = "multilabel" if self._is_multilabel else "classification"
        return self._fit_rows(kind, rows, given)

    def _rows(self, X: Any, labels: np.ndarray, weights: Any = None) -> list[dict]:
        """Returns rows with labels by number."""
        rows = text_rows(X, weights)
        if len(labels) != len(rows):
            raise ValueError(f"{len(rows)} texts, but y has the shape {labels.shape}")
        named: list[Any]
        if labels.ndim == 2:
            named = [[str(i) for i in np.flatnonzero(row)] for row in labels]
        else:
            wrong = ~np.isin(labels, self.classes_)
            if wrong.any():
                raise ValueError(f"{labels[wrong][0]!r} is not among train's classes")
            named = [str(i) for i in np.searchsorted(self.classes_, labels)]
        return [{**row, "label": label} for row, label in zip(rows, named, strict=True)]

    def _class_weights(self) -> tuple[str, ...]:
        """Returns `config.task.class_weights`.

        Raises:
          ValueError: A weight is given for what is no class, or for several labels.
        """
        if self._is_multilabel:
            raise ValueError("class_weight: is for classes, not for several labels")
        if isinstance(self.class_weight, str):
            return (self.class_weight,)
        known = self.classes_.tolist()
        given = dict(self.class_weight or {})
        if unknown := [label for label in given if label not in known]:
            raise ValueError(f"class_weight: {unknown[0]!r} is not among y's classes")
        return tuple(f"{known.index(name)}={value}" for name, value in given.items())

    def predict(self, X: Any) -> np.ndarray:
        """Returns each text's class, or 0 and 1 for each label.

        With fitted thresholds (`task.calibration`) these decide, else the most probable
        class, or a probability of 0.5.
        """
        found = self._answers(X)
        if self._is_multilabel:
            given = [[name in row["labels"] for name in self._names] for row in found]
            return np.array(given, int).reshape(-1, len(self._names))
        numbers = [self._names.index(row["label"]) for row in found]
        return self.classes_[np.array(numbers, int)]

    def predict_proba(self, X: Any) -> Float[np.ndarray, "texts classes"]:
        """Returns the probability of each class, or of each label."""
        found = self._answers(X)
        shares = [[row["scores"][name] for name in self._names] for row in found]
        return np.array(shares, float).reshape(-1, len(self._names))

    def predict_log_proba(self, X: Any) -> Float[np.ndarray, "texts classes"]:
        """Returns the logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class BertRegressor(RegressorMixin, _FineTuned):
    """A fine-tuned BERT that gives a number to each text.

    It learns the numbers less their mean, divided by their standard deviation.

    Attributes:
      model_: The model, with everything that `bert_jax.load` offers.
    """

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, dev: tuple | None = None
    ) -> Self:
        """Fine-tunes on texts and their numbers. The arguments are those of
        `BertClassifier.fit`.

        Raises:
          ValueError: There are not as many numbers as texts, or one is not finite.
          UserError: See `bert_jax.fit`.
        """
        numbers = np.asarray(y, float)
        self._mean, self._scale = float(numbers.mean()), float(numbers.std()) or 1.0
        rows = {"train": self._rows(X, numbers, sample_weight)}
        if dev is not None:
            rows["dev"] = self._rows(dev[0], np.asarray(dev[1], float))
        return self._fit_rows("regression", rows, {})

    def _rows(self, X: Any, numbers: np.ndarray, weights: Any = None) -> list[dict]:
        rows = text_rows(X, weights)
        if numbers.shape != (len(rows),):
            raise ValueError(f"{len(rows)} texts, but y has the shape {numbers.shape}")
        if not np.isfinite(numbers).all():
            raise ValueError("y contains NaN or infinity: each text needs a number")
        scaled = ((numbers - self._mean) / self._scale).tolist()
        return [{**row, "label": x} for row, x in zip(rows, scaled, strict=True)]

    def predict(self, X: Any) -> Float[np.ndarray, "texts"]:
        """Returns the number of each text."""
        found = np.array([row["score"] for row in self._answers(X)], float)
        return found * self._scale + self._mean
