"""An ELMo that is read, from its released files or a run, and its vectors of words."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bert_jax.convert import weights
from bert_jax.convert.export import require_empty
from bert_jax.data.rows import power_of_two
from bert_jax.errors import UserError
from bert_jax.families.elmo import characters, fields, model, released
from bert_jax.families.elmo.config import ElmoConfig
from bert_jax.runtime import storage
from bert_jax.runtime.storage import Path
from bert_jax.workdir import folder as workdir

_BATCH = 32  # sentences that are computed at a time


def load(folder: str | Path) -> "Elmo":
    """Loads an ELMo. See `bert_jax.families.elmo.load`."""
    return Elmo(*read(storage.storage_path(folder)))


def is_run(folder: Path) -> bool:
    """Whether it is a run. Next to options.json a config.json is another program's."""
    return workdir.has_config(folder) and not (folder / released.OPTIONS).exists()


def read(folder: Path) -> tuple[ElmoConfig, dict[str, Any]]:
    """Reads the sizes and the parameters, as float32 NumPy arrays.

    Raises:
      UserError: A file is missing or damaged, it is a run without a checkpoint or of
        another task, or h5py, which weights.hdf5 needs, is not installed.
    """
    if not is_run(folder):
        return released.read(pathlib.Path(str(folder)))  # HDF5 reads no buckets
    config, params, _ = weights.read_checkpoint(folder)
    if config.task.name != fields.NAME:
        raise UserError(f"{folder}: a run of {config.task.name}, which has no ELMo")
    # Without the softmax, which is as large as the vocabulary.
    return ElmoConfig.from_config(config), jax.device_get(params["elmo"])


def export(folder: Path, target: str) -> None:
    """Writes a run's options.json and weights.hdf5, as bilm does, and its vocabulary.

    Raises:
      UserError: It is no run of an ELMo, or without a checkpoint, the folder has files
        or cannot be written, or h5py is missing.
    """
    output = pathlib.Path(target).absolute()
    require_empty(output)
    released.library()
    rows = workdir.recorded_config(folder, code=False).train.batch_size
    config, params = read(folder)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with storage.temporary_folder(output) as new:
            released.write(new, config, params, batch_size=rows)
            (new / "vocab.txt").write_bytes((folder / "vocab.txt").read_bytes())
            new.rename(output)
    except OSError as error:
        raise UserError(f"--output={target}: {error.strerror or error}") from error


class Elmo:
    """A frozen ELMo.

    Attributes:
      config: Sizes of the model.
      params: Parameters in the layout of `bert_jax.families.elmo.model`.
      cut: Number of words so far with more bytes than it reads.
    """

    def __init__(self, config: ElmoConfig, params: Mapping[str, Any]):
        self.config, self.cut = config, 0
        self.params = jax.tree.map(jnp.asarray, params)
        module = model.Elmo(config)

        def run(params: Any, ids: Int[Array, "batch words characters"]) -> Array:
            return module.apply({"params": params}, ids, method="layers")[0]

        self._run = jax.jit(run)

    def encode(
        self, sentences: Sequence[Sequence[str]]
    ) -> list[Float[np.ndarray, "layers words both"]]:
        """Returns each sentence's layers: the words' vectors, then each LSTM layer's
        outputs.

        The two directions are side by side. The first layer has the words' vectors
        twice, as in bilm. Each sentence is read by itself, from its <S> to its </S>,
        which are not among the vectors. (bilm and AllenNLP carry the state from one
        batch to the next, so that their vectors depend on what they read before.)

        Args:
          sentences: Words of each sentence. A text must be cut into words in the way
            that the model was trained on. The released ones take punctuation as
            separate words.

        Raises:
          TypeError: A sentence is a text, not a sequence of words.
        """
        for sentence in sentences:
            if isinstance(sentence, str):
                raise TypeError(f"a sentence must be words, such as {sentence.split()}")
            self.cut += characters.count_cut_words(sentence, self.config.max_characters)
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
        by_index: dict[int, np.ndarray] = {}
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            chosen = [sentences[i] for i in batch]
            for i, layers in zip(batch, self._layers(chosen), strict=True):
                by_index[i] = layers[:, 1 : len(sentences[i]) + 1]
        return [by_index[i] for i in range(len(sentences))]

    def mix(
        self,
        sentences: Sequence[Sequence[str]],
        weights: Sequence[float] | None = None,
        gamma: float = 1.0,
    ) -> list[Float[np.ndarray, "words both"]]:
        """Returns ELMo's vectors: gamma times the layers' sum by softmax(weights).

        Args:
          weights: Weights of the layers, before the softmax. None means all the same.
        """
        count = self.config.num_hidden_layers + 1
        share = np.zeros(count) if weights is None else np.asarray(weights, float)
        if share.shape != (count,):
            raise ValueError(f"weights: {count} are needed, one for each layer")
        share = np.exp(share - share.max())
        share = gamma * share / share.sum()
        return [
            np.einsum("l,lwd->wd", share, layers).astype(np.float32)
            for layers in self.encode(sentences)
        ]

    def _layers(
        self, sentences: Sequence[Sequence[str]]
    ) -> Float[np.ndarray, "batch layers words both"]:
        ids = characters.encode_sentences(sentences, self.config.max_characters)
        # Few shapes are few compilations.
        rows = [power_of_two([len(sentences)]), power_of_two([ids.shape[1]])]
        padding = [(0, size - n) for size, n in zip(rows, ids.shape, strict=False)]
        padded = jnp.asarray(np.pad(ids, [*padding, (0, 0)]))
        return np.asarray(self._run(self.params, padded))[: len(sentences)]
