"""A step of BERT-Large as compiled for eight devices, read from its HLO."""

import itertools
import math
import re
from collections import Counter

import jax
import jax.numpy as jnp
import pytest

from bert_jax import tasks
from bert_jax.training import sharding
from bert_jax.training.sharding import bytes_per_device
from bert_jax.training.step import Step
from configs import large

# Sizes that no two things share, so that a shape identifies its array.
LAYERS, ROWS, LENGTH, PREDICTIONS = 24, 40, 96, 20
HIDDEN, HEADS, INNER = 1024, 16, 4096
VOCABULARY = 30528  # 30,522 and six more rows, which eight divides

COLLECTIVE = re.compile(
    r"= (?P<shapes>.+?) (?P<kind>all-reduce|all-gather|reduce-scatter|all-to-all"
    r"|collective-permute|collective-broadcast|ragged-all-to-all)(-start)?\("
)


def compiled(name="bert_adam", **mesh):
    """The state's shapes and the compiled step. Nothing of it is allocated."""
    config = large.get_config()
    config.model.vocab_size = VOCABULARY
    config.model.scan_layers = True
    config.train.batch_size = config.evaluate.batch_size = ROWS
    config.optimizer.name = name
    config.mesh.data = 1
    config.mesh.update(mesh)
    task, grid = tasks.create_task(config), sharding.make_mesh(config)
    program = Step(task, grid)
    state = program.abstract

    def rows(*shape, dtype=jnp.int32):
        split = sharding.batch_sharding(grid)
        return jax.ShapeDtypeStruct((ROWS, *shape), dtype, sharding=split)

    names = ("input_ids", "input_mask", "segment_ids")
    batch = {name: rows(LENGTH) for name in names} | {"next_sentence_labels": rows()}
    batch |= {f"masked_lm_{name}": rows(PREDICTIONS) for name in ("positions", "ids")}
    batch["masked_lm_weights"] = rows(PREDICTIONS, dtype=jnp.float32)
    step = program.trace(state, batch, 1).lower().compile()
    own = bytes_per_device((state, batch))
    assert step.memory_analysis().argument_size_in_bytes == own + 8  # and seed and rate
    return state, step.as_text()


def entry_shapes(text):
    """How often the program takes an array of each shape, of one device."""
    (signature,) = re.findall(r"^ENTRY [^(]*\((.*)\) ->", text, re.MULTILINE)
    found = re.findall(r"f32\[([\d,]*)\]", signature)
    return Counter(tuple(map(int, dims.split(","))) for dims in found if dims)


def what(dims, state, devices):
    """Returns the source of an array of this shape: a parameter, whole or split along
    some axes, rows, or a few numbers."""
    own = sorted(size for size in dims if size != 1)
    if math.prod(own) <= LAYERS:
        return "numbers"
    shapes = [(LENGTH, HIDDEN)]  # the positions that are taken
    for path, leaf in jax.tree_util.tree_leaves_with_path(state.params):
        part = leaf.sharding.shard_shape(leaf.shape)
        for shape in itertools.product(*zip(leaf.shape, part, strict=True)):
            stacked = "layers" in jax.tree_util.keystr(path, simple=True)
            shapes += [shape, shape[1:]] if stacked else [shape]
    if own in [sorted(size for size in shape if size != 1) for shape in shapes]:
        return "parameters"
    rows = ROWS // devices
    starts = [(rows, LENGTH), (rows * LENGTH,), (rows, PREDICTIONS)]
    starts += [(rows * PREDICTIONS,), (rows,)]
    ends = [(), (HIDDEN,)]
    if own in [sorted((*start, *end)) for start in starts for end in ends]:
        return "rows"
    return f"unknown {dims}"


def collectives(state, text, devices=1):
    """The kinds of collectives, each with the arrays that it is used on.

    Args:
      devices: over how many the batch is split.
    """
    found = set()
    for match in COLLECTIVE.finditer(text):
        for dims in re.findall(r"\w+\[([\d,]*)\]", match["shapes"]):
            shape = tuple(int(size) for size in dims.split(",") if size)
            found.add((match["kind"], what(shape, state, devices)))
    return found


GRADIENTS = ("all-reduce", "parameters")  # each device has its rows' gradients
SUMS = ("all-reduce", "numbers")  # losses and their weights, norms
PUT_TOGETHER = ("all-gather", "parameters")
# After the attention's and the feed-forward's second product, of whose inputs each
# device has a part, and in the backward pass before their first. The look-up in the
# part of the vocabulary that a device has, and the softmax over its logits.
PARTIAL_PRODUCTS = ("all-reduce", "rows")


@pytest.mark.slow
def test_fsdp_puts_parameters_together_for_use():
    state, text = compiled("lamb", fsdp=8)
    assert collectives(state, text, 8) == {PUT_TOGETHER, GRADIENTS, SUMS}
    shapes = entry_shapes(text)
    assert shapes[VOCABULARY, HIDDEN // 8] == 3
    assert shapes[LAYERS, HIDDEN // 8, HEADS, 64] == 9
    assert shapes[LAYERS, HIDDEN // 8, INNER] == shapes[LAYERS, INNER, HIDDEN // 8] == 3
    # A layer at a time: never all of them.
    assert not re.search(rf"all-gather[^\n]*f32\[{LAYERS},{HIDDEN},{INNER}\]", text)
    whole = 4 * sum(leaf.size for leaf in jax.tree.leaves(state.params))
    assert bytes_per_device(state) == pytest.approx(3 * whole / 8, rel=0.01)


@pytest.mark.slow
def test_tensor_splits_heads_and_vocabulary():
    state, text = compiled(tensor=8)
    assert collectives(state, text) == {PARTIAL_PRODUCTS, SUMS}
    shapes = entry_shapes(text)
    assert shapes[VOCABULARY // 8, HIDDEN] == 3
    assert shapes[LAYERS, HIDDEN, HEADS // 8, 64] == 9
    assert shapes[LAYERS, HEADS // 8, 64, HIDDEN] == 3
    assert shapes[LAYERS, HIDDEN, INNER // 8] == shapes[LAYERS, INNER // 8, HIDDEN] == 3
    # The logits and the attention's probabilities too.
    assert f"f32[{ROWS},{PREDICTIONS},{VOCABULARY // 8}]" in text
    assert not re.search(rf"[\[,]{VOCABULARY}[,\]]", text)
    assert f"f32[{ROWS},{HEADS // 8},{LENGTH},{LENGTH}]" in text
    assert f"f32[{ROWS},{HEADS},{LENGTH},{LENGTH}]" not in text
