"""Sources of an ELMo (released or exported files, or a run) and its export."""

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from bert_jax.config import fields
from bert_jax.convert import weights
from bert_jax.convert.layout import LABELLED_HEADS
from bert_jax.convert.merge import Report, take_parameters
from bert_jax.convert.weights import Source
from bert_jax.errors import UserError
from bert_jax.families.elmo import released
from bert_jax.families.elmo.config import ElmoConfig
from bert_jax.runtime import hub
from bert_jax.runtime.storage import Path
from bert_jax.workdir import folder as workdir

Fields = dict[str, Any]


class Loaded(NamedTuple):
    """A model that was read.

    Attributes:
      params: `elmo`, and if fine-tuned `mix`, `reader` and its head.
      labels: Labels of its head.
      facts: What the run learned besides weights.
    """

    params: dict[str, Any]
    labels: tuple[str, ...] = ()
    facts: Mapping[str, Any] = {}


class ElmoSource(Source):
    """Released or exported files, or a run."""

    def shape(self) -> Fields:
        """Returns the sizes, as fields of `config.model` and of `config.task`, by
        `GROUP.NAME`. For a run also how it cuts and writes words."""
        if not is_run(self.folder):
            return released.read_options(self._local()).fields()
        return fields.decided_values(workdir.recorded_config(self.folder, code=False))

    def labels(self) -> tuple[str, ...]:
        return tuple((self.recorded() or {"task": {}})["task"].get("labels", ()))

    def recorded(self) -> Fields | None:
        return workdir.read_config(self.folder) if is_run(self.folder) else None

    def load(self, name: str = "") -> Loaded:
        """Reads the parameters, as float32 NumPy arrays.

        Args:
          name: Name as in `Source.read`.

        Raises:
          UserError: A file is missing or damaged, there is no checkpoint, or h5py,
            which weights.hdf5 needs, is not installed.
        """
        if not is_run(self.folder):
            return Loaded({"elmo": released.read(self._local())[1]})
        config, saved, at = weights.read_checkpoint(self.folder, name, self.step)
        # Without the softmax of pre-training, which is as large as the vocabulary.
        params = jax.device_get({k: v for k, v in saved.items() if k != "softmax"})
        labels = tuple(config.task.get("labels", ()))
        return Loaded(params, labels, workdir.read_facts(self.folder, at))

    def start(
        self, task: Any, abstract: Any, name: str = ""
    ) -> tuple[dict[str, Any], Report]:
        """Reads an ELMo below other layers or alone, as the first parameters."""
        weights = self.load(name)
        params, left_over = dict(weights.params), []
        others = tuple(task.config.task.get("labels", ())) != weights.labels
        for part in sorted(weights.params.keys() & abstract.keys() - {"elmo"}):
            ours, saved = (
                jax.tree.map(lambda leaf: leaf.shape, tree[part])
                for tree in (abstract, params)
            )
            if ours != saved or (others and part in LABELLED_HEADS):
                params.pop(part)
                left_over.append(f"{part} (of another task or system)")
        source = hub.resolve_revision(task.config.init_from)
        return take_parameters(
            abstract, params, source, "ELMo", left_over, weights.facts
        )

    def export(self, target: Path, name: str = "") -> None:
        """Writes a pre-trained run's options.json and weights.hdf5, as bilm does, and
        its vocabulary. The arguments are those of every source.

        Raises:
          UserError: It is a run of another task, or without a checkpoint, the folder
            has files, or h5py is missing.
        """
        if self._task() != "elmo":
            raise self.refusal()
        folder = pathlib.Path(target).absolute()
        released.check_target(folder)
        config = workdir.recorded_config(self.folder)
        params = self.load(name).params["elmo"]
        words = (self.folder / "vocab.txt").read_bytes()
        sizes, rows = ElmoConfig.of_run(config), config.train.batch_size
        released.export(folder, sizes, params, words, batch_size=rows)

    def refusal(self) -> UserError:
        """Returns an error: an ELMo where a BERT or GPT is required."""
        if (name := self._task()) and name != "elmo":
            return UserError(
                f"{self.folder}: {name} with an ELMo; Hugging Face has no such model, "
                "so it is neither exported nor loaded; ask it with --mode=predict"
            )
        return UserError(
            f"{self.folder}: ELMo's weights; bert_jax.families.elmo.load opens them, "
            "and configs of configs/finetune/ with model=elmo start from them"
        )

    def _task(self) -> str:
        """Returns the name of the run's task, or an empty string if it is not a run."""
        return str((self.recorded() or {"task": {}})["task"].get("name", ""))

    def _local(self) -> pathlib.Path:
        return pathlib.Path(str(self.folder))  # HDF5 reads no buckets


def is_run(folder: Path) -> bool:
    """Whether it is a run. Next to options.json a config.json is another program's."""
    return workdir.has_config(folder) and not (folder / released.OPTIONS).exists()
