"""The gates: results that no refactoring may change.

This file checks that
- the losses of three runs with dropout (pre-training, pairs of texts, questions with
  spans) are those of commit 743dd25e, on one device, on eight, and in two processes:
  experiments.sameness.equal_runs in small;
- a run that is killed and resumed is the undisturbed run, bit for bit: on one device,
  on eight, and in two processes;
- texts in several scripts are prepared into the records and batches of 743dd25e;
- a run and an export made by 743dd25e can still be used.

tests/gates/made.py says how the golden numbers and files were made. The other gates are
beside the code: golden outputs of `transformers` (tests/convert/weights_test.py),
Google's checkpoints (tests/convert/google_test.py), the official scorers
(tests/tasks/squad/scores_test.py, tests/tasks/ner/scores_test.py).
"""

import hashlib
import json
import shutil
import signal
import tarfile

import numpy as np
import pytest

from tests import runs
from tests.gates import made

NUMBERS = json.loads((made.ROOT / made.GOLDEN / "numbers.json").read_text())
# Devices and processes, and the mesh: every axis is split once.
PLACES = {
    "one": (1, 1, ()),
    "eight": (1, 8, runs.MESH),
    "two_processes": (2, 2, ("--config.mesh.data=2", "--config.mesh.tensor=2")),
}


@pytest.fixture(autouse=True)
def in_root(monkeypatch):
    monkeypatch.chdir(made.ROOT)  # the golden texts are named from there


def started(place, *arguments):
    """Starts the processes of a run."""
    number, devices, mesh = PLACES[place]
    if number == 1:
        return [runs.start(*arguments, *mesh, devices=devices)]
    return runs.start_together(number, *arguments, *mesh, devices=devices)


def finish(processes):
    """Waits for their success; returns the standard error of the first."""
    ended = runs.finish_all(processes)
    assert [status for status, _, _ in ended] == [0] * len(ended), ended
    return ended[0][2]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Returns the work directory of an undisturbed run, made once."""
    folder = tmp_path_factory.mktemp("gates")

    def make(name, place):
        workdir = folder / name / place
        if not workdir.exists():
            config = made.write_config(name, folder / name)
            finish(started(place, f"--config={config}", f"--workdir={workdir}"))
        return workdir

    return make


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("pretraining", "one"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("pretraining", "eight"),
                ("pretraining", "two_processes"),
                *((name, "one") for name in made.CONFIGS if name != "pretraining"),
            ]
        ),
    ],
)
def test_losses_are_those_of_743dd25e(run, name, place):
    workdir, golden = run(name, place), NUMBERS["runs"][name]
    losses = made.losses(workdir)
    assert len(losses) == made.STEPS
    np.testing.assert_allclose(losses[0], golden["losses"][0], rtol=1e-6)
    np.testing.assert_allclose(losses, golden["losses"], rtol=1e-4)
    # Scores are no gate where rounding may turn an answer: losses are.
    for score, value in golden["scores"].items():
        if score.endswith("loss"):
            assert made.scores(workdir)[score] == pytest.approx(value, rel=1e-4), score


@pytest.mark.parametrize(
    "place",
    [
        "one",
        pytest.param("eight", marks=pytest.mark.slow),
        pytest.param("two_processes", marks=pytest.mark.slow),
    ],
)
def test_killed_run_resumes_bit_for_bit(run, tmp_path, place):
    straight = run("pretraining", place)
    config = straight.parent / "gate.py"
    arguments = (f"--config={config}", f"--workdir={tmp_path / 'run'}")
    processes = started(place, *arguments)
    runs.wait_until(lambda: made.newest(tmp_path / "run") > 0, *processes)
    for process in processes:
        process.kill()
    assert {end[0] for end in runs.finish_all(processes)} == {-signal.SIGKILL}
    saved = made.newest(tmp_path / "run")
    assert 0 < saved < made.STEPS
    assert f"resuming at step {saved} of" in finish(started(place, *arguments))
    assert made.metrics(tmp_path / "run") == made.metrics(straight)
    assert made.predictions(tmp_path / "run") == made.predictions(straight)
    state, expected = made.saved_state(tmp_path / "run"), made.saved_state(straight)
    assert state.keys() == expected.keys()
    for name, array in expected.items():
        assert state[name].dtype == array.dtype
        np.testing.assert_array_equal(state[name], array, name)


@pytest.mark.parametrize("name", made.PREPARED)
def test_prepared_texts_are_those_of_743dd25e(tmp_path, name):
    """Vocabulary, records of both splits, and masked, packed batches."""
    assert made.prepared(name, tmp_path) == NUMBERS["prepared"][name]


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    """The folder with the run, data and export of 743dd25e."""
    folder = tmp_path_factory.mktemp("golden")
    with tarfile.open(made.ROOT / made.GOLDEN / "made.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # 3.11.4
        archive.extractall(folder)
    return folder


@pytest.mark.parametrize("part", ["run", "export"])
def test_model_of_743dd25e_computes_the_same(golden, part):
    outputs = made.outputs(golden / part)
    assert outputs.keys() == NUMBERS["outputs"].keys()
    for name, values in NUMBERS["outputs"].items():
        largest = np.abs(values).max()
        np.testing.assert_allclose(outputs[name], values, rtol=0, atol=1e-5 * largest)


def test_run_of_743dd25e_resumes(golden, tmp_path):
    """With its text prepared again, to the losses of an undisturbed run."""
    shutil.copytree(golden / "run", tmp_path / "run")
    (tmp_path / "run" / "data.json").unlink()  # the name of its prepared data
    stopped = len(made.losses(tmp_path / "run"))
    data = f"--config.corpus.data_dir={tmp_path / 'data'}"
    err = finish([runs.start(f"--workdir={tmp_path / 'run'}", data)])
    assert f"resuming at step {stopped} of {made.STEPS}" in err
    losses, golden_losses = (
        made.losses(tmp_path / "run"),
        NUMBERS["runs"]["pretraining"],
    )
    np.testing.assert_allclose(losses, golden_losses["losses"], rtol=1e-4)


def test_golden_files_have_not_changed():
    """As `sha256sum -c SHA256SUMS` says."""
    sums = made.ROOT / "tests" / "golden" / "SHA256SUMS"
    lines = [line.split("  ") for line in sums.read_text().splitlines()]
    assert len(lines) >= 10
    for digest, name in lines:
        content = (sums.parent / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest, name
