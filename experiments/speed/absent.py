"""Stands in for libraries that are not installed, and that a measurement never calls.

The run's step imports, by way of its task and its folders, libraries of data and
checkpoints. On a machine where only JAX was brought, what is imported from them is an
empty class. Whatever is installed is used.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from typing import Any

LIBRARIES = frozenset(
    (
        *("array_record", "grain", "importlib_resources", "jaxtyping", "orbax"),
        *("safetensors", "scipy", "sentencex", "tensorboardX", "tensorflow_datasets"),
        *("tokenizers", "tqdm"),
    )
)


class _Empty(type):
    """Any attribute, index, call or union of such a class is one again."""

    def __call__(cls, *arguments: object, **named: object) -> Any:
        return cls

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Empty(name, (), {})

    def __getitem__(cls, key: object) -> Any:
        return cls


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Empty(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if name.partition(".")[0] not in LIBRARIES:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing to run."""


def stand_in() -> None:
    """From now on an import of a library that is not installed gives an empty one."""
    sys.meta_path.append(Finder())  # last: the real ones come first
