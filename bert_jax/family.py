"""Model families: what BERT is made of, and what another family does otherwise.

What depends on the kind of model asks its family. `FAMILIES` names them as
`config.model.architecture` does; a config file of your own may add one:

    class Mine(Family):
        name, title = "mine", "a Mine"
        trunk = Part("mine.model:Trunk")

    FAMILIES["mine"] = Mine()

families/ has those that come with this code. Nothing of one is imported before a
config, a vocabulary or a folder of weights asks for it.
"""

from typing import Any

from bert_jax import registry


class Part:
    """A part of a family: MODULE:NAME, or a MODULE, imported when it is asked for."""

    def __init__(self, place: str):
        self._place = place

    def __get__(self, family: Any, kind: Any = None) -> Any:
        return registry.named(self._place)


class Family:
    """BERT; a subclass overrides what differs.

    Attributes:
      name: of `config.model.architecture`.
      title: as messages say it.
      trunk: MODULE(config, name=...), called as `Bert` is.
      for_pretraining: MODULE(config), called as `BertForPreTraining` is.
      with_heads: MODULE(config, heads, ...), called as `BertWithHeads` is.
      initializer: of kernels and embeddings, a function of the standard deviation.
      vocabulary: a `tokenization.wordpiece.Kind`.
      assemble: writes texts into rows, as `loader.assemble` does.
      layout: a module like `convert.layout`: its parameters' names elsewhere.
      huggingface: a module like `convert.bert`: its folders in Hugging Face's form.
      model_type: in Hugging Face's config.json.
      bare_heads: heads without parameters of their own.
      attends: its layers have attention, which `predict.attentions` shows.
      has_segments: it tells the two texts of a pair by embeddings.
      trunk_name: of the trunk's parameters.
      extractor: what `--mode=extract` asks, called as `Extractor` is; None: nothing.
    """

    name = "bert"
    title = "a BERT"
    trunk = Part("bert_jax.models.encoder:Bert")
    for_pretraining = Part("bert_jax.models.heads:BertForPreTraining")
    with_heads = Part("bert_jax.models.architectures:BertWithHeads")
    initializer = Part("flax.linen.initializers:truncated_normal")
    vocabulary = Part("bert_jax.tokenization.wordpiece:WORDPIECE")
    assemble = Part("bert_jax.data.loader:assemble")
    layout = Part("bert_jax.convert.layout")
    huggingface = Part("bert_jax.convert.bert")
    model_type = "bert"
    bare_heads: tuple[str, ...] = ()
    attends = True
    has_segments = True
    trunk_name = "bert"
    extractor: Any = Part("bert_jax.tasks.extractor:Extractor")

    def check(self, config: Any) -> None:
        """Raises UserError if a `BertConfig` is none of this family's."""

    def head_flops(self, config: Any, predictions: int, pairs: int) -> int:
        """FLOPs of the heads of pre-training on one row, forward."""
        hidden = config.hidden_size
        masked_lm = 2 * predictions * (hidden * hidden + hidden * config.vocab_size)
        return masked_lm + 2 * pairs * (hidden * hidden + 2 * hidden)

    def task(self, name: str, task: Any) -> Any:
        """How this family does a task.

        Args:
          name: of `config.task.name`.
          task: what `tasks.TASKS` has by that name.

        Returns:
          A class, or a function of (config, tokenizer).

        Raises:
          UserError: it does no such task.
        """
        del name
        return task

    def unexported(self, task: Any) -> str:
        """What of a run's `config.task` no model of Hugging Face has, and which model;
        empty if there is nothing."""
        del task
        return ""

    def complete(self, config: Any) -> None:
        """Sets the fields of a config made from weights alone, which name no task."""


def of(config: Any) -> Family:
    """The family of a run. A task with a family's name is its pre-training, whose
    config has the other fields of a BERT's."""
    name = config.task.name
    found: Family = FAMILIES[name if name in FAMILIES else config.model.architecture]
    return found


FAMILIES = registry.Registry(
    {"bert": Family(), "gpt": "families.gpt:GPT", "elmo": "families.elmo:ELMO"}
)
