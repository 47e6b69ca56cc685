"""Several processes as one run: whole runs of two on this machine."""

import json

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.runtime import processes
from bert_jax.workdir import metrics
from experiments.sameness import equal_runs
from tests.runs import finish, finish_all, losses, start, start_together


@pytest.mark.slow
def test_signal_to_one_stops_both_and_the_run_ends_elsewhere_as_if_never_stopped(
    micro, plain, tmp_path
):
    workdir, record = tmp_path / "run", tmp_path / "record"
    record.mkdir()
    arguments = [f"--config={micro}", f"--workdir={workdir}"]
    mesh = ["--config.mesh.data=2"]
    program = ["-m", "experiments.sameness.recorded_run", str(record)]
    # The second process signals itself when it has the batch of step 13.
    stopped = start_together(2, *arguments, *mesh, program=[*program, "13", "--"])
    (first, _, err), (second, others_out, others_err) = finish_all(stopped)
    assert (first, second) == (143, 143), err + others_err
    saved = metrics.read_metrics(workdir, "train")[-1]["step"]
    assert 14 <= saved < 20 and (workdir / "checkpoints" / str(saved)).is_dir()
    assert f"saved step {saved}" in err
    assert others_out == ""
    assert ["SIGTERM caught" in line for line in others_err.splitlines()] == [True]
    # To the end on one device.
    _, err = finish(start(*arguments, program=[*program, "-1", "--"]))
    assert f"resuming at step {saved} of 20" in err
    np.testing.assert_allclose(losses(workdir), losses(plain), rtol=1e-4)
    steps, least, most, epochs = equal_runs.handed_out(record, 20, 16)
    assert (steps, least, most) == (20, 1, 1) and epochs >= 2


@pytest.mark.slow
def test_two_processes_answer_once(plain, tmp_path):
    """A row each way, sent to both and answered by one."""
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "the quick [MASK] fox"}\n' * 3)
    mesh = ("--config.mesh.data=2", "--config.mesh.fsdp=2")
    given = (f"--workdir={plain}", *mesh, "--mode=predict", f"--input={source}")
    (first, second) = finish_all(start_together(2, *given, devices=2))
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    assert second[1] == "" and "[Gloo]" not in first[1]
    assert [len(json.loads(row)["masks"]) for row in first[1].splitlines()] == [1] * 3


ASKS = """
import os, sys, time
from bert_jax.runtime import processes

processes.connect(trains=False)
index = int(os.environ["BERT_JAX_PROCESS_ID"])
path = sys.argv[1]
for _ in range(3):
    time.sleep(0.1 * index)
    with open(path, "a") as file:
        file.write("came ")
    processes.barrier()
    with open(path, "a") as file:
        file.write("went ")
    processes.barrier()
with processes.wait_for_first():
    with open(path, "a") as file:
        file.write(f"{processes.is_first()} ")
print([processes.all_true(value) for value in (index != 1, True, index == 0, True)])
try:
    processes.check_same("the seed", {"seed": index})
except Exception as error:
    print(error)
processes.disconnect()
print(processes.process_count())
"""


@pytest.mark.slow
def test_processes_agree_in_threes(tmp_path):
    program, path = ["-c", ASKS], tmp_path / "log"
    ended = finish_all(start_together(3, str(path), program=program))
    together = "came came came went went went " * 3
    assert path.read_text() == f"{together}True False False "
    for index, (status, out, err) in enumerate(ended):
        assert (status, err) == (0, "")
        answers, *differs, left = out.splitlines()
        assert answers == "[False, True, False, True]"
        words = f"the seed of process 0 and of {index} differ: seed"
        assert differs == ([words] if index else [])
        assert left == "1"


@pytest.mark.slow
def test_mistake_is_said_by_each(micro, tmp_path):
    arguments = [f"--config={micro}", f"--workdir={tmp_path / 'run'}"]
    started = start_together(2, *arguments, "--config.mesh.data=3")
    for status, out, err in finish_all(started):
        assert status == 2 and out == ""
        assert err.count("\n") == 1, err
        assert "config.mesh data=3" in err
    assert not (tmp_path / "run" / "config.json").exists()


VARIABLES = ("COORDINATOR", "PROCESSES", "PROCESS_ID")


@pytest.fixture
def launched(monkeypatch):
    """Returns what JAX is told where these variables are set."""

    def launched(variables):
        for name in VARIABLES:
            monkeypatch.delenv(f"BERT_JAX_{name}", raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return processes._arguments()

    return launched


@pytest.mark.parametrize("given", [("2",), ("two", "here:1", "0"), ("2", "here:1")])
def test_variables_that_do_not_fit(launched, given):
    names = ("BERT_JAX_PROCESSES", "BERT_JAX_COORDINATOR", "BERT_JAX_PROCESS_ID")
    with pytest.raises(UserError, match="several processes need"):
        launched(dict(zip(names, given, strict=False)))


SLURM = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "a[1-2]", "SLURM_PROCID": "1"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"JAX_PLATFORMS": "cpu"}, None),
        ({**SLURM, "SLURM_NTASKS": "4"}, {}),
        ({"SLURM_NTASKS": "4", "JAX_PLATFORMS": "cpu"}, None),  # a shell, no srun
        ({"OMPI_COMM_WORLD_SIZE": "2"}, {}),
    ],
)
def test_launcher_that_starts_processes(launched, variables, expected):
    assert launched(variables) == expected
