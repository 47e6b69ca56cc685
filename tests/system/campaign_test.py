"""A slice of the campaign, and that it would see what is wrong."""

import json
import random
import signal

import pytest

from bert_jax.tasks import TASKS
from configs import common
from tests.system import campaign, cases_fields, inputs, judge, start_signals
from tests.system import malformed_files as files
from tests.system import malformed_values as values
from tests.system.cases import Case, Draw
from tests.system.inputs import Result
from tests.micro_data import KINDS
from tests.system.micro_runs import write_inputs

SEED, SECONDS = 11, 600.0
# Each task's first run takes seconds: all have their turn in longer campaigns.
SOME = ("pretraining", "squad2")
# The faults: chaos_test.py.
COUNTS = {"inputs": 12, "faults": 0, "signals": 1}


def test_a_slice_of_the_campaign():
    results = campaign.run(SECONDS, SEED, tasks=SOME, most=COUNTS)
    report = campaign.report(results, SEED)
    assert report.endswith("\n\n0 failed"), report
    counts = {part: len({r.name for r in found}) for part, found in results.items()}
    assert counts == COUNTS
    ended = {result.ended for result in results["inputs"]}
    assert ended == {"refused", "accepted"}


def test_every_task_has_data():
    found = {cases_fields.config_of(kind).task.name for kind in KINDS}
    assert found == set(TASKS) - {"elmo"}  # tests/families/elmo_run_test.py has its own


class Inputs:
    """Stages of inputs alone, which need no run."""

    def copy(self, name, stage, target):
        write_inputs(name, target)
        if stage == "model":
            (target / "in" / "model").mkdir()
            (target / "in" / "model" / "config.json").write_text("{}")
        if stage == "run":
            (target / "run" / "checkpoints" / "2").mkdir(parents=True)
            config = cases_fields.config_of(name).to_dict()
            (target / "run" / "config.json").write_text(json.dumps(config))


def draw(folder, turn, tasks=("text",)):
    rng, order = random.Random(turn), random.Random(0)
    return Draw(Inputs(), tasks, folder, rng, turn, order)


def test_every_field_is_tried(tmp_path):
    tasks = tuple(KINDS)
    fields = {
        name
        for task in tasks
        for name, _ in values.every_field(cases_fields.config_of(task))
    }
    assert {name for name, _ in values.every_field(common.get_config())} <= fields
    turns = range(len(fields))
    drawn = {cases_fields.drawn(draw(tmp_path, n, tasks), tasks)[1] for n in turns}
    assert drawn == fields
    for name in fields:
        task = next(t for t in tasks if name in dict(fields_of(t)))
        its = values.of(name, dict(fields_of(task))[name])
        assert any(value.refused for value in its), name


def fields_of(task):
    return values.every_field(cases_fields.config_of(task))


@pytest.mark.parametrize("number", range(40))
def test_a_number_is_always_the_same_input(tmp_path, number):
    def made(name):
        place = tmp_path / name / "case"
        case = inputs.make(number, 3, ("text", "swag"), Inputs(), place)
        return case.argv, case.description, judge.picture(place)

    assert made("one") == made("two")


def test_spoiled_files_differ(tmp_path):
    document = json.dumps({"a": [1, {"b": "x"}], "c": 2.5}).encode()
    for name, spoil in files.of_content(tmp_path / "x.json").items():
        seen = {spoil(document, random.Random(seed)) for seed in range(9)}
        assert seen - {document} or name in ("CR", "CRLF", "no last line end"), name


@pytest.fixture
def case(tmp_path):
    folder = tmp_path / "case"
    (folder / "in").mkdir(parents=True)
    (folder / "out").mkdir()
    (folder / "in" / "rows.jsonl").write_text('{"text": "a"}\n')
    flags = ["--workdir=run", "--input=in/rows.jsonl"]
    made = Case("rule", folder, "text", "run", "predict", flags)
    made.set_flag("output", "out/answers.jsonl")
    return made


