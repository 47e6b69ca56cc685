"""The plan of a run on devices that are not there."""

import functools

import pytest

from experiments.capacity import devices, plan
from tests.ahead import (
    BASE,
    GPU,
    SLICE,
    require,
    without_a_cache,  # noqa: F401  (a fixture of every test)
)

FIELDS = [f"--config.{field}" for field in (*BASE, "train.num_steps=100")]


def run(capsys, device, *more):
    require(device)
    given = ["--config=configs/base.py", f"--device={device}", *FIELDS, *more]
    return plan.main(given), *capsys.readouterr()


def test_plan_for_several_gpus(capsys, monkeypatch):
    step = functools.cache(lambda: known(*program.pop()))
    known, program = devices.compile_for, []
    monkeypatch.setattr(
        *(devices, "compile_for", lambda *given: program.append(given) or step())
    )
    given = ("h200:4", "--config.mesh.tensor=2", "--efficiency=0.5")
    status, out, error = run(capsys, *given)
    assert (status, error) == (0, "")
    assert out.startswith("h200:4 (data=2 fsdp=1 tensor=2): a step of 64 rows of 32, ")
    assert "GB of a device's 141.0: fits (arguments 0.0" in out
    assert "all-reduce over tensor: " in out
    assert "float32: jit(train_step)/jvp(BertForPreTraining)/next_sentence" in out
    assert "the recipe: " in out and "at 50% of 989 TFLOP/s (NVIDIA H200 SXM" in out
    small = devices.CHIPS["h200"]._replace(memory=2e7)
    monkeypatch.setitem(devices.CHIPS, "h200", small)
    status, out, error = run(capsys, *given)
    assert status == 2 and "GB of a device's 0.0: does not fit (arg" in out
    assert error.startswith("error: does not fit; what saves memory: more train.micro")


def test_config_that_a_tpu_refuses(capsys):
    big = ("--config.train.batch_size=3145728", "--config.model.scan_layers=True")
    status, out, error = run(capsys, SLICE, *big)
    assert status == 2 and error.startswith("error: does not fit; what saves memory: ")
    assert "does not fit: Ran out of memory" in out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("--device=x", "--device=x: describe one as v5e:4x4"),
        ("--device=v9z:4x4", "--device=v9z:4x4: describe one as"),
        ("--device=h100:12", "--device=h100:12: a host has 8 GPUs; name a multiple"),
        ("--efficiency=2", "--efficiency=2: in (0, 1]"),
    ],
)
def test_wrong_option_is_one_line(given, message, capsys):
    status, _, error = run(capsys, GPU, given)
    assert status == 2 and error.startswith(f"error: {message}")
    assert error.count("\n") == 1
