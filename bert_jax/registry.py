"""What config fields name: values by name, imported when one is asked for."""

import importlib
from collections import UserDict
from typing import Any

from bert_jax.errors import UserError

ADDED: dict[str, str] = {}  # a name that was added -> the config file that did, or ""
config_file = ""  # the one that is being loaded


class Registry(UserDict[str, Any]):
    """A dict to which a config file may add; a value MODULE:NAME stands for what it
    names, so that a run imports only what its config asks for."""

    def __init__(self, ours: dict[str, Any]):
        self.data = ours

    def __setitem__(self, name: str, value: Any) -> None:
        self.data[name], ADDED[name] = value, config_file

    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        return named(found) if isinstance(found, str) else found

    def of(self, field: str, name: str) -> Any:
        """What a config field names; raises UserError if that is not here."""
        if name not in self:
            raise UserError(f"config.{field}={name}: choose one of {', '.join(self)}")
        return self[name]


def named(place: str) -> Any:
    """What MODULE:NAME names, or the MODULE alone."""
    module, _, name = place.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found
