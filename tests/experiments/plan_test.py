"""The plan's numbers against real arrays and against the compiler's reports."""

import functools
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from bert_jax import tasks
from bert_jax.config import configuration
from bert_jax.training import optimizer, sharding, step, transforms
from experiments.capacity import estimate, plan
from experiments.capacity.devices import DEVICES
from experiments.lib import programs

ROOT = Path(__file__).resolve().parents[2]

# Large enough for its arrays to outweigh what the compiler adds.
SMALL = """
extends = "tiny:recipe=plain"

def get_config(config):
    sizes = dict(hidden_size=128, intermediate_size=512, num_hidden_layers=2)
    rates = dict(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    config.model.update(num_attention_heads=4, **sizes, **rates)
    config.tokenizer.vocab_size, config.corpus.max_seq_length = 1024, 96
    config.train.update(batch_size=32, num_steps=100)
    config.evaluate.batch_size = 32
    return config
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "small.py"
    path.write_text(SMALL)
    return str(path)


def made(spec, *fields, devices=8):
    config = configuration.load_config(spec, [f"--config.{field}" for field in fields])
    task = tasks.create_task(config)
    task.resolve()
    mesh = sharding.make_mesh(task.config)
    if devices == 1:
        types = (jax.sharding.AxisType.Auto,) * 3
        mesh = jax.make_mesh((1, 1, 1), sharding.AXES, types, devices=jax.devices()[:1])
    (phase,) = task.phases()
    return task, mesh, phase


@functools.cache
def compiled(spec, *fields, devices=8):
    """The step of `made`. The tests below check one of them twice."""
    task, mesh, phase = made(spec, *fields, devices=devices)
    config = task.config
    weights = task.loss_weights
    gradient = transforms.accumulate(task.loss, weights, phase.micro_batches)

    def function(state, batch, seed, rate):
        rest = jax.random.key(seed), rate, gradient, optimizer.make_optimizer(config)
        return step.train_step(state, batch, *rest)

    state = estimate.state(config, mesh)
    batch = {
        name: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=sharding.batch_sharding(mesh)
        )
        for name, leaf in programs.columns(task, phase).items()
    }
    out = (sharding.shardings_of(state), sharding.replicated_sharding(mesh))
    jitted = jax.jit(function, donate_argnums=0, out_shardings=out)
    with sharding.activate_mesh(mesh):
        numbers = (jax.ShapeDtypeStruct((), x) for x in (jnp.int32, jnp.float32))
        return jitted.lower(state, batch, *numbers).compile()


MESH = ("mesh.data=1", "mesh.tensor=4", "mesh.fsdp=2")
SAVING = ("model.remat=full", "model.scan_layers=True", "train.micro_batches=4")
# Where dropout is not the point: the packed run has its masks.
NO_DROPOUT = (
    "model.hidden_dropout_prob=0.0",
    "model.attention_probs_dropout_prob=0.0",
)
LEAST = tuple(f"--config.{x}" for x in (*NO_DROPOUT, "model.num_hidden_layers=1"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "fields"),
    [
        (1, ("corpus.packing=True",)),
        (8, (*MESH, *SAVING, *NO_DROPOUT)),
    ],
    ids=["packing", "mesh_remat_and_micro_batches"],
)
def test_memory_is_what_the_compiler_reports(small, devices, fields):
    task, mesh, phase = made(small, *fields, devices=devices)
    analysis = compiled(small, *fields, devices=devices).memory_analysis()
    lines = {x.name: x.value for x in estimate.memory(task.config, mesh, 0)}
    resident = lines.pop("parameters") + lines.pop("optimizer")
    batch = sum(
        math.prod(leaf.shape) * 4
        for name, leaf in programs.columns(task, phase).items()
        # The compiler drops what a step does not read.
        if not ("cls_positions" in phase.shapes and name == "input_mask")
    )
    whole = resident + batch / (mesh.shape["data"] * mesh.shape["fsdp"])
    assert analysis.argument_size_in_bytes == pytest.approx(whole, rel=1e-3)
    ratio = analysis.temp_size_in_bytes / sum(lines.values())
    assert 0.8 < ratio < 1.25


@pytest.mark.slow
def test_flops_are_those_that_the_compiler_counts_nearly(small):
    packed = "corpus.packing=True"
    task, _, phase = made(small, packed, devices=1)
    counted = compiled(small, packed, devices=1).cost_analysis()["flops"]
    # The last layer queries, adds and feeds forward only at [CLS] and masked tokens.
    model, (rows, length) = task.config.model, phase.shapes["input_ids"]
    read = phase.shapes["masked_lm_positions"][-1]
    read += phase.shapes["cls_positions"][-1]
    each = 4 * model.hidden_size * (model.hidden_size + length + 4 * model.hidden_size)
    whole = task.flops(phase.shapes) - 3 * rows * (length - read) * each
    assert counted == pytest.approx(whole, rel=0.15)


@pytest.fixture
def eight(monkeypatch):
    """The local devices replace the requested ones."""
    monkeypatch.setattr(plan, "simulate", lambda count: None)

    def run(*arguments, status=0):
        assert plan.main(["--devices=8", "--device=v5e", *arguments]) == status

    return run


@pytest.mark.slow
def test_report(eight, capsys):
    parts = [f"--config.{x}" for x in ("phase2.micro_batches=8", *NO_DROPOUT)]
    eight("--config=configs/base.py", "--config.mesh.fsdp=8", *parts)
    out = capsys.readouterr().out
    found = re.findall(r"steps of 256 at length (\d+): (\S+) FLOPs a step", out)
    assert [length for length, _ in found] == ["128", "512"]
    # 69.9 G and 301 G a sequence.
    for (_, flops), known in zip(found, (69.9e9, 301e9), strict=True):
        assert float(flops) == pytest.approx(256 * known, rel=2e-3)
    assert "the recipe: " in out
    # (109,482,240 + heads) x 4 / 8, and twice that.
    assert re.search(r"parameters +0\.05\d GB", out)
    assert re.search(r"optimizer +0\.11\d GB", out)


@pytest.mark.slow
def test_config_that_does_not_fit(eight, capsys, small):
    big = ("--config.train.batch_size=786432", "--config.evaluate.batch_size=64")
    eight(f"--config={small}", *big, *LEAST, status=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: does not fit: ") and "model.remat=full" in line


def test_time_of_a_step(small):
    task, mesh, _ = made(small, "mesh.tensor=2", "model.dtype=bfloat16")
    lines = plan.seconds(task.config, DEVICES["h100"], mesh, 8e12, 0.5)
    assert lines[0].value == pytest.approx(8e12 / (8 * 989e12 * 0.5))


@pytest.mark.slow
def test_plan_for_devices_that_are_not_there(small):
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "experiments.capacity.plan", f"--config={small}"),
            *("--devices=512", "--device=h100", "--config.mesh.tensor=4"),
            *("--config.train.batch_size=1024", "--config.evaluate.batch_size=1024"),
            *("--config.model.attention=fused", "--config.model.epilogue=fused"),
            *LEAST,
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith("512 x h100 (data=128 fsdp=1 tensor=4): ")


def test_wrong_device_is_one_line(eight, capsys):
    eight("--config=configs/base.py", "--device=x", status=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --device=x: one")
