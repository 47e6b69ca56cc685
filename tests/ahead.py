"""Programs that a TPU's or a GPU's own compiler makes, without such devices."""

import functools
import re
from collections.abc import Iterator

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from bert_jax.errors import UserError
from experiments.capacity import devices, hlo
from experiments.lib import programs

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
PACKED = ("corpus.packing=True",)
# Two outputs, or a label's: their sums in float32 are of bfloat16 where it would round.
# Embeddings' gradients are sums of float32.
IN_FLOAT32 = re.compile(
    r"next_sentence|question_answering|_classification|_embeddings/bij,bjh"
)


NO_DROPOUT = "model.attention_probs_dropout_prob=0.0"
TRITON, SPLASH = "__gpu$xla.gpu.triton", "splash_mha_fwd_segmented"
WHOLE_ROW = ("whole_row_forward", "whole_row_backward")


@pytest.fixture(autouse=True)
def without_a_cache():
    """A program without a device cannot be read back."""
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # JAX reads the setting once
    yield
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()


def require(device: str) -> None:
    """Skips the test where the device's compiler is not installed."""
    try:
        devices.prepare_compiler(device)
    except UserError as error:
        pytest.skip(str(error))


@functools.cache
def built(device, *fields, spec="configs/base.py"):
    """Returns a program and its compiled form."""
    require(device)
    config = programs.load(spec, [f"--config.{field}" for field in fields])
    program = programs.trace_step(config, devices.describe_devices(device))
    return program, devices.compile_for(device, program.traced)


def wide_products(done) -> Iterator[str]:
    """Yields the products in float32 that are not meant to be."""
    for dtype, path in hlo.find_products(done.as_text()):
        if dtype != "bfloat16" and not IN_FLOAT32.search(path):
            yield path
