"""Model families: the values of BERT, and those of another family.

Code that depends on the kind of model reads its family. `FAMILIES` has the names of
`config.model.architecture`. A custom config file may add one:

    FAMILIES["mine"] = Family("mine", "a Mine", with_heads="mine.model:MineWithHeads")

Each folder of bert_jax/families/ has one, as FAMILY. None of it is imported before a
config, a vocabulary or a folder of weights needs it.
"""

import dataclasses
import operator
from collections.abc import Callable, Mapping
from typing import Any

from bert_jax import registry
from bert_jax.config import fields
from bert_jax.config.field import require_value
from bert_jax.errors import UserError
from bert_jax.models.config import FUSED_HEAD_DIMS, BertConfig
from bert_jax.registry import ATTENTIONS, FAMILIES, LAYERS, POSITIONS

# Name of a model that a run may train next to its own (`Family.replaced_tokens`).
GENERATOR = "generator"
_NAMES = {"model.attention", "model.layer", "model.positions"}  # may be a config file's


@dataclasses.dataclass(frozen=True, eq=False)
class Family:
    """The values of a family. The defaults are BERT's.

    A value MODULE:NAME represents the object that it names, imported on first use.
    """

    name: str = "bert"  # value of `config.model.architecture`
    title: str = "a BERT"  # in messages
    model_type: str = "bert"  # in config.json, empty if `transformers` has none

    # The models: MODULE(config, heads, ...) and MODULE(config, trunk, has_nsp_head).
    with_heads: Any = "bert_jax.models.architectures:BertWithHeads"
    for_pretraining: Any = "bert_jax.models.heads:BertForPreTraining"
    has_nsp_head: bool = True  # in pre-training
    has_segments: bool = True  # embeddings tell the two texts of a pair
    # Values of its `BertConfig`s. Those that are fields of configs are their defaults.
    model: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Fields of `config.model` with one value: name, value and reason. `check` raises
    # UserError if a `BertConfig` is not valid for another reason.
    fixed: tuple[tuple[str, Any, str], ...] = ()
    check: Callable[[BertConfig], None] = lambda config: None
    # The `convert.layout.Layout` of Hugging Face's files.
    layout: Any = "bert_jax.convert.layout:BERT"

    # The `config.field.Field`s that only its configs have, or that differ in them.
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Entries of registries: each field's names and the MODULE:NAME that they mean.
    registry_entries: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    # The kind of its vocabularies.
    vocabulary: Any = "bert_jax.tokenization.wordpiece:WORDPIECE"
    # Writes texts into rows.
    assemble: Any = "bert_jax.data.loader:assemble_rows"
    # (`config.task.name`, its entry of TASKS) -> this family's: a class, or a function
    # of (config, tokenizer). Raises UserError if it does not have the task.
    task: Any = lambda name, task: task
    # The model of itself and a generator (`families.electra.replaced`).
    replaced_tokens: Any = None

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        is_path = isinstance(value, str) and registry.IMPORT_PATH.fullmatch(value)
        return registry.import_object(value) if is_path else value

    def replace(self, **values: Any) -> "Family":
        """Returns a family with other values. It imports none of them, which
        `dataclasses.replace` would."""
        return Family(**{**vars(self), **values})

    def pretraining_model(self, config: BertConfig) -> Any:
        """Returns the model with its pre-training heads."""
        trunk, has_head = self.with_heads.trunk, self.has_nsp_head
        return self.for_pretraining(config, trunk=trunk, has_nsp_head=has_head)

    def require(self, config: BertConfig) -> None:
        """Raises UserError if a config is not valid for this family."""
        require_values(config, self.title, *self.fixed, group="model.")
        self.check(config)

    def models(self, config: Any, params: Any) -> dict[str, tuple[Any, Any]]:
        """Returns the models that a run has trained, by name: their `BertConfig`s and
        parameters, layers not stacked. The run's own has an empty name. A `GENERATOR`
        is exported to a folder of this name."""
        if GENERATOR not in params:
            return {"": (config, params)}
        return dict(self.replaced_tokens.split(config, params))

    def fill_defaults(self, config: Any) -> None:
        """Sets the fields of a config made from weights alone, which name no task."""
        config.corpus.nsp = self.has_nsp_head
        if not self.has_segments:
            config.model.type_vocab_size = 1
        config.model.update({k: v for k, v in self.model.items() if k in config.model})


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


