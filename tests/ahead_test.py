"""Steps as the TPU's and the GPU's own compilers make them, without such devices."""

import os
import re
from collections.abc import Iterator

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

from bert_jax.errors import UserError
from bert_jax.models import products
from bert_jax.models.config import BertConfig, pretraining_flops
from bert_jax.training import memory, sharding
from experiments import compile_report, compiled, described, hlo, programs
from experiments.benchmarks.kernels import kernels as kernels_of
from experiments.devices import DEVICES

SLICE, GPU = "v5e:4x4", "h100"
SMALL = (
    *("model.hidden_size=128", "model.num_attention_heads=2"),
    *("model.intermediate_size=512", "model.num_hidden_layers=1"),
    *("model.dtype=bfloat16", "tokenizer.vocab_size=1024"),
)
BASE = (
    *("train.batch_size=64", "evaluate.batch_size=64", "phase2.fraction=0.0"),
    *("corpus.max_seq_length=32", "masking.max_predictions_per_seq=5"),
    *("predict.batch_size=64", *SMALL),
)
# Two outputs, or a label's: their sums in float32 are of bfloat16 where it would round.
IN_FLOAT32 = re.compile(r"next_sentence|question_answering|_classification")


@pytest.fixture(autouse=True)
def without_a_cache():
    """A program without a device cannot be read back."""
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # JAX asks for the setting once
    yield
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()


def require(device: str) -> None:
    """Skips the test where the device's compiler is not installed."""
    try:
        os.environ.update(described.environment(device))
    except UserError as error:
        pytest.skip(str(error))


def built(device, *fields, spec="configs/base.py", mode="train"):
    """A program, and what the compiler made of it."""
    require(device)
    config = programs.load(spec, [f"--config.{field}" for field in fields])
    program = programs.trace(config, described.devices(device), mode)
    return program, compiles(program.traced, device)


def compiles(traced, device):
    kind = described.kind(device)
    options = {**compiled.EFFORTS["quick"], **described.COMPILER_OPTIONS[kind]}
    return traced.lower(lowering_platforms=(kind,)).compile(options)


def wide_products(done) -> Iterator[str]:
    """The products in float32 that are not meant to be."""
    for one in hlo.products(hlo.Program(done.as_text())):
        if one.dtype != "bfloat16" and not IN_FLOAT32.search(one.where):
            yield one.where


@pytest.mark.parametrize("device", [SLICE, GPU])
def test_bfloat16_products_and_a_state_updated_in_place(device):
    program, done = built(device, *BASE)
    assert not list(wide_products(done))
    # Three for each of a layer's eight, the pooler's and the masked LM's two; the
    # compiler may join some.
    assert 30 <= len(hlo.products(hlo.Program(done.as_text()))) <= 40
    assert len(aliases(done)) == len(jax.tree.leaves(program.donated))
    report = done.memory_analysis()
    # A TPU pads some arrays.
    state = memory.bytes_per_device(program.donated)
    assert state <= report.alias_size_in_bytes <= 1.02 * state
    assert report.output_size_in_bytes - report.alias_size_in_bytes < 10_000


def aliases(done) -> list[str]:
    """The results that take an argument's memory."""
    first, _, _ = done.as_text().partition("\n")
    return re.findall(r"\{\d*\}: \(\d+, \{\}, (?:may|must)-alias\)", first)


def test_a_product_in_float32_is_found(monkeypatch):
    def einsum(spec, a, b, result):
        wide = (x.astype(jnp.float32) for x in (a, b))
        return jnp.einsum(spec, *wide).astype(result)

    jax.clear_caches()
    monkeypatch.setattr(products, "_einsum", einsum)
    _, done = built(GPU, *BASE)
    jax.clear_caches()
    assert any("/attention/" in where for where in wide_products(done))


def test_a_state_that_is_not_donated_is_found(monkeypatch):
    jit = jax.jit
    monkeypatch.setattr(
        jax, "jit", lambda *args, donate_argnums=None, **more: jit(*args, **more)
    )
    program, done = built(SLICE, *BASE)
    assert not aliases(done)
    assert done.memory_analysis().alias_size_in_bytes < memory.bytes_per_device(
        program.donated
    )


def exchanges(program, done) -> set[tuple[str, tuple[str, ...]]]:
    """What devices do together, and along which axes."""
    text = hlo.Program(done.as_text())
    return {(c.kind, c.axes) for c in hlo.collectives(text, program.mesh.shape)}


SUM, GATHER, SCATTER = "all-reduce", "all-gather", "reduce-scatter"
DATA, FSDP, TENSOR = ("data",), ("fsdp",), ("tensor",)


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ((), {(SUM, DATA)}),
        (("mesh.optimizer=zero1",), {(SUM, DATA), (GATHER, DATA), (SCATTER, DATA)}),
        (("mesh.data=1", "mesh.fsdp=16"), {(k, FSDP) for k in (SUM, GATHER, SCATTER)}),
        (("mesh.data=8", "mesh.tensor=2"), {(SUM, DATA), (SUM, TENSOR), (SUM, ())}),
        (
            ("mesh.data=4", "mesh.fsdp=2", "mesh.tensor=2"),
            {
                *((SUM, axes) for axes in ((), DATA, FSDP, TENSOR)),
                *((SUM, axes) for axes in (DATA + FSDP, FSDP + TENSOR)),
                *((GATHER, FSDP), (SCATTER, FSDP)),
            },
        ),
    ],
    ids=["data", "zero1", "fsdp", "tensor", "all"],
)
def test_devices_exchange_what_the_mesh_needs(fields, allowed):
    found = exchanges(*built(SLICE, *BASE, *fields))
    assert found <= allowed
    assert {kind for kind, _ in found} >= {SUM}