ANSWER = '{"text": "a", "score": 0.5}\n'
GOOD = ("out/answers.jsonl", ANSWER)
LINE = "error: in/rows.jsonl:1: no text\n"


@pytest.mark.parametrize(
    ("status", "err", "written", "words"),
    [
        (0, "", GOOD, ""),
        (2, LINE, None, ""),
        (2, f"5 rows\n{LINE}", None, ""),
        (1, "", None, "status 1: without a word"),
        (-6, "Fatal Python error: Aborted\n", None, "crash"),
        (
            2,
            "Traceback (most recent call last):\nKeyError: 3\n",
            None,
            "crash: KeyError",
        ),
        (2, "", None, "0 lines"),
        (2, LINE * 2, None, "2 lines"),
        (2, f"{LINE}and more\n", None, "not the last"),
        (0, LINE, GOOD, "status 0 and error"),
        (0, "", None, "FileNotFoundError"),
        (0, "", ("out/answers.jsonl", ""), "1 rows asked, 0 answered"),
        (0, "", ("out/answers.jsonl", ANSWER.replace("0.5", "NaN")), "score=nan"),
        (0, "", ("out/answers.jsonl", ANSWER[:9]), "JSONDecodeError"),
        (2, LINE, GOOD, "made: 'out/answers.jsonl'"),
        (2, LINE, ("out/.answers.jsonl.12", ""), "left behind"),
        (2, LINE, ("in/rows.jsonl", ""), "changed: 'in/rows.jsonl'"),
    ],
)
def test_what_is_wrong_is_seen(case, status, err, written, words):
    before = judge.picture(case.folder)
    if written:
        (case.folder / written[0]).write_text(written[1])
    found = judge.faults(case, before, status, "", err)
    assert words in "; ".join(found) if words else found == []


def test_what_is_wrong_must_be_refused(case):
    before = judge.picture(case.folder)
    (case.folder / "out" / "answers.jsonl").write_text(ANSWER)
    case.refused = True
    assert judge.faults(case, before, 0, "", "") == ["accepted, though wrong"]
    case.refused, case.accepted = False, True
    (case.folder / "out" / "answers.jsonl").unlink()
    (found,) = judge.faults(case, before, 2, "", LINE)
    assert found.startswith("refused, though right")


def test_a_link_that_is_replaced_is_seen(case):
    place = case.folder / "out" / "answers.jsonl"
    place.symlink_to("real")
    before = judge.picture(case.folder)
    place.unlink()
    place.write_text(ANSWER)
    assert judge.faults(case, before, 0, "", "") == [
        "out/answers.jsonl: a link was replaced"
    ]


@pytest.mark.parametrize(
    ("mode", "caught", "status", "err", "fault"),
    [
        ("train", True, 143, "", ""),
        ("train", False, -15, "", ""),
        ("train", True, -15, "", "status -15"),
        ("train", True, 0, "", "status 0"),
        ("train", False, 0, "", "status 0"),
        ("describe", True, 0, "", ""),
        ("predict", True, 1, "Traceback", "status 1"),
        ("predict", True, 143, "Traceback", "Traceback on standard error"),
        ("predict", True, -11, "", "status -11"),
    ],
)
def test_signals_that_are_not_heard_are_seen(mode, caught, status, err, fault):
    number = signal.SIGTERM
    assert start_signals.fault(mode, number, caught, status, err) == fault


def test_a_failure_is_reported_with_its_command():
    results = {
        "inputs": [
            Result("i7", "rows", "an empty row", "failed", ("hangs",)),
            Result("i8", "rows", "no row", "refused", ()),
        ],
        "faults": [],
        "signals": [],
    }
    report = campaign.report(results, 5)
    assert "python -m tests.system.campaign --only=i7 --seed=5" in report
    assert "--only=i8" not in report and report.endswith("1 failed")
