"""The shapes in annotations, checked in each call."""

import inspect
from collections.abc import Callable
from typing import Any

import jaxtyping


def check(*packages: str) -> None:
    """Lets the packages' functions and classes with shapes in their annotations be
    checked, once they are imported.

    Checking all functions, and nested ones each time they are made, takes a sixth of
    the suite's time.
    """
    jaxtyped = jaxtyping.jaxtyped

    def of_shapes(**options: Any) -> Callable[[Any], Any]:
        decorate = jaxtyped(**options)
        return lambda each: decorate(each) if _has_shapes(each) else each

    jaxtyping.jaxtyped = of_shapes  # the hook below decorates with it
    jaxtyping.install_import_hook(packages, "beartype.beartype")


def _has_shapes(each: Any) -> bool:
    annotations = inspect.get_annotations(each).values()
    is_nested = "<locals>" in each.__qualname__
    return not is_nested and any("jaxtyping" in repr(each) for each in annotations)
