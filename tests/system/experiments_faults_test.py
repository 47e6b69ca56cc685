"""A slice of the campaign on the commands of experiments/, and what it would see."""

import sys

import pytest

from tests.system import experiments_faults as faults

SEED = 3


def test_a_slice():
    found = faults.run([0, 1, 6, 7, 8], SEED)
    assert {kind for _, kind, _, _ in found} == {"damaged", "arguments", "killed"}
    report = faults.report(found, SEED)
    assert report.endswith("\n\n0 failed"), report


def refuses(*lines):
    def work():
        for line in lines:
            print(line, file=sys.stderr)
        return 2

    return work


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (lambda: 0, ""),
        (refuses("run 1 of 2", "error: a: wrong"), ""),
        (lambda: 3, "status 3"),
        (lambda: {}["train"], "KeyError: 'train'"),
        (lambda: sys.exit(2), "SystemExit(2)"),
        (refuses(), "0 lines of error"),
        (refuses("error: a", "error: b"), "2 lines of error"),
        (refuses("error: a", "more"), "1 lines of error, the last line ['more']"),
        (refuses("error: " + "a" * 2000), "a line of 2007 characters"),
    ],
)
def test_what_is_wrong_is_seen(work, words):
    fault = faults.ended(work)[3]
    assert words in fault if words else fault == ""


def test_a_failure_is_reported_with_its_command():
    found = [(4, "damaged", "compare, x.json", "KeyError"), (8, "killed", "glue", "")]
    report = faults.report(found, 9)
    assert "--only=4 --seed=9" in report and "--only=8" not in report
    assert report.endswith("\n\n1 failed")
