"""A classifier of texts for scikit-learn, with its conventions (the extra `sklearn`).

    from bert_jax.estimator import BertClassifier

    model = BertClassifier().fit(texts, labels)
    model.predict_proba(["a text"])

It works in pipelines, `cross_val_score` and `GridSearchCV` (with `n_jobs=1`: training
takes all cores), and can be pickled.
"""

import contextlib
import io
import logging
import numbers
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bert_jax import api
from bert_jax.convert import weights
from bert_jax.pretrained import load

_SMALL = 256  # hidden size
_SEEDS = 2**31 - 1


class BertClassifier(ClassifierMixin, BaseEstimator):
    """A fine-tuned BERT.

    Attributes:
      classes_: The classes, sorted, in the order of `predict_proba`'s columns.
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

    def fit(self, X: Any, y: Any) -> "BertClassifier":
        """Fine-tunes on texts and their classes.

        Raises:
          ValueError: There are not as many classes as texts, or only one class.
          UserError: See `bert_jax.fit`.
        """
        texts, labels = _texts(X), np.asarray(y)
        if labels.shape != (len(texts),):
            raise ValueError(f"{len(texts)} texts, but y has the shape {labels.shape}")
        if any(label is None or label != label for label in labels.tolist()):
            raise ValueError("y contains NaN or None: each text needs a class")
        self.classes_, indices = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"one class, {self.classes_[:1]}: at least two are needed")
        # By number: two classes may have equal names, and JSON has fewer types.
        names = [str(label) for label in self.classes_.tolist()]
        self._names = [str(number) for number in range(len(names))]
        rows = [
            {"text": text, "label": str(index)}
            for text, index in zip(texts, indices.tolist(), strict=True)
        ]
        given = {
            "init_from": self.init_from,
            "train.num_epochs": float(self.num_epochs),
            "train.batch_size": self.batch_size,
            "task.max_seq_length": self.max_seq_length,
            "seed": self._seed(),
        }
        if len({name.strip() for name in names} - {""}) == len(names):
            pairs = zip(self._names, names, strict=True)
            given["task.label_names"] = tuple(map("=".join, pairs))
            self._names = names
        given |= dict(self.fields or {})
        if self.learning_rate is not None:
            given["optimizer.learning_rate"] = float(self.learning_rate)
        config = api.make_config(self.config or self._choose_config(), given)
        if config.task.get("kind") != "classification":
            raise ValueError(f"config={self.config}: is not for classes of texts")
        quiet = contextlib.nullcontext() if self.verbose else _hide_output()
        with tempfile.TemporaryDirectory() as workdir, quiet:
            api.fit(config, workdir, train=rows)
            folder = Path(workdir, "exported")
            weights.find_source(workdir).export(folder)
            files = filter(Path.is_file, folder.iterdir())
            self._files = {path.name: path.read_bytes() for path in files}
        self._open()
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Returns the most probable class of each text."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> Float[np.ndarray, "texts classes"]:
        """Returns the probability of each class."""
        check_is_fitted(self, "model_")
        found = self.model_.predict(_texts(X))
        shares = [[row["scores"][name] for name in self._names] for row in found]
        return np.array(shares).reshape(-1, len(self._names))

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
        self._folder = tempfile.TemporaryDirectory(prefix="bert_classifier_")
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
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags


def _texts(given: Any) -> list[str]:
    """Returns texts of a list, an array or a column. Raises ValueError for others."""
    if isinstance(given, str):
        raise ValueError("a list of texts is required, not one text")
    if hasattr(given, "columns"):
        raise ValueError("a column of texts is required, not a whole table")
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
