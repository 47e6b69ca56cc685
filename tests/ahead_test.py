"""Steps as the TPU's and the GPU's own compilers make them, without such devices."""

import re

import jax
import pytest
from ahead import (
    BASE,
    CUDNN,
    GPU,
    IN_FLOAT32,
    NO_DROPOUT,
    PACKED,
    SLICE,
    SMALL,
    SPLASH,
    TRITON,
    WHOLE_ROW,
    built,
    require,
    wide_products,
    without_a_cache,  # noqa: F401  (a fixture of every test)
)

from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig, pretraining_flops
from bert_jax.training.sharding import bytes_per_device
from experiments.capacity import compiled, devices, hlo
from experiments.capacity.devices import DEVICES
from experiments.capacity.kernels import kernels as kernels_of
from experiments.lib import programs


@pytest.mark.slow
@pytest.mark.parametrize("device", [SLICE, GPU])
def test_bfloat16_products_and_a_state_updated_in_place(device):
    program, done = built(device, *BASE, *PACKED)
    assert not list(wide_products(done))
    # Three for each of a layer's eight, the pooler, the masked LM's two and the next
    # sentence. A TPU's compiler may join some. A GPU's joins none, and gradients of
    # looked-up rows are sums by six more.
    products = len(hlo.products(hlo.Program(done.as_text())))
    assert products == 36 + 6 if device == GPU else 30 <= products <= 40
    assert len(aliases(done)) == len(jax.tree.leaves(program.donated))
    report = done.memory_analysis()
    # A TPU pads some arrays.
    state = bytes_per_device(program.donated)
    assert state <= report.alias_size_in_bytes <= 1.02 * state
    assert report.output_size_in_bytes - report.alias_size_in_bytes < 10_000
    assert exchanges(program.mesh, done) == (
        {(SUM, DATA)} if device == SLICE else set()
    )


def aliases(done) -> list[str]:
    """The results that take an argument's memory."""
    first, _, _ = done.as_text().partition("\n")
    return re.findall(r"\{\d*\}: \(\d+, \{\}, (?:may|must)-alias\)", first)


def exchanges(mesh, done) -> set[tuple[str, tuple[str, ...]]]:
    """Returns what devices do together, and along which axes."""
    text = hlo.Program(done.as_text())
    return {(c.kind, c.axes) for c in hlo.collectives(text, mesh.shape)}


SUM, GATHER, SCATTER = "all-reduce", "all-gather", "reduce-scatter"
DATA, FSDP, TENSOR = ("data",), ("fsdp",), ("tensor",)


@pytest.mark.slow
def test_devices_exchange_what_the_mesh_needs():
    allowed = {
        *((SUM, axes) for axes in ((), DATA, FSDP, TENSOR)),
        *((SUM, axes) for axes in (DATA + FSDP, FSDP + TENSOR)),
        *((GATHER, FSDP), (SCATTER, FSDP)),
    }
    fields = ("mesh.data=4", "mesh.fsdp=2", "mesh.tensor=2")
    program, done = built(SLICE, *BASE, *fields)
    found = exchanges(program.mesh, done)
    assert found <= allowed
    assert {kind for kind, _ in found} >= {SUM}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "spec", "mode"),
    [
        (SLICE, "configs/finetune/squad.py", "train"),
        (GPU, "configs/base.py", "predict"),
    ],
)
def test_steps_of_other_tasks_compile(device, spec, mode):
    tuned = () if spec == "configs/base.py" else ("task.max_seq_length=32",)
    if "squad" in spec:
        tuned = (*tuned, "task.max_query_length=8")
    _, done = built(device, *BASE, *tuned, spec=spec, mode=mode)
    assert not list(wide_products(done))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "fields", "kernels"),
    [
        (GPU, (*PACKED, "model.attention=fused"), (TRITON,)),
        # Rows over eight devices, heads over two.
        (
            SLICE,
            (
                *(*PACKED, "mesh.data=8", "mesh.tensor=2"),
                "model.attention=fused",
            ),
            WHOLE_ROW,
        ),
        (GPU, ("model.attention=cudnn", NO_DROPOUT), CUDNN),
    ],
)
def test_attention_compiles_by_each_name(device, fields, kernels):
    program, done = built(device, *BASE, *fields)
    text = done.as_text()
    known = (TRITON, SPLASH, *WHOLE_ROW, *CUDNN)
    assert {name for name in known if name in text} == {*kernels}
    if device == SLICE:
        assert all(kind == SUM for kind, _ in exchanges(program.mesh, done))
    else:  # 64 rows, 2 heads of 64, 32 tokens: two products and five
        own = [
            one for one in kernels_of(hlo.Program(text)) if one.what in (TRITON, *CUDNN)
        ]
        assert [one.flops for one in own] == [
            n * 2 * 64 * 2 * 32 * 32 * 64 for n in (2, 5)
        ]


