"""Which arrays are split over which axis of the mesh, and which do not fit."""

import itertools
import math
import re
from collections import Counter
from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from bert_jax import tasks
from bert_jax.training import optimizer, sharding
from bert_jax.training.sharding import bytes_per_device
from bert_jax.training.step import Step, abstract_state
from configs import base, large, tiny
from tests.micro import error_line


def small_config(**mesh):
    config = tiny.get_config("plain")
    config.model.update(vocab_size=96, hidden_size=16, num_attention_heads=2)
    config.model.intermediate_size = 32
    config.optimizer.name = "bert_adam"
    config.mesh.update(mesh)
    return config


def abstract(config):
    task = tasks.create_task(config)
    mesh = sharding.make_mesh(config)
    return abstract_state(task, optimizer.make_optimizer(config), mesh)


def spec(leaf):
    return tuple(leaf.sharding.spec)


@pytest.mark.parametrize(
    ("mesh", "shape"),
    [
        ({}, (8, 1, 1)),
        ({"tensor": 2}, (4, 1, 2)),
        ({"data": 2, "fsdp": -1, "tensor": 2}, (2, 2, 2)),
        ({"data": 1, "fsdp": 8}, (1, 8, 1)),
    ],
)
def test_mesh_takes_what_is_left_of_the_devices(mesh, shape):
    assert tuple(sharding.make_mesh(small_config(**mesh)).shape.values()) == shape


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"mesh.data": 3}, r"config\.mesh"),
        ({"mesh.data": -1, "mesh.fsdp": -1}, r"config\.mesh"),
        (
            {"phase2.fraction": 0.1, "phase2.batch_size": 12},
            r"batch_size .* of phase 2 = 12 .*does not divide",
        ),
        (
            {"train.phases": ("train.micro_batches=3", "steps=1")},
            r"train\.micro_batches = \d+ / 3 does not divide",
        ),
    ],
)
def test_mesh_that_does_not_fit_is_named(fields, said):
    config = small_config()
    config.update_from_flattened_dict(fields)
    assert re.search(said, error_line(sharding.make_mesh, config))


def test_batch_that_no_phase_uses_may_be_any():
    config = small_config()
    config.train.phases = ("train.batch_size=16", "steps=1 train.batch_size=8")
    config.train.batch_size = 9
    assert sharding.make_mesh(config).size == 8


def test_parameters_and_moments_are_split_alike():
    state = abstract(small_config(data=2, fsdp=2, tensor=2))
    layer = state.params["bert"]["encoder"]["layer_0"]
    assert spec(layer["attention"]["query"]["kernel"]) == ("fsdp", "tensor", None)
    assert spec(layer["attention"]["query"]["bias"]) == ("tensor", None)
    assert spec(layer["attention"]["output"]["kernel"]) == ("tensor", None, "fsdp")
    assert spec(layer["intermediate"]["kernel"]) == ("fsdp", "tensor")
    assert spec(layer["output"]["kernel"]) == ("tensor", "fsdp")
    assert spec(layer["layer_norm"]["scale"]) == (None,)
    words = state.params["bert"]["embeddings"]["word_embeddings"]["embedding"]
    assert spec(words) == ("tensor", "fsdp")
    assert words.sharding.shard_shape(words.shape) == (48, 8)
    shardings = jax.tree.leaves(sharding.shardings_of(state.params))
    assert len(jax.tree.leaves(state.opt_state)) == 2 * len(shardings) + 1
    for moment in ("mu", "nu"):
        found = [
            leaf.sharding
            for path, leaf in jax.tree_util.tree_leaves_with_path(state.opt_state)
            if moment in jax.tree_util.keystr(path)
        ]
        assert found == shardings


def test_zero1_splits_moments_over_data_too():
    state = abstract(small_config(data=2, fsdp=2, tensor=2, optimizer="zero1"))
    plain = abstract(small_config(data=2, fsdp=2, tensor=2))
    assert sharding.shardings_of(state.params) == sharding.shardings_of(plain.params)
    moments = [
        {
            jax.tree_util.keystr(path[-4:], simple=True, separator="/"): leaf
            for path, leaf in jax.tree_util.tree_leaves_with_path(state.opt_state)
            if moment in jax.tree_util.keystr(path)
        }
        for moment in ("mu", "nu")
    ]
    for tree in moments:
        # The longest axis that is whole, else the longest.
        query = tree["layer_0/attention/query/kernel"]
        assert query.shape == (16, 2, 8)
        assert spec(query) == ("fsdp", "tensor", "data")
        inner = next(x for n, x in tree.items() if n.endswith("intermediate/bias"))
        assert spec(inner) == (("tensor", "data"),)
        assert inner.sharding.shard_shape(inner.shape) == (8,)
        # Two numbers, whole on each device: two devices have one each.
        (last,) = (x for name, x in tree.items() if name.endswith("next_sentence/bias"))
        assert spec(last) == ("data",)
    own = bytes_per_device(state.opt_state)
    assert own == pytest.approx(bytes_per_device(plain.opt_state) / 2, rel=0.01)


@pytest.mark.slow
def test_vocabulary_that_does_not_divide_stays_whole():
    config = base.get_config()
    config.mesh.tensor = 4
    words = abstract(config).params["bert"]["embeddings"]["word_embeddings"]
    assert spec(words["embedding"]) == (None, "fsdp")
    config.mesh.tensor = 8
    assert "num_attention_heads=12" in error_line(abstract, config)


def test_parameters_name_their_axes():
    task, kind = tasks.create_task(small_config()), nn.LogicallyPartitioned
    boxed = jax.eval_shape(task.init_params, jax.random.key(0))
    for box in jax.tree.leaves(boxed, is_leaf=lambda x: isinstance(x, kind)):
        assert isinstance(box, kind)
        assert len(box.names) == box.value.ndim and all(box.names)


def test_batch_is_split_over_data_and_fsdp():
    mesh = sharding.make_mesh(small_config(data=2, fsdp=2, tensor=2))
    assert sharding.local_rows(mesh, 12) == slice(0, 12)
    rows = np.arange(12 * 3).reshape(12, 3)
    placed = sharding.place_batch({"x": rows}, mesh, 12)["x"]
    assert placed.sharding.spec == PartitionSpec(("data", "fsdp"))
    assert np.array_equal(placed, rows)
    assert {shard.data.shape for shard in placed.addressable_shards} == {(3, 3)}
    assert [sharding.batch_multiple(mesh, n) for n in (1, 4, 5)] == [4, 4, 8]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [([(4, 6), (0, 2), (4, 6)], [0, 1, 4, 5]), ([(4, 6)], [4, 5])],
)
def test_rows_of_a_process_that_do_not_lie_side_by_side(monkeypatch, spans, expected):
    indices = dict(enumerate((slice(*span),) for span in spans))
    split = SimpleNamespace(addressable_devices_indices_map=lambda shape: indices)
    monkeypatch.setattr(sharding, "batch_sharding", lambda mesh: split)
    rows = sharding.local_rows(jax.make_mesh((8,), ("data",)), 8)
    assert np.arange(8)[rows].tolist() == expected
    assert isinstance(rows, slice) == (len(spans) == 1)


# A step of BERT-Large as compiled for eight devices, read from its HLO.


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
