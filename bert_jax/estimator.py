"""Classifiers, regression and vectors of texts for scikit-learn, with its conventions
(the extra `sklearn`).

    from bert_jax.estimator import BertClassifier

    model = BertClassifier().fit(texts, labels)
    model.predict_proba(["a text"])

They work in pipelines, `cross_val_score` and `GridSearchCV` (with `n_jobs=1`: training
takes all cores), and can be pickled. X is a list, an array or a column of texts, or for
pairs has two columns.
"""

import contextlib
import io
import logging
import numbers
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Float
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bert_jax import api
from bert_jax.convert import weights
from bert_jax.pretrained import load

_SMALL = 256  # hidden size
_SEEDS = 2**31 - 1


class _FineTuned(BaseEstimator):
    """What `BertClassifier` and `BertRegressor` share.

    Attributes:
      model_: The model, with everything that `bert_jax.load` offers.
    """

    def __init__(
        self,
        init_from: str = "mini",
        *,
        config: str | None = None,
        num_epochs: float = 3.0,
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
          num_epochs: Passes over the training texts.
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
        fields = {
            "init_from": self.init_from,
            "train.num_epochs": float(self.num_epochs),
            "train.batch_size": self.batch_size,
            "task.max_seq_length": self.max_seq_length,
            "task.kind": kind,
            "seed": self._seed(),
            **given,
        }
        if "text_b" in rows["train"][0]:
            fields["task.text_b"] = "text_b"
        if "weight" in rows["train"][0]:
            fields["task.weight"] = "weight"
        fields |= dict(self.fields or {})
        if self.learning_rate is not None:
            fields["optimizer.learning_rate"] = float(self.learning_rate)
        config = api.make_config(self.config or self._choose_config(), fields)
        if config.task.get("kind") != kind:
            raise ValueError(f"config={self.config}: is not for labels of texts")
        quiet = contextlib.nullcontext() if self.verbose else _hide_output()
        with tempfile.TemporaryDirectory() as workdir, quiet:
            api.fit(config, workdir, **rows)
            folder = Path(workdir, "exported")
            weights.find_source(workdir).export(folder)
            files = filter(Path.is_file, folder.iterdir())
            self._files = {path.name: path.read_bytes() for path in files}
        self._open()
        return self

    def _answers(self, X: Any) -> list[dict[str, Any]]:
        check_is_fitted(self, "model_")
        return self.model_.predict(_text_rows(X))

    def _choose_config(self) -> str:
        """Returns the config for weights of this family and size."""
        source = weights.find_source(self.init_from)
        is_small = source.shape()["model.hidden_size"] <= _SMALL
        recipe = "tiny" if is_small else "base"
        return f"finetune/text:recipe={recipe},model={source.family.name}"

    def _seed(self) -> int:
        """Returns the seed of a `fit`."""
        if isinstance(self.random_state, numbers.Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(_SEEDS))

    def _open(self) -> None:
        """Loads the model, from a folder that is removed with this object."""
        self._folder = tempfile.TemporaryDirectory(prefix="bert_jax_")
        for name, content in self._files.items():
            Path(self._folder.name, name).write_bytes(content)
        self.model_ = load(self._folder.name)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes, without the model, which its files have."""
        state = super().__getstate__().items()
        return {n: x for n, x in state if n not in ("model_", "_folder")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_files" in state:
            self._open()

    def __sklearn_tags__(self) -> Any:
        return _text_tags(super().__sklearn_tags__())


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
        num_epochs: float = 3.0,
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
        labels = _labels_of(y)
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
            rows["dev"] = self._rows(dev[0], _labels_of(dev[1]))
        given: dict[str, Any] = {}
        if self.class_weight is not None:
            given["task.class_weights"] = self._class_weights()
        if self._is_multilabel:
            given["task.labels"] = tuple(self._names)
        elif len({name.strip() for name in names} - {""}) == len(names):
            pairs = zip(self._names, names, strict=True)
            given["task.label_names"] = tuple(map("=".join, pairs))
            self._names = names
        kind = "multilabel" if self._is_multilabel else "classification"
        return self._fit_rows(kind, rows, given)

    def _rows(self, X: Any, labels: np.ndarray, weights: Any = None) -> list[dict]:
        """Returns rows with labels by number."""
        rows = _text_rows(X, weights)
        if len(labels) != len(rows):
            raise ValueError(f"{len(rows)} texts, but y has the shape {labels.shape}")
        named: list[Any]
        if labels.ndim == 2:
            named = [[str(i) for i in np.flatnonzero(row)] for row in labels]
        else:
            wrong = ~np.isin(labels, self.classes_)
            if wrong.any():
                raise ValueError(f"{labels[wrong][0]!r} is no class of y in train")
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
            raise ValueError(f"class_weight: {unknown[0]!r} is no class of y")
        return tuple(f"{known.index(name)}={value}" for name, value in given.items())

    def predict(self, X: Any) -> np.ndarray:
        """Returns each text's class, or 0 and 1 for each label.

        With fitted thresholds (`task.calibration`) these decide, else the most probable
        class, or a probability of 0.5.
        """
        found = self._answers(X)
        if self._is_multilabel:
            each = [[name in row["labels"] for name in self._names] for row in found]
            return np.array(each, int).reshape(-1, len(self._names))
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
        rows = _text_rows(X, weights)
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
        _text_rows(X)
        self.model_ = load(self.init_from)
        self._size = self.transform(["a"]).shape[1]
        return self

    def transform(self, X: Any) -> Float[np.ndarray, "texts size"]:
        """Returns the vector of each text."""
        check_is_fitted(self, "model_")
        texts = [row["text"] for row in _text_rows(X)]
        return self.model_.sentences(
            texts, self.layer, prompt=self.prompt, size=self.size
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
        return _text_tags(super().__sklearn_tags__())


def _text_tags(tags: Any) -> Any:
    tags.input_tags.string = tags.input_tags.one_d_array = True
    tags.input_tags.two_d_array = False
    return tags


def _labels_of(y: Any) -> np.ndarray:
    """Returns classes, or 0 and 1 for each of several labels. Raises ValueError for
    others."""
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] > 1:
        if not np.isin(labels, (0, 1)).all():
            raise ValueError("y with several columns has 0 and 1 for each label")
        return labels.astype(int)
    if any(label is None or label != label for label in labels.ravel().tolist()):
        raise ValueError("y contains NaN or None: each text needs a class")
    return labels


def _text_rows(X: Any, weights: Any = None) -> list[dict[str, Any]]:
    """Returns rows with `text`, of pairs `text_b` and with weights `weight`."""
    pairs = X.to_numpy() if hasattr(X, "columns") else X
    if getattr(pairs, "ndim", 1) == 2 and pairs.shape[1] == 2:
        both = zip(_texts(pairs[:, 0]), _texts(pairs[:, 1]), strict=True)
        rows: list[dict] = [{"text": one, "text_b": other} for one, other in both]
    else:
        rows = [{"text": text} for text in _texts(X)]
    if weights is None:
        return rows
    given = np.asarray(weights, float)
    if given.shape != (len(rows),) or not (given >= 0).all():
        raise ValueError(f"sample_weight: {len(rows)} numbers of at least 0 are needed")
    return [{**row, "weight": x} for row, x in zip(rows, given.tolist(), strict=True)]


def _texts(given: Any) -> list[str]:
    """Returns texts of a list, an array or a column. Raises ValueError for others."""
    if isinstance(given, str):
        raise ValueError("a list of texts is required, not one text")
    if hasattr(given, "columns"):
        raise ValueError("a column of texts, or two of pairs, not a whole table")
    texts = list(given)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"text {number}: {text!r:.60} is not a string")
    return [str(text) for text in texts]  # NumPy's strings are a class of their own


@contextlib.contextmanager
def _hide_output() -> Iterator[None]:
    """Hides what training prints."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    hidden = io.StringIO()
    try:
        with contextlib.redirect_stdout(hidden), contextlib.redirect_stderr(hidden):
            yield
    finally:
        logging.disable(before)
