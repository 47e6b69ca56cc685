"""Training of an estimator's model, whose folder it keeps in memory."""

import contextlib
import io
import logging
import numbers
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from bert_jax import api
from bert_jax.convert import weights
from bert_jax.data.tables import Row
from bert_jax.pretrained import load

_SMALL = 256  # hidden size
_SEEDS = 2**31 - 1

# The files of a folder of weights, by their names.
Files = Mapping[str, bytes]


def choose_config(kind: str, init_from: str) -> str:
    """Returns the config finetune/KIND for weights of this family and size."""
    source = weights.find_source(init_from)
    is_small = source.shape()["model.hidden_size"] <= _SMALL
    recipe = "tiny" if is_small else "base"
    return f"finetune/{kind}:recipe={recipe},model={source.family.name}"


def train(
    config: ConfigDict, rows: Mapping[str, Sequence[Row]], *, verbose: bool
) -> Files:
    """Returns the folder of a model that is trained on rows of `train` and `dev`."""
    quiet = contextlib.nullcontext() if verbose else _hide_output()
    with tempfile.TemporaryDirectory() as workdir, quiet:
        api.fit(config, workdir, **rows)
        folder = Path(workdir, "exported")
        weights.find_source(workdir).export(folder)
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def draw_seed(random_state: Any) -> int:
    """Returns a seed, as scikit-learn means `random_state`."""
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(_SEEDS))


class Trained(BaseEstimator):
    """An estimator with a model of its own, which can be pickled.

    Attributes:
      model_: The model, with everything that `bert_jax.load` offers.
    """

    _files: Files

    def _open(self) -> None:
        """Loads the model, from a folder that is removed with it."""
        folder = tempfile.TemporaryDirectory(prefix="bert_jax_")
        for name, content in self._files.items():
            path = Path(folder.name, name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        self.model_ = load(folder.name)
        weakref.finalize(self.model_, folder.cleanup)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes, without the model, which its files have."""
        state = super().__getstate__().items()
        return {name: x for name, x in state if name != "model_"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_files" in state:
            self._open()


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
