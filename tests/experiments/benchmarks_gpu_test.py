"""The kernels of a compiled program, and packed steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config.phases import phases_of
from bert_jax.data import masking
from experiments.capacity import hlo, kernels
from experiments.speed import our_step

# As XLA prints a program for a GPU: a matrix product with scratch memory, a loop that
# runs three times, a fusion with integers and one with a product.
HLO = """HloModule jit_step, is_scheduled=true

%fused_bits (param_0: u32[8,4]) -> u32[8,4] {
  %param_0 = u32[8,4]{1,0} parameter(0)
  %shift.1 = u32[8,4]{1,0} shift-right-logical(%param_0, %param_0)
  ROOT %xor.1 = u32[8,4]{1,0} xor(%param_0, %shift.1)
}

%fused_product (param_0.1: f32[16,32], param_1: f32[32,4]) -> f32[16,4] {
  %param_0.1 = f32[16,32]{1,0} parameter(0)
  %param_1 = f32[32,4]{1,0} parameter(1)
  ROOT %dot.1 = f32[16,4]{1,0} dot(%param_0.1, %param_1), lhs_contracting_dims={1}
}

%body (carry: (s32[], f32[16,32])) -> (s32[], f32[16,32]) {
  %carry = (s32[], f32[16,32]{1,0}) parameter(0)
  %gte.1 = f32[16,32]{1,0} get-tuple-element(%carry), index=1
  %copy.1 = f32[16,32]{1,0} copy(%gte.1), metadata={op_name="jit(step)/loop/copy"}
  ROOT %tuple.1 = (s32[], f32[16,32]{1,0}) tuple(%gte.1, %copy.1)
}

ENTRY %main (p0: bf16[16,8], p1: bf16[8,4], p2: f32[16,32]) -> f32[16,4] {
  %p0 = bf16[16,8]{1,0} parameter(0)
  %p1 = bf16[8,4]{1,0} parameter(1)
  %p2 = f32[16,32]{1,0} parameter(2)
  %bits = u32[8,4]{1,0} custom-call(), custom_call_target="draw"
  %gemm = (bf16[16,4]{1,0}, s8[4194304]{0}) custom-call(%p0, %p1), custom_call_target="__cublas$gemm", backend_config={"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}
  %fusion.1 = u32[8,4]{1,0} fusion(%bits), kind=kLoop, calls=%fused_bits
  %while.1 = (s32[], f32[16,32]{1,0}) while(%p2), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  ROOT %fusion.2 = f32[16,4]{1,0} fusion(%p2, %p2), kind=kCustom, calls=%fused_product
}
"""  # noqa: E501
PEAKS = kernels.Peaks({"float32": 100.0, "bfloat16": 200.0}, bytes=1000.0, integer=10.0)


def test_kernels_of_a_program_count_bytes_flops_and_integers():
    found = {kernel.name: kernel for kernel in kernels.kernels(hlo.Program(HLO))}
    assert list(found) == ["bits", "gemm", "fusion.1", "copy.1", "fusion.2"]
    gemm = found["gemm"]
    assert (gemm.what, gemm.dtype) == ("__cublas$gemm", "bfloat16")
    assert gemm.flops == 2 * 16 * 4 * 8
    assert gemm.bytes == 2 * (16 * 8 + 8 * 4 + 16 * 4)  # no scratch memory
    assert found["fusion.1"].integer == 2 * 32
    assert found["fusion.2"].flops == 2 * 16 * 4 * 32
    assert found["fusion.2"].dtype == "float32"
    assert (found["copy.1"].times, found["copy.1"].bytes) == (3, 2 * 4 * 16 * 32)
    assert found["copy.1"].where == "jit(step)/loop/copy"
    # Each takes the longest of its three times.
    assert gemm.seconds(PEAKS) == 1024 / 200
    assert found["fusion.1"].seconds(PEAKS) == 64 / 10
    assert found["copy.1"].seconds(PEAKS) == 3 * 4096 / 1000


def test_model_beside_a_profile():
    program = kernels.kernels(hlo.Program(HLO))
    profile = {"gemm": 2.0, "while.1": 9.0, "copy.1": 4.0, "nvjet_kernel": 1.0}
    found = kernels.beside(program, profile, PEAKS, steps=2, top=3)
    assert found["measured_ms"] == 1e3 * (2.0 + 4.0 + 1.0) / 2  # the loop's own is not
    assert found["kinds"]["not in the program"] == [0.0, 500.0]
    assert found["kinds"]["matrix products"][1] == 1000.0
    assert len(kernels.lines(found["kernels"])) == 3
    model = sum(1e3 * kernel.seconds(PEAKS) for kernel in program)
    assert found["model_ms"] == pytest.approx(model)


def test_kernels_of_a_compiled_program_have_its_products():
    def loss(x, w):
        return jnp.sum(jnp.tanh(x @ w))

    x, w = jnp.ones((64, 32)), jnp.ones((32, 16))
    text = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(x, w).compile().as_text()
    found = kernels.kernels(hlo.Program(text))
    assert sum(kernel.flops for kernel in found) == 3 * 2 * 64 * 32 * 16
    assert {kernel.dtype for kernel in found if kernel.flops} == {"float32"}


def test_packed_batch_has_the_shapes_of_training():
    config = our_step.sized_config("1/64", 32, 8)
    config.corpus.packing = True
    batch = our_step.random_batch(config)
    shapes = masking.batch_shapes(config, phases_of(config)[0])
    assert {name: rows.shape for name, rows in batch.items()} == shapes
    assert (batch["sequence_ids"] == np.repeat([1, 2], 16)).all()
