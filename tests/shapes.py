"""The shapes in annotations, checked in each call."""

import inspect
from collections.abc import Callable
from typing import Any

import jaxtyping


def check(*packages: str) -> None:
    """Lets the packages' functions and classes with shapes in their annotations be
    checked, once they are imported.

    Checking all functions, and nested ones each time they are made, takes a tenth of
    the suite's time.
    """
    jaxtyped = jaxtyping.jaxtyped

    def of_shapes(**options: Any) -> Callable[[Any], Any]:
        decorate = jaxtyped(**options)
        return lambda each: decorate(each) if _has_shapes(each) else each

    jaxtyping.jaxtyped = of_shapes  # the hook below decorates with it
    jaxtyping.install_import_hook(packages, "beartype.beartype")


def _has_shapes(each: Any) -> bool:
    if "<locals>" in each.__qualname__:
        return False
    annotations = inspect.get_annotations(each).values()
    return any("jaxtyping" in repr(annotation) for annotation in annotations)
