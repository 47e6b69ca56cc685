"""Logs that survive a kill."""

import json
import math
import time

import numpy as np
import pytest
from tensorboardX.proto import event_pb2

from bert_jax.workdir import metrics
from bert_jax.workdir.metrics import MetricWriter
from tests.runs import no_room


def read(workdir):
    text = (workdir / "metrics.jsonl").read_text(encoding="utf-8")
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def events(path):
    """The events of a TFRecord file: length, its check sum, payload, its check sum."""
    data, found = path.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        found.append(event_pb2.Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return found


def write_steps(workdir, steps, resume_step=None):
    writer = MetricWriter(workdir, resume_step=resume_step, active=True)
    for step in steps:
        writer.write(step, "train", {"loss": step / 3})
    writer.close()


def test_metrics_line_has_step_split_time_and_full_precision(tmp_path):
    writer = MetricWriter(tmp_path, resume_step=None, active=True)
    before = time.time()
    writer.write(3, "train", {"loss": 0.1 + 0.2, "grad_norm": np.float32(0.1), "n": 7})
    (line,) = read(tmp_path)  # there before `close`
    assert list(line) == ["step", "split", "time", "loss", "grad_norm", "n"]
    assert (line["step"], line["split"]) == (3, "train")
    assert before <= line["time"] <= time.time()
    assert line["loss"] == 0.1 + 0.2 != 0.3
    assert np.float32(line["grad_norm"]) == np.float32(0.1)
    assert isinstance(line["n"], int)
    writer.close()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_numbers_are_valid_json(tmp_path, value):
    writer = MetricWriter(tmp_path, resume_step=None, active=True)
    writer.write(1, "train", {"loss": np.float32(value)})
    writer.close()
    (line,) = read(tmp_path)
    assert isinstance(line["loss"], str)
    np.testing.assert_equal(float(line["loss"]), value)


def test_event_file_has_the_same_scalars(tmp_path):
    writer = MetricWriter(tmp_path, resume_step=None, active=True)
    writer.write(5, "dev", {"accuracy": 0.5, "perplexity": 2.0})
    (path,) = tmp_path.glob("events.out.tfevents.*")
    scalars = {
        (event.step, value.tag): value.simple_value
        for event in events(path)  # there before `close`
        for value in event.summary.value
    }
    assert scalars == {(5, "dev/accuracy"): 0.5, (5, "dev/perplexity"): 2.0}
    writer.close()


@pytest.mark.parametrize(("resume_step", "purged"), [(None, 0), (40, 41)])
def test_event_file_purges_what_comes_after_the_checkpoint(
    tmp_path, resume_step, purged
):
    write_steps(tmp_path, [], resume_step)
    (path,) = tmp_path.glob("events.out.tfevents.*")
    starts = [
        event.step
        for event in events(path)
        if event.session_log.status == event_pb2.SessionLog.START
    ]
    assert starts == [purged]


def test_resuming_drops_lines_after_the_checkpoint(tmp_path):
    write_steps(tmp_path, [10, 20, 30, 40])
    write_steps(tmp_path, [30], resume_step=20)
    assert [line["step"] for line in read(tmp_path)] == [10, 20, 30]
    assert read(tmp_path)[-1]["loss"] == 10.0
    assert sorted(path.suffix for path in tmp_path.glob("metrics*")) == [".jsonl"]


@pytest.mark.parametrize("active", [True, False])
def test_metrics_are_known_to_every_process(tmp_path, active):
    write_steps(tmp_path, [10, 20, 30])
    writer = MetricWriter(tmp_path, resume_step=20, active=active)
    assert writer.has(20, "train")
    assert not writer.has(20, "dev")
    assert not writer.has(30, "train")
    writer.write(30, "dev", {"loss": 1.0})
    assert writer.has(30, "dev")
    writer.close()


def test_half_a_last_line_is_dropped(tmp_path):
    write_steps(tmp_path, [10, 20, 30])
    path = tmp_path / "metrics.jsonl"
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size - 20)
    write_steps(tmp_path, [30], resume_step=30)
    assert [line["step"] for line in read(tmp_path)] == [10, 20, 30]


def test_full_disk_is_an_error_and_leaves_no_half_line_behind(tmp_path):
    write_steps(tmp_path, [10])
    writer = MetricWriter(tmp_path, resume_step=10, active=True)
    with no_room(200), pytest.raises(OSError, match="too large"):
        for step in range(20, 100, 10):
            writer.write(step, "train", {"loss": 1.0})
    writer.close()
    write_steps(tmp_path, [20], resume_step=10)
    assert [line["step"] for line in read(tmp_path)] == [10, 20]


def test_read_gives_the_numbers_of_a_split(tmp_path):
    assert metrics.read_metrics(tmp_path, "dev") == []
    writer = MetricWriter(tmp_path, resume_step=None, active=True)
    writer.write(1, "train", {"loss": 2.0})
    writer.write(1, "dev", {"loss": math.inf, "count": 3})
    writer.write(2, "dev", {"loss": 0.1})
    writer.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "split": "dev", "lo')
    lines = metrics.read_metrics(tmp_path, "dev")
    assert all(line.pop("time") > 0 for line in lines)
    assert lines == [
        {"step": 1, "loss": math.inf, "count": 3},
        {"step": 2, "loss": 0.1},
    ]
