"""Measures where the time goes."""

import contextlib
import time
from collections.abc import Iterator


class Stopwatch:
    """Total wall time by name: `with clock("evaluation"): ...`."""

    def __init__(self) -> None:
        self._totals: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            self._totals[name] = self._totals.get(name, 0.0) + elapsed

    def totals(self) -> dict[str, float]:
        """Seconds by name, in the order of first use."""
        return dict(self._totals)