def test_a_needless_gather_is_found(monkeypatch):
    """As if rows were no longer kept where they are."""
    constraint = nn.with_logical_constraint

    def gathered(x, names, *more):
        if names == ("batch", "length", "hidden"):
            names = (None, "length", "hidden")
        return constraint(x, names, *more)

    monkeypatch.setattr(nn, "with_logical_constraint", gathered)
    assert (GATHER, DATA) in exchanges(*built(SLICE, *BASE))


def test_a_loop_over_the_layers_keeps_the_program_small():
    def instructions(layers):
        large = (*BASE, f"model.num_hidden_layers={layers}", "model.scan_layers=True")
        _, done = built(SLICE, *large)
        return sum(map(len, hlo.Program(done.as_text()).computations.values()))

    assert instructions(24) < 1.1 * instructions(2)


@pytest.mark.parametrize(
    ("device", "spec", "mode"),
    [
        (SLICE, "configs/base.py", "evaluate"),
        (SLICE, "configs/base.py", "predict"),
        (SLICE, "configs/finetune/squad.py", "train"),
        (SLICE, "configs/finetune/ner.py", "train"),
        (SLICE, "configs/finetune/text.py", "evaluate"),
        (GPU, "configs/base.py", "evaluate"),
        (GPU, "configs/finetune/squad.py", "predict"),
        (GPU, "configs/finetune/glue.py:task=stsb", "train"),
        (GPU, "configs/finetune/swag.py", "train"),
    ],
)
def test_other_steps_compile(device, spec, mode):
    tuned = () if spec == "configs/base.py" else ("task.max_seq_length=32",)
    if "squad" in spec:
        tuned = (*tuned, "task.max_query_length=8")
    _, done = built(device, *BASE, *tuned, spec=spec, mode=mode)
    assert not list(wide_products(done))


NO_DROPOUT = "model.attention_probs_dropout_prob=0.0"
TRITON, SPLASH = "__gpu$xla.gpu.triton", "splash_mha_fwd_segmented"
CUDNN = ("__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward")


@pytest.mark.parametrize(
    ("device", "fields", "kernels"),
    [
        (SLICE, ("corpus.packing=True",), ()),
        (GPU, ("corpus.packing=True", "model.attention=fused"), (TRITON,)),
        # Rows over eight devices, heads over two.
        (
            SLICE,
            (
                *("corpus.packing=True", "mesh.data=8", "mesh.tensor=2"),
                *("model.attention=fused", NO_DROPOUT),
            ),
            (SPLASH, "splash_mha_dkv_segmented"),
        ),
        (GPU, ("model.attention=cudnn", NO_DROPOUT), CUDNN),
    ],
)
def test_each_attention_compiles(device, fields, kernels):
    program, done = built(device, *BASE, *fields)
    text = done.as_text()
    found = {name for name in (TRITON, SPLASH, *CUDNN) if name in text}
    assert found == {name for name in kernels if name in (TRITON, SPLASH, *CUDNN)}
    assert all(name in text for name in kernels)
    if device == SLICE:
        assert all(kind == SUM for kind, _ in exchanges(program, done))
    else:  # 64 rows, 2 heads of 64, 32 tokens: two products and five
        own = [
            one for one in kernels_of(hlo.Program(text)) if one.what in (TRITON, *CUDNN)
        ]
        assert [one.flops for one in own] == [
            n * 2 * 64 * 2 * 32 * 32 * 64 for n in (2, 5)
        ]


def test_a_model_of_the_time_on_a_gpu():
    require(GPU)
    fields = [f"--config.{field}" for field in BASE]
    case = {"config": "configs/base.py", "fields": fields, "device": GPU}
    case |= {"mode": "train", "phase": 0, "effort": "quick"}
    found = compiled.compile_case(case)
    times = found["model"]["ms"]
    # No less than at the data sheet's peak.
    model = programs.load(case["config"], fields).model
    least = pretraining_flops(BertConfig.create(model, 1024), 32, 5) * 64
    assert times["matrix products"] > 1e3 * least / DEVICES[GPU].bfloat16
    whole = sum(times.values())
    assert (
        f"{whole:.1f} ms (everything else {times['everything else']:.1f}, matrix "
        f"products {times['matrix products']:.1f}), {64e3 / whole:,.0f} rows/s; not"
    ) in compile_report.lines(found, 1e9)


def test_an_attention_that_devices_lack_is_refused():
    with pytest.raises(UserError, match="fused: has no dropout on a TPU, and config"):
        built(SLICE, *BASE, "model.attention=fused")
    with pytest.raises(UserError, match="cudnn: needs a GPU, and this is a tpu"):
        built(SLICE, *BASE, NO_DROPOUT, "model.attention=cudnn")


def test_a_program_that_does_not_fit_says_so():
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
        described.devices(name)
    assert message in str(raised.value)


def test_a_mesh_of_described_devices_is_checked():
    require(SLICE)
    config = programs.load("configs/base.py", ["--config.mesh.tensor=3"])
    with pytest.raises(UserError, match="does not fit 16 device"):
        sharding.make_mesh(config, devices=described.devices(SLICE))


def test_prediction_has_a_row_for_each_device():
    require(SLICE)
    fields = [f"--config.{f}" for f in (*BASE, "predict.batch_size=10")]
    config = programs.load("configs/base.py", fields)
    assert programs.trace(config, described.devices(SLICE), "predict").rows == 16
