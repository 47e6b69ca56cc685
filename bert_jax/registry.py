"""What config fields name: values by name, imported when one is asked for."""

import importlib
from collections import UserDict
from typing import Any


class Registry(UserDict[str, Any]):
    """A dict to which a config file may add; a value MODULE:NAME stands for what it
    names, so that a run imports only what its config asks for."""

    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        if isinstance(found, str):
            module, _, value = found.partition(":")
            found = getattr(importlib.import_module(module), value)
        return found
