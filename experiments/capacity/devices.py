"""Descriptions of accelerators that need not be present, and their compilers.

libtpu compiles for TPU slices and JAX's CUDA plug-in for GPUs, on any machine. Nothing
can be computed. `prepare_compiler` must be called before JAX is used.
"""

import importlib.util
import os
import re
from typing import Any, NamedTuple

import jax
from jax.experimental import topologies

from bert_jax.errors import UserError


class Chip(NamedTuple):
    """One chip, from its maker's data sheet. FLOP/s are dense, and the best there are.

    Attributes:
      bfloat16: FLOP/s of matrix products.
      float32: The same for float32 as JAX multiplies it there by default: in bfloat16
        passes on a TPU, in TF32 on a GPU.
      memory: Memory in bytes.
      source: Where the numbers are published.
    """

    bfloat16: float
    float32: float
    memory: float
    source: str


GIB = 2**30
CHIPS = {
    "v5e": Chip(197e12, 197e12, 16 * GIB, "cloud.google.com/tpu/docs/v5e"),
    "v5p": Chip(459e12, 459e12, 95 * GIB, "cloud.google.com/tpu/docs/v5p"),
    "v6e": Chip(918e12, 918e12, 32 * GIB, "cloud.google.com/tpu/docs/v6e"),
    "h100": Chip(989e12, 494e12, 80e9, "NVIDIA H100 SXM data sheet"),
    "h200": Chip(989e12, 494e12, 141e9, "NVIDIA H200 SXM data sheet"),
}

# One card each (NVIDIA's data sheets, and CUDA's occupancy tables for capability 9.0),
# in the form of XLA's GpuTargetConfigProto.
_HOPPER = """
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32
  shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth:.0f} l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: {memory:.0f} shared_memory_per_block_optin: 232448
  cuda_compute_capability {{ major: 9 feature_extension: ACCELERATED_FEATURES }}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
runtime_version {{ major: 13 minor: 0 patch: 0 }}
device_description_str: "{name}"
"""
# Each GPU's name, and the bytes/s of its memory.
_GPUS = {"h100": ("NVIDIA H100 80GB HBM3", 3350e9), "h200": ("NVIDIA H200", 4800e9)}
_GPUS_OF_A_HOST = 8
EXAMPLES = "v5e:4x4, v5p:4x4x4, v6e:8x8, h100 or h200:8"

_NAME = re.compile(r"(v\d\w*):\d+(?:x\d+)+|(h\d00)(?::([1-9]\d{0,4}))?")
# A module's package comes before it.
_WHEELS = {"tpu": ("libtpu",), "cuda": ("jax_plugins", "jax_plugins.xla_cuda13")}
# The last two keep libtpu from looking for a TPU, and from complaining about none.
_OF_LIBTPU = {
    **{"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"},
    **{"TPU_ACCELERATOR_TYPE": "v5litepod-16", "TPU_WORKER_HOSTNAMES": "localhost"},
}
# How hard the compiler searches for fast code: memory differs by some percent, the time
# that compiling takes by four.
EFFORTS: dict[str, dict[str, Any]] = {
    "quick": {"exec_time_optimization_effort": -1.0},
    "full": {},
}
# Autotuning needs the card. cuBLASLt takes the matrix products.
_OPTIONS: dict[str, dict[str, Any]] = {
    "tpu": {},
    "cuda": {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False},
}


def platform_of(name: str) -> str:
    """Returns `tpu` or `cuda`, as XLA names the compiler.

    Raises:
      UserError: The name describes no device, or its compiler is not installed.
    """
    found = _NAME.fullmatch(name)
    if not found or (found[1] or found[2]) not in CHIPS:
        raise UserError(f"--device={name}: describe one as {EXAMPLES}")
    platform = "tpu" if found[1] else "cuda"
    if not all(map(importlib.util.find_spec, _WHEELS[platform])):
        raise UserError(
            f"--device={name}: its compiler is not installed; "
            "pip install --constraint requirements.txt --editable '.[ahead]'"
        )
    return platform


def chip_of(name: str) -> Chip:
    """Returns one of the devices that a name describes."""
    return CHIPS[name.partition(":")[0]]


def prepare_compiler(name: str) -> None:
    """Makes JAX compile for a device that is not there. It must not have been used."""
    if platform_of(name) == "tpu":
        os.environ.update(_OF_LIBTPU)
    jax.config.update("jax_platforms", "cpu")
    # A program without a device cannot be read back from the cache.
    jax.config.update("jax_enable_compilation_cache", False)


def describe_devices(name: str) -> list[jax.Device]:
    """Returns the devices that a name describes, for a mesh.

    Raises:
      UserError: There is no such slice, or GPUs that fill no hosts.
    """
    if platform_of(name) == "tpu":
        try:
            return topologies.get_topology_desc(name, "tpu").devices
        except jax.errors.JaxRuntimeError as error:
            raise UserError(f"--device={name}: {str(error).splitlines()[0]}") from error
    kind, _, number = name.partition(":")
    count = int(number or 1)
    on_each = min(count, _GPUS_OF_A_HOST)
    if count % on_each:
        raise UserError(f"--device={name}: a host has {on_each} GPUs; name a multiple")
    full_name, bandwidth = _GPUS[kind]
    return topologies.get_topology_desc(
        *("", "cuda"),
        target_config=_HOPPER.format(
            name=full_name, memory=CHIPS[kind].memory, bandwidth=bandwidth
        ),
        topology=f"1x{count // on_each}x{on_each}",
    ).devices


def compile_for(
    name: str, traced: jax.stages.Traced, effort: str = "quick"
) -> jax.stages.Compiled:
    """Compiles a program that was traced on the devices of `describe_devices`.

    Args:
      effort: One of EFFORTS.

    Raises:
      jax.errors.JaxRuntimeError: The compiler failed, or a TPU has not the memory.
    """
    platform = platform_of(name)
    lowered = traced.lower(lowering_platforms=(platform,))
    return lowered.compile({**EFFORTS[effort], **_OPTIONS[platform]})