def test_gpu_adds_no_embedding_s_gradient_in_any_order_and_sorts_ids_alone():
    program, done = built(GPU, *BASE, *PACKED)
    text = done.as_text()
    assert " scatter(" not in text
    sorts = [line.split(" sort(")[0] for line in text.splitlines() if " sort(" in line]
    tokens = program.rows * program.length
    assert sorts and all(f"[{tokens}]" in line for line in sorts)


def test_deterministic_adds_no_two_rows_in_any_order_on_a_gpu():
    """The scores of the classes that a loss looks up."""
    fields = (*SMALL, "train.deterministic=True")
    _, done = built(GPU, *fields, spec="configs/finetune/text.py")
    scatters = [line for line in done.as_text().splitlines() if " scatter(" in line]
    assert scatters and all("unique_indices=true" in line for line in scatters)


@pytest.mark.slow
def test_model_of_the_time_on_a_gpu():
    require(GPU)
    fields = [f"--config.{field}" for field in BASE]
    case = {"config": "configs/base.py", "fields": fields, "device": GPU}
    case |= {"mode": "evaluate", "phase": 0, "effort": "quick"}
    found = {**case, **compiled.measure(case)}  # here, not in a separate process
    assert all(map(IN_FLOAT32.search, found["float32"])) and found["products"]
    times = found["model"]["ms"]
    # No less than at the data sheet's peak. Training is three times as much.
    model = programs.load(case["config"], fields).model
    least = pretraining_flops(BertConfig.create(model, 1024), 32, 5) * 64 / 3
    assert times["matrix products"] > 1e3 * least / DEVICES[GPU].bfloat16
    whole = sum(times.values())
    parts = ", ".join(f"{name} {ms:.1f}" for name, ms in times.items())
    assert (
        f"{whole:.1f} ms ({parts}), {64e3 / whole:,.0f} rows/s; not"
    ) in compiled.lines({**found, "fits": True}, formulas=1e9)


def test_attention_that_devices_lack_is_refused():
    with pytest.raises(UserError, match="fused: has dropout on a TPU for rows of"):
        longer = "model.max_position_embeddings=2048"
        built(SLICE, *BASE, "model.attention=fused", longer)
    with pytest.raises(UserError, match="cudnn: needs a GPU, and this is a tpu"):
        built(SLICE, *BASE, NO_DROPOUT, "model.attention=cudnn")


@pytest.mark.slow
def test_program_that_does_not_fit_says_so():
    require(SLICE)
    large = ("model.scan_layers=True", "phase2.fraction=0", "train.batch_size=65536")
    fields = [f"--config.{field}" for field in large]
    case = {"config": "configs/large.py", "fields": fields, "device": SLICE}
    found = compiled.compile_case(
        {**case, "mode": "train", "phase": 0, "effort": "quick"}
    )
    assert found["exhausted"].startswith("Ran out of memory") and "bytes" not in found


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v5e", "describe one as v5e:4x4"),
        ("v5e:3x3", "not divisible"),
        ("v9:4x4", "v9:4x4"),
        ("a100", "describe one as v5e:4x4"),
    ],
)
def test_devices_that_are_not_known(name, message):
    require(SLICE)
    with pytest.raises(UserError, match=f"--device={name}: ") as raised:
        devices.described(name)
    assert message in str(raised.value)


def test_prediction_has_a_row_for_each_device():
    require(SLICE)
    fields = [f"--config.{f}" for f in (*BASE, "predict.batch_size=10")]
    config = programs.load("configs/base.py", fields)
    assert programs.trace(config, devices.described(SLICE), "predict").rows == 16
