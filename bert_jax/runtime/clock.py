"""Measures where the time goes."""

import contextlib
import time
from collections.abc import Iterator


class Stopwatch:
    """Total wall time by name: `with clock("evaluation"): ...`."""

    def __init__(self) -> None:
        self._totals: dict[str, float] = {}
        self._names: list[str] = []
        self._turns = 0

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        self._names.append(name)
        self._turns += 1
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            self._names.pop()
            self._turns += 1
            self._totals[name] = self._totals.get(name, 0.0) + elapsed

    def state(self) -> tuple[int, str]:
        """The number of starts and ends so far, and the name of what is running, or "";
        any thread may call it."""
        names = self._names[-1:]
        return self._turns, names[0] if names else ""

    def totals(self) -> dict[str, float]:
        """Seconds by name, in the order of first use."""
        return dict(self._totals)
