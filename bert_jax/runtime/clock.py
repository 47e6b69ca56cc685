"""What the time goes into."""

import contextlib
import time
from collections.abc import Iterator


class Stopwatch:
    """Wall time by name: `with clock("evaluation"): ...`, as often as it comes."""

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
        """How often anything began or ended, and what is under way now, if anything;
        may be asked from another thread."""
        names = self._names[-1:]
        return self._turns, names[0] if names else ""

    def totals(self) -> dict[str, float]:
        """Seconds by name, in the order in which the names first came."""
        return dict(self._totals)
