"""What accelerators can do, from their makers' data sheets."""

import dataclasses

USABLE = 0.9  # of a device's memory, by a program


@dataclasses.dataclass(frozen=True)
class Device:
    """One chip. Rates are per second, dense, one way, and the best that can be.

    Attributes:
      bfloat16: FLOP/s of matrix products.
      float32: likewise of float32 as JAX multiplies it there by default: in bfloat16
        passes on a TPU, in TF32 on a GPU.
      memory: bytes.
      bandwidth: bytes/s of that memory.
      link: bytes/s to the other devices of a node.
      node: devices that are so linked; on a TPU the whole slice.
      network: bytes/s to other nodes, for each device.
      source: where the numbers stand.
      compiler: the kind of XLA's compiler for it.
    """

    bfloat16: float
    float32: float
    memory: float
    bandwidth: float
    link: float
    node: int
    network: float
    source: str
    compiler: str  # tpu or cuda


# A bidirectional figure is halved. TPU: inter-chip links; within one slice.
DEVICES = {
    "v5e": Device(
        *(197e12, 197e12, 16e9, 819e9, 200e9, 256, 200e9),
        "cloud.google.com/tpu/docs/v5e (400 GB/s both ways)",
        "tpu",
    ),
    "v5p": Device(
        *(459e12, 459e12, 95e9, 2765e9, 600e9, 8960, 600e9),
        "cloud.google.com/tpu/docs/v5p (4,800 Gbps)",
        "tpu",
    ),
    "v6e": Device(
        *(918e12, 918e12, 32e9, 1638e9, 400e9, 256, 400e9),
        "cloud.google.com/tpu/docs/v6e (800 GB/s both ways)",
        "tpu",
    ),
    "a100": Device(
        *(312e12, 156e12, 80e9, 2039e9, 300e9, 8, 25e9),
        "NVIDIA A100 80GB SXM data sheet; DGX A100: a 200 Gb/s adapter for each GPU",
        "cuda",
    ),
    "h100": Device(
        *(989e12, 494e12, 80e9, 3350e9, 450e9, 8, 50e9),
        "NVIDIA H100 SXM data sheet; DGX H100: a 400 Gb/s adapter for each GPU",
        "cuda",
    ),
    "h200": Device(
        *(989e12, 494e12, 141e9, 4800e9, 450e9, 8, 50e9),
        "NVIDIA H200 SXM data sheet; DGX H200: a 400 Gb/s adapter for each GPU",
        "cuda",
    ),
}