def bert_config(model: Any, vocab_size: int) -> BertConfig:
    """Checks `config.model`, and finds the objects that it names.

    Args:
      model: `config.model`. A `vocab_size` of 0 means the tokenizer's.
      vocab_size: Number of tokens in the tokenizer's vocabulary.

    Raises:
      UserError: A value is invalid.
    """
    family = FAMILIES.lookup(model.get("architecture", "bert"))
    names = [field.name for field in dataclasses.fields(BertConfig)]
    values = {**family.model, **{name: model[name] for name in names if name in model}}
    values["vocab_size"] = values["vocab_size"] or vocab_size
    own = fields.family_model_fields(family).items()
    others = {name: model.get(name, default) for name, default in own}
    known = fields.FIELDS | dict(family.fields)
    for name, value in (values | others).items():
        if f"model.{name}" in known.keys() - _NAMES:
            require_value(known, f"model.{name}", value)
    if isinstance(path := values.get("initializer"), str):
        values["initializer"] = registry.import_object(path)
    layer = _find(LAYERS, values.get("layer", "post_norm"))
    if values.get("epilogue") == "fused":  # `_check_sizes` allows no other layer
        layer = registry.import_object("bert_jax.models.fused:FusedEncoderLayer")
    config = BertConfig(
        **values,
        family_fields=tuple(others.items()),
        own_fields=tuple((n, x) for n, x in model.items() if f"model.{n}" not in known),
        layer_class=layer,
        position_encoding=_find(POSITIONS, values.get("positions", "learnt")),
        attend=_find(ATTENTIONS, values["attention"]),
    )
    _check_sizes(config)
    family.require(config)
    return config


class _Missing:
    """The object of a name that no registry has here. To use it is the error."""

    def __init__(self, there: registry.Registry, name: str):
        self._there, self._name = there, name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._there.lookup(self._name), attribute)

    def __call__(self, *arguments: Any) -> Any:
        return self._there.lookup(self._name)(*arguments)


def _find(there: registry.Registry, name: str) -> Any:
    """Looks up a part of a model. Weights can be read and compared without the file
    that adds the part that they name."""
    is_here = there.error_message(name) is None
    return there.lookup(name) if is_here else _Missing(there, name)


def _check_sizes(config: BertConfig) -> None:
    if not config.vocab_size:
        raise UserError("config.model.vocab_size=0: must be at least 1")
    if config.hidden_size % config.num_attention_heads:
        raise UserError(
            f"config.model.num_attention_heads={config.num_attention_heads} does not "
            f"divide config.model.hidden_size={config.hidden_size}"
        )
    if config.attention == "fused" and config.head_dim not in FUSED_HEAD_DIMS:
        raise UserError(
            "config.model.attention=fused: heads (config.model.hidden_size / "
            f"num_attention_heads) of {config.head_dim}, but it computes those of "
            f"{', '.join(map(str, FUSED_HEAD_DIMS))} only; choose einsum"
        )
    if config.epilogue == "fused" and config.layer != "post_norm":
        raise UserError(
            "config.model.epilogue=fused: not for layers of the kind "
            f"{config.layer}; choose xla"
        )


def family_of(config: Any) -> Family:
    """Returns the family of a run.

    Raises:
      UserError: There is no family of that name.
    """
    found: Family = FAMILIES.lookup(config.model.architecture)
    return found


BERT = Family()
