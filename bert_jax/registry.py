"""Registries of the values that config fields name, imported on first use.

A custom config file can add to each registry (docs/extending.md). A family adds
further entries (`Family.registry_entries`).
"""

import importlib
import importlib.util
import pkgutil
import re
from collections import UserDict
from typing import Any

from bert_jax.errors import UserError

# MODULE:NAME, which represents an object.
IMPORT_PATH = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*):\w+")
ADDED: set[str] = set()  # names that a config file has added


class Registry(UserDict[str, Any]):
    """A dict to which a config file may add. A value MODULE:NAME represents the object
    that it names, so that a run imports only the objects that its config selects.

    Attributes:
      field: Field of the config, whose values are the names.
    """

    def __init__(self, field: str, entries: dict[str, Any]):
        self.field, self.data = field, entries

    def __setitem__(self, name: str, value: Any) -> None:
        self.data[name] = value
        ADDED.add(name)

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        return import_object(value) if isinstance(value, str) else value

    def error_message(self, name: str) -> str | None:
        """Returns the error for a name, None if it is here or comes with a family."""
        if name in self or name in (brought := self._family_entries()):
            return None
        names = ", ".join([*self, *brought])
        choice = f"choose one of {names}" if names else "is not here"
        return f"{choice}; one of your own needs the --config file that adds it"

    def lookup(self, name: str) -> Any:
        """Returns the object registered under a name.

        Raises:
          UserError: Neither this registry nor a family has it.
        """
        if fault := self.error_message(name):
            raise UserError(f"config.{self.field}={name!r}: {fault}")
        return (
            self[name] if name in self else import_object(self._family_entries()[name])
        )

    def _family_entries(self) -> dict[str, str]:
        """Returns the entries that come with families, which it imports."""
        return {
            name: path
            for family in FAMILIES.values()
            for name, path in family.registry_entries.get(self.field, {}).items()
        }


def import_object(path: str) -> Any:
    """Imports the object MODULE:NAME, or the MODULE alone."""
    module, _, name = path.partition(":")
    imported = importlib.import_module(module)
    return getattr(imported, name) if name else imported


def _folders() -> dict[str, str]:
    """Returns the families of bert_jax/families/, not imported. ELMo is no encoder of
    tokens, and has a program of its own."""
    spec = importlib.util.find_spec("bert_jax.families")
    where = spec.submodule_search_locations if spec else None
    names = {module.name for module in pkgutil.iter_modules(where or [])} - {"elmo"}
    return {name: f"bert_jax.families.{name}:FAMILY" for name in sorted(names)}


FAMILIES = Registry(
    "model.architecture", {"bert": "bert_jax.family:BERT", **_folders()}
)
LAYERS = Registry("model.layer", {"post_norm": "bert_jax.models.encoder:EncoderLayer"})
POSITIONS = Registry("model.positions", {"learnt": "bert_jax.models.positions:LEARNED"})
ATTENTIONS = Registry(
    "model.attention",
    {
        "einsum": "bert_jax.models.attention:einsum_attention",
        "fused": "bert_jax.models.kernels.choose:fused_attention",
    },
)
MASKINGS = Registry("masking.name", {"bert": "bert_jax.data.masking:bert_masking"})
OBJECTIVES = Registry(
    "task.objective",
    {
        "mlm": "bert_jax.tasks.objectives:MASKED_LM",
        "ltr": "bert_jax.tasks.objectives:LEFT_TO_RIGHT",
    },
)
OPTIMIZERS = Registry(
    "optimizer.name",
    {
        "bert_adam": "bert_jax.training.optimizer:bert_adam",
        "adamw": "bert_jax.training.optimizer:adamw",
        "lamb": "bert_jax.training.optimizer:lamb",
        "muon": "bert_jax.training.optimizer:muon",
    },
)
TRANSFORMS = Registry("train.transforms", {})
WATCHERS = Registry("train.watchers", {"norms": "bert_jax.training.watch:NORMS"})
SCHEDULES = Registry(
    "optimizer.schedule",
    {"polynomial": "bert_jax.training.optimizer:polynomial_schedule"},
)
