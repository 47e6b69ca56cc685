"""Steps as the TPU's and the GPU's own compilers make them, without such devices."""

import re

import jax
import pytest

from bert_jax.errors import UserError
from bert_jax.training.sharding import bytes_per_device
from experiments.capacity import hlo
from tests.ahead import (
    BASE,
    GPU,
    NO_DROPOUT,
    PACKED,
    SLICE,
    SMALL,
    SPLASH,
    TRITON,
    WHOLE_ROW,
    built,
    wide_products,
    without_a_cache,  # noqa: F401  (a fixture of every test)
)

SUM, GATHER, SCATTER = "all-reduce", "all-gather", "reduce-scatter"
DATA, FSDP, TENSOR = ("data",), ("fsdp",), ("tensor",)
GPU_STEP = (*BASE, *PACKED, "model.attention=fused")
MESH = ("mesh.data=4", "mesh.fsdp=2", "mesh.tensor=2")
# A part of a larger model's arrays, of which a TPU pads little.
LARGER = ("model.hidden_size=256", "model.num_attention_heads=4")
STEPS = {GPU: GPU_STEP, SLICE: (*GPU_STEP, *LARGER, *MESH)}


@pytest.mark.slow
@pytest.mark.parametrize("device", STEPS)
def test_bfloat16_products_and_a_state_updated_in_place(device):
    program, done = built(device, *STEPS[device])
    assert not list(wide_products(done))
    # Three for each of a layer's eight, the pooler, the masked LM's two and the next
    # sentence. A TPU's compiler may join some. On a GPU the kernel has two of the
    # eight, one product makes query, keys and values, and gradients of looked-up rows
    # are sums by six more.
    products = len(hlo.find_products(done.as_text()))
    assert products == 24 + 6 if device == GPU else 30 <= products <= 40
    assert len(aliases(done)) == len(jax.tree.leaves(program.donated))
    report = done.memory_analysis()
    # A TPU pads some arrays.
    state = bytes_per_device(program.donated)
    assert state <= report.alias_size_in_bytes <= 1.02 * state
    assert report.output_size_in_bytes - report.alias_size_in_bytes < 10_000


def aliases(done) -> list[str]:
    """The results that take an argument's memory."""
    first, _, _ = done.as_text().partition("\n")
    return re.findall(r"\{\d*\}: \(\d+, \{\}, (?:may|must)-alias\)", first)


def exchanges(mesh, done) -> set[tuple[str, tuple[str, ...]]]:
    """Returns what devices do together, and along which axes."""
    return {*hlo.count_collectives(done.as_text(), mesh.shape)}


@pytest.mark.slow
def test_devices_exchange_what_the_mesh_needs():
    """With rows and heads of the kernel over devices."""
    allowed = {
        *((SUM, axes) for axes in ((), DATA, FSDP, TENSOR)),
        *((SUM, axes) for axes in (DATA + FSDP, FSDP + TENSOR)),
        *((GATHER, FSDP), (SCATTER, FSDP)),
    }
    program, done = built(SLICE, *STEPS[SLICE])
    found = exchanges(program.mesh, done)
    assert found <= allowed
    assert {kind for kind, _ in found} >= {SUM}
    assert kernels_in(done) == {*WHOLE_ROW}


def kernels_in(done) -> set[str]:
    """Returns which of the attention's kernels a program has."""
    known = (TRITON, SPLASH, *WHOLE_ROW)
    return {name for name in known if name in done.as_text()}


@pytest.mark.slow
def test_fused_step_of_a_gpu_adds_no_gradient_in_any_order_and_sorts_ids_alone():
    program, done = built(GPU, *GPU_STEP)
    text = done.as_text()
    assert kernels_in(done) == {TRITON}
    assert text.count(f'custom_call_target="{TRITON}"') == 2  # forward and backward
    assert " scatter(" not in text
    sorts = [line.split(" sort(")[0] for line in text.splitlines() if " sort(" in line]
    tokens = program.rows * program.length
    assert sorts and all(f"[{tokens}]" in line for line in sorts)


@pytest.mark.slow
def test_deterministic_step_adds_no_two_rows_in_any_order():
    """The scores of the classes that a loss looks up. Without dropout the compiler
    takes half as long."""
    fields = (*SMALL, "train.deterministic=True", "train.batch_size=64")
    more = ("task.max_seq_length=32", NO_DROPOUT, "model.hidden_dropout_prob=0.0")
    more += ("model.attention=fused",)
    spec = "configs/finetune/text.py"
    _, done = built(GPU, *fields, *more, spec=spec)
    assert kernels_in(done) == {TRITON}
    scatters = [line for line in done.as_text().splitlines() if " scatter(" in line]
    assert scatters and all("unique_indices=true" in line for line in scatters)


def test_attention_that_devices_lack_is_refused():
    with pytest.raises(UserError, match="fused: has dropout on a TPU for rows of"):
        longer = "model.max_position_embeddings=2048"
        built(SLICE, *BASE, "model.attention=fused", longer)
    with pytest.raises(UserError, match="epilogue=fused: needs a GPU, and this is a t"):
        built(SLICE, *BASE, "model.epilogue=fused")
