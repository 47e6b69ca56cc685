"""The cases of `gpu`: what each of its parts measures."""

import argparse
from collections.abc import Mapping
from typing import Any

from bert_jax.models.attention import ATTENTIONS
from experiments.speed import train_step

# Rows of a batch that fill a card of 80 GB or more.
SHAPES = (
    ("base", 128, 256),
    ("large", 512, 32),
    ("base", 512, 64),
    ("large", 128, 128),
)
# A profile names no kernel that a CUDA graph has started.
WITHOUT_GRAPHS = "--xla_gpu_enable_command_buffer="
FLAGS = (
    "--xla_gpu_enable_latency_hiding_scheduler=true",
    "--xla_gpu_autotune_level=4",
    "--xla_gpu_exhaustive_tiling_search=true",
    "--xla_gpu_enable_triton_gemm=false",
    WITHOUT_GRAPHS,
    "--xla_gpu_cudnn_gemm_fusion_level=2",
    "--xla_gpu_enable_cudnn_layer_norm=true",
    "--xla_gpu_experimental_enable_fusion_autotuner=true",
)
CUDNN = "cudnn"
STEP = {
    "kind": "step",
    "dtype": "bfloat16",
    "attention": "einsum",
    "attention_dropout": 0.1,
    "remat": "none",
    "scan_layers": False,
    "packing": False,
    "flags": "",
}


def cases(part: int, scale: float = 1.0) -> list[dict[str, Any]]:
    """What a part measures, the most important first.

    Args:
      scale: of the batches, for a card with less memory.
    """

    def step(shape: tuple[str, int, int], **changes: Any) -> dict[str, Any]:
        size, length, batch = shape
        rows = max(1, int(changes.pop("batch", batch) * scale))
        if changes.get("attention") == CUDNN:
            changes["attention_dropout"] = 0.0  # it has none that could be resumed
        return {**STEP, "size": size, "length": length, "batch": rows, **changes}

    base = SHAPES[0]
    if part == 1:
        return [
            step(shape, kind="profile", attention=name, flags=WITHOUT_GRAPHS)
            for shape in SHAPES
            for name in ATTENTIONS
            if name != CUDNN or shape in SHAPES[:2]
        ]
    if part == 2:
        return [
            *(step(base, attention=name) for name in ATTENTIONS),
            *(step(base, batch=batch) for batch in (64, 128, 512)),
            *(step(base, flags=flag) for flag in FLAGS),
            step(base, dtype="float32"),
            # What cuDNN's attention is to be compared with.
            *(
                step(shape, attention=name, attention_dropout=0.0)
                for shape in SHAPES[:2]
                for name in ("einsum", "fused")
            ),
            step(base, scan_layers=True),
            *(step(base, batch=512, remat=remat) for remat in ("dots", "full")),
            *(
                step(shape, attention=name, packing=packing)
                for shape in SHAPES[1:]
                for name in ATTENTIONS
                for packing in ((False, True) if shape[1] == 512 else (False,))
                if not (packing and name == CUDNN)
            ),
        ]
    return _torch(scale)


def _torch(scale: float) -> list[dict[str, Any]]:
    """The peer's cases, of half the batches."""
    given = train_step.parse(["--torch=sdpa,sdpa-gathered,compile-gathered"])
    return [
        {**case, "kind": "torch", "turn": 1.0}
        for size, length, batch in SHAPES
        for dtype in ("bfloat16", "float32")[: 1 if length == 512 else 2]
        for case in train_step.cases(
            argparse.Namespace(
                **{
                    **vars(given),
                    "sizes": size,
                    "lengths": str(length),
                    "batch": str(max(1, int(batch * scale / 2))),
                    "dtypes": dtype,
                    "peak_size": 8192,
                }
            )
        )
    ]


def small(part: int) -> list[dict[str, Any]]:
    """A case of each kind of a part, small enough for any CPU."""
    every = reversed(cases(part))
    first = {(case["kind"], case.get("packing")): case for case in every}
    return [
        {
            **case,
            **{"size": "1/64", "length": 16, "batch": 2, "flags": ""},
            **{"turn": 0.0, "rounds": 1, "peak": [64, 1, 0.0]},
        }
        for case in first.values()
    ]


def label(case: Mapping[str, Any]) -> str:
    """How a case differs from the plain step."""
    named = {
        "attention_dropout": "attention dropout",
        "scan_layers": "scan layers",
        "packing": "packing",
        "flags": "flags",
    }
    changes: list[str] = [
        f"{named.get(name, name)} {case[name]}".strip()
        for name in ("attention", "remat", *named)
        if case[name] != STEP[name]
    ]
    return ", ".join(changes) or str(STEP["attention"])
