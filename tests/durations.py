"""How long the tests take: which are slow, and that long files come first.

`./launch.sh test --measure` writes durations.json anew; what it skips stays there.
"""

import collections
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("durations.json")
SLOW = 0.5  # seconds, those of its fixtures included

# By file and function, of the functions with a slow test: seconds of all its tests.
Durations = dict[str, dict[str, float]]


def read() -> Durations:
    return json.loads(FILE.read_text())


def split(nodeid: str) -> tuple[str, str]:
    """A test's file and its function, without parameters."""
    file, _, test = nodeid.partition("::")
    return file, test.partition("[")[0]


def sort(items: list[pytest.Item]) -> None:
    """The longest file first: no worker is left with it while the others have ended."""
    seconds = {file: sum(tests.values()) for file, tests in read().items()}
    items.sort(key=lambda item: -seconds.get(split(item.nodeid)[0], 0))


def slow(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    known = read()
    for item in items:
        file, test = split(item.nodeid)
        if test in known.get(file, {}):
            yield item


def seconds(items: Iterable[pytest.Item]) -> float:
    """Those of the functions of these tests, all their cases included."""
    known = read()
    functions = {split(item.nodeid) for item in items}
    return sum(known.get(file, {}).get(test, 0.0) for file, test in functions)


class Recorder:
    """A plugin that writes FILE in the end."""

    def __init__(self) -> None:
        self._seconds: collections.Counter[str] = collections.Counter()
        self._ran: set[tuple[str, str]] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.when == "call" and not report.skipped:
            self._ran.add(split(report.nodeid))

    def pytest_sessionfinish(self) -> None:
        total: collections.Counter[tuple[str, str]] = collections.Counter()
        for nodeid, seconds in self._seconds.items():
            total[split(nodeid)] += seconds
        found = {(f, t): s for f, tests in read().items() for t, s in tests.items()}
        slow = {split(nodeid) for nodeid, s in self._seconds.items() if s >= SLOW}
        for test in self._ran:
            found.pop(test, None)
        for test in self._ran & slow:
            found[test] = round(total[test], 1)
        files: Durations = {}
        for (file, test), seconds in sorted(found.items()):
            files.setdefault(file, {})[test] = seconds
        FILE.write_text(json.dumps(files, indent=1) + "\n")
