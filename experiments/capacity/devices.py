"""Capabilities of accelerators, from their makers' data sheets.

Some devices are described and not present: TPU slices by libtpu, GPUs by JAX's CUDA
plug-in. Their compilers run on any machine, but nothing can be computed.

Import JAX after the `environment` of the device is set, in a process for each kind.
"""

import importlib.util
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from bert_jax.errors import UserError

if TYPE_CHECKING:
    import jax

USABLE = 0.9  # fraction of a device's memory that a program can use


class Device(NamedTuple):
    """One chip. Rates are per second, dense, and the best that can be.

    Attributes:
      bfloat16: FLOP/s of matrix products.
      float32: The same for float32 as JAX multiplies it there by default: in bfloat16
        passes on a TPU, in TF32 on a GPU.
      memory: Memory in bytes.
      bandwidth: Bytes/s of that memory.
      source: Where the numbers are published.
      compiler: Kind of XLA's compiler for it.
    """

    bfloat16: float
    float32: float
    memory: float
    bandwidth: float
    source: str
    compiler: str  # tpu or cuda


DEVICES = {
    "v5e": Device(197e12, 197e12, 16e9, 819e9, "cloud.google.com/tpu/docs/v5e", "tpu"),
    "v5p": Device(459e12, 459e12, 95e9, 2765e9, "cloud.google.com/tpu/docs/v5p", "tpu"),
    "v6e": Device(918e12, 918e12, 32e9, 1638e9, "cloud.google.com/tpu/docs/v6e", "tpu"),
    "a100": Device(312e12, 156e12, 80e9, 2039e9, "NVIDIA A100 80GB data sheet", "cuda"),
    "h100": Device(989e12, 494e12, 80e9, 3350e9, "NVIDIA H100 SXM data sheet", "cuda"),
    "h200": Device(989e12, 494e12, 141e9, 4800e9, "NVIDIA H200 SXM data sheet", "cuda"),
}

# One card each (NVIDIA's data sheets, and CUDA's occupancy tables for capability 9.0),
# in the form of XLA's GpuTargetConfigProto.
_HOPPER = """
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32
  shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: {chip.bandwidth:.0f} l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: {chip.memory:.0f} shared_memory_per_block_optin: 232448
  cuda_compute_capability {{ major: 9 feature_extension: ACCELERATED_FEATURES }}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
runtime_version {{ major: 13 minor: 0 patch: 0 }}
device_description_str: "{name}"
"""
_GPUS = {"h100": "NVIDIA H100 80GB HBM3", "h200": "NVIDIA H200"}
EXAMPLES = "v5e:4x4, v5p:4x4x4, v6e:8x8, h100 or h200"

_SLICE = re.compile(r"v\d\w*:(\d+(?:x\d+)+)")
# A module's package comes before it.
_WHEELS = {"tpu": ("libtpu",), "cuda": ("jax_plugins", "jax_plugins.xla_cuda13")}
_OF_LIBTPU = {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
# Autotuning needs the card. cuBLASLt takes the matrix products.
COMPILER_OPTIONS: dict[str, dict[str, bool | int]] = {
    "tpu": {},
    "cuda": {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False},
}


def kind(name: str) -> str:
    """Returns `tpu` or `cuda`.

    Raises:
      UserError: The name describes no device, or its compiler is not installed.
    """
    if name not in _GPUS and not _SLICE.fullmatch(name):
        raise UserError(f"--device={name}: describe one as {EXAMPLES}")
    found = "cuda" if name in _GPUS else "tpu"
    if not all(map(importlib.util.find_spec, _WHEELS[found])):
        raise UserError(
            f"--device={name}: its compiler is not installed; "
            "pip install --constraint requirements.txt --editable '.[ahead]'"
        )
    return found


def family(name: str) -> str:
    """Returns the key of `DEVICES`: v5e for v5e:4x4."""
    return name.partition(":")[0]


def chip(name: str) -> Device:
    """Returns one of the devices that a name describes."""
    return DEVICES[family(name)]


def count(name: str) -> int:
    """Returns a slice's number of devices, or 0 for a name without it (v5e, h100)."""
    sizes = _SLICE.fullmatch(name)
    return math.prod(map(int, sizes[1].split("x"))) if sizes else 0


def environment(name: str) -> Mapping[str, str]:
    """Returns the variables that a process needs before it imports JAX."""
    return {"JAX_PLATFORMS": "cpu", **(_OF_LIBTPU if kind(name) == "tpu" else {})}


def described(name: str) -> "list[jax.Device]":
    """Returns the devices that a name describes, for a mesh.

    Raises:
      UserError: There is no such slice.
    """
    import jax
    from jax.experimental import topologies

    if kind(name) == "tpu":
        try:
            found = topologies.get_topology_desc(name, "tpu")
        except jax.errors.JaxRuntimeError as error:
            raise UserError(f"--device={name}: {str(error).splitlines()[0]}") from error
        return found.devices
    target = _HOPPER.format(name=_GPUS[name], chip=chip(name))
    return topologies.get_topology_desc(
        "", "cuda", target_config=target, topology="1x1x1"
    ).devices
