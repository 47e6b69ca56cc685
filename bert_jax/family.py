"""Model families: the parts of BERT, and the differences of another family.

Code that depends on the kind of model calls its family. `FAMILIES` has the names of
`config.model.architecture`. A custom config file may add one:

    class Mine(Family):
        name, title = "mine", "a Mine"
        trunk = LazyImport("mine.model:Trunk")

    FAMILIES["mine"] = Mine()

Each folder of bert_jax/families/ has one, as FAMILY. None of it is imported before a
config, a vocabulary or a folder of weights needs it.
"""

import operator
from collections.abc import Mapping
from typing import Any

from bert_jax import registry
from bert_jax.errors import UserError
from bert_jax.registry import FAMILIES


class LazyImport:
    """A part of a family: MODULE:NAME, imported on first use."""

    def __init__(self, path: str):
        self._path = path

    def __get__(self, family: Any, kind: Any = None) -> Any:
        return registry.import_object(self._path)


class Family:
    """BERT. A subclass overrides the differences."""

    name = "bert"  # value of `config.model.architecture`
    title = "a BERT"  # in messages

    # The model: MODULE(config, name=...), MODULE(config), MODULE(config, heads, ...).
    trunk = LazyImport("bert_jax.models.encoder:Bert")
    for_pretraining = LazyImport("bert_jax.models.heads:BertForPreTraining")
    with_heads = LazyImport("bert_jax.models.architectures:BertWithHeads")
    trunk_name = "bert"  # name of the trunk's parameters
    # Initializer of kernels and embeddings, a function of the standard deviation.
    initializer = LazyImport("flax.linen.initializers:truncated_normal")
    biases = True  # in linear layers and LayerNorms (heads' outputs always have them)
    bare_heads: tuple[str, ...] = ()  # heads without their own parameters
    others: tuple[str, ...] = ()  # models that a run may train next to its own
    has_nsp_head = True  # in pre-training
    attends = True  # its layers have attention, which a student can learn
    has_segments = True  # embeddings tell the two texts of a pair
    has_positions = True  # has embeddings of positions, unless a config replaces them

    # The `config.field.Field`s that only its configs have, or that differ in them.
    fields: Mapping[str, Any] = {}
    # Entries of registries: each field's names and the MODULE:NAME that they mean.
    registry_entries: Mapping[str, Mapping[str, str]] = {}

    # Its texts and tasks. If `vocabulary` is None, `describe_input` tells the cuts.
    vocabulary = LazyImport("bert_jax.tokenization.wordpiece:WORDPIECE")  # or None
    # Writes texts into rows.
    assemble = LazyImport("bert_jax.data.loader:assemble_rows")
    shares_rows = True  # a training row of fine-tuning may hold several texts
    pretraining: Any = None  # its own task, with the family's name
    # The extractor of `--mode=extract`, called like BERT's.
    extractor = LazyImport("bert_jax.extract:Extractor")

    # The `convert.weights.Source` of its runs, and a file that only its released
    # weights have, if not Hugging Face's.
    source: Any = LazyImport("bert_jax.convert.weights:Run")
    weights_file = ""
    layout = LazyImport("bert_jax.convert.layout:BERT")  # of Hugging Face's files
    model_type = "bert"  # in config.json, empty if `transformers` has none

    def check(self, config: Any) -> None:
        """Raises UserError if a `BertConfig` is not valid for this family."""

    def init_stddev(self, config: Any, names: tuple[str, ...]) -> float:
        """Returns the standard deviation of a `BertConfig`'s kernel or embeddings.
        `names` are the logical axes."""
        return float(config.initializer_range)

    def describe_input(self, config: Any) -> str:
        """Describes how a run cuts texts without a vocabulary, in a line of its log."""
        raise NotImplementedError

    def layer_flops(self, config: Any, length: int, index: int) -> int:
        """Returns the FLOPs of a layer on one row, forward."""
        hidden, inner = config.hidden_size, config.intermediate_size
        projections = 2 * length * (4 * hidden * hidden + 2 * hidden * inner)
        return projections + 2 * 2 * length * length * hidden

    def head_flops(self, config: Any, predictions: int, pairs: int) -> int:
        """Returns the FLOPs of the pre-training heads on one row, forward."""
        hidden, width = config.hidden_size, config.embedding_size
        masked_lm = 2 * predictions * width * (hidden + config.vocab_size)
        pairs = pairs if self.has_nsp_head else 0
        return masked_lm + 2 * pairs * (hidden * hidden + 2 * hidden)

    def task(self, name: str, task: Any) -> Any:
        """Returns this family's implementation of a task.

        Args:
          name: Value of `config.task.name`.
          task: Entry of `tasks.TASKS` with that name.

        Returns:
          A class, or a function of (config, tokenizer).

        Raises:
          UserError: It does not have this task.
        """
        return task

    def export_error(self, task: Any) -> str:
        """Returns why a run with this `config.task` cannot be exported, or ""."""
        return "" if self.model_type else "Hugging Face has no such model"

    def models(self, config: Any, params: Any) -> dict[str, tuple[Any, Any]]:
        """Returns the models that a run has trained, by name.

        Args:
          config: The `BertConfig` of the run.
          params: The run's parameters, layers not stacked.

        Returns:
          Each model's `BertConfig` and parameters. The run's own has an empty name.
          Others are exported to folders of their names (`others`).
        """
        return {"": (config, params)}

    def joined(self, params: Any, others: Mapping[str, Any]) -> Any:
        """Inverts `models`, for a run that trains others too.

        Args:
          params: Parameters of the model without a name.
          others: Those of the others, as far as they are known.
        """
        return params

    def fill_defaults(self, config: Any) -> None:
        """Sets the fields of a config made from weights alone, which name no task."""
        config.corpus.nsp = self.has_nsp_head
        if not self.has_segments:
            config.model.type_vocab_size = 1


def require_values(
    config: Any,
    title: str,
    *fixed: tuple[str, Any, str],
    group: str = "",
    hint: str = "",
) -> None:
    """Checks fields that have one value in a family.

    Args:
      config: A config, or a group of it.
      title: Title of the family.
      fixed: Name and value of each field, and the reason.
      group: Group of the fields, such as `model.`.
      hint: End of the error.

    Raises:
      UserError: A field has another value.
    """
    for field, only, why in fixed:
        value = operator.attrgetter(field)(config)
        value = tuple(value) if isinstance(value, list) else value
        if value != only:
            raise UserError(
                f"config.{group}{field}={value}: {title} {why}; set "
                f"--config.{group}{field}={only}{hint}"
            )


def family_of(config: Any) -> Family:
    """Returns the family of a run."""
    return family_by_name(config.task.name, config.model.architecture)


def family_by_name(task: str, architecture: str) -> Family:
    """Returns the family of a run, by its fields. A task with a family's name is its
    pre-training, whose config has the other fields of a BERT's.

    Raises:
      UserError: There is no family of that name.
    """
    name = task if task in FAMILIES else architecture
    return FAMILIES.lookup(name)


BERT = Family()
