"""ONNX graphs of encoders and their heads, with the names of optimum's exports.

The packages onnx and onnxruntime are an extra, imported only where they are used.
"""

import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict

from bert_jax.config.command_line import ONNX_DTYPES
from bert_jax.convert.layout import Weights
from bert_jax.convert.sentence_transformers import DENSE, TextVectors
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.models.config import MASK_VALUE

FOLDER = "onnx"  # in an export, where optimum and transformers.js look
_PACKAGES = ("onnx", "onnxruntime")
_FAMILIES = ("bert", "roberta", "xlm_roberta", "camembert", "distilbert", "mpnet")
_HEADS = {
    "masked_lm",
    "question_answering",
    "sequence_classification",
    "token_classification",
}
# The first set of operators with a LayerNormalization, and the format of its time.
_OPSET, _FORMAT = 17, 8
_MAX_BYTES = 2**31 - 2**24  # of weights in the graph's own file, which protobuf limits


def check(weights: Weights, dtype: str) -> None:
    """Raises UserError if a model has no graph here, or a package is missing."""
    config, parts = weights.config, _parts(weights)
    if dtype not in ONNX_DTYPES:
        why = f"must be one of {', '.join(ONNX_DTYPES)}"
    elif config.architecture not in _FAMILIES:
        why = f"a model must be of one of these families: {', '.join(_FAMILIES)}"
    elif config.causal:
        why = "a left-to-right model has no graph"
    elif parts and not parts & _HEADS:
        why = f"{weights.architecture} has no graph; {', '.join(sorted(_HEADS))} have"
    elif missing := [x for x in _PACKAGES if not importlib.util.find_spec(x)]:
        why = f"needs {' and '.join(missing)}: pip install 'bert-jax[onnx]'"
    else:
        return
    raise UserError(f"--onnx={dtype}: {why}")


def write(weights: Weights, dtype: str, folder: Path) -> None:
    """Writes model.onnx, and for int8 also model_quantized.onnx.

    Weights of more than 2 GB are in a file of their own, model.onnx_data.

    Args:
      weights: A model that `check` accepts.
      dtype: One of ONNX_DTYPES.
      folder: A new folder.
    """
    import onnx

    folder.mkdir()
    model, path = _build(weights), folder / "model.onnx"
    size = sum(len(each.raw_data) for each in model.graph.initializer)
    own_file = f"{path.name}_data"
    onnx.save(model, path, save_as_external_data=size > _MAX_BYTES, location=own_file)
    if dtype == "int8":
        from onnxruntime.quantization import quantize_dynamic

        # The bias of distances is added to every score, and is small.
        exact = ["position_bias"]
        target = folder / "model_quantized.onnx"
        quantize_dynamic(path, target, per_channel=True, nodes_to_exclude=exact)


def _parts(weights: Weights) -> set[str]:
    """Returns the heads of which the graph computes one. Vectors of texts have none."""
    layout = FAMILIES[weights.config.architecture].layout
    parts = layout.architectures.get(weights.architecture, ())
    return {*parts} - {"pooler"} if weights.vectors is None else set()


class _Graph:
    """Operators and weights. A value is known by its name, and each method that adds
    operators returns the name of their result.

    Attributes:
      params: The model's parameters by path, joined by dots.
      nodes: The operators, in order.
      arrays: The weights and other constants by name.
    """

    def __init__(self, params: Mapping[str, Any]):
        self.params: Mapping[str, Any] = flatten_dict(params, sep=".")
        self.nodes: list[Any] = []
        self.arrays: dict[str, np.ndarray] = {}

    def __call__(
        self, operator: str, *inputs: Any, output: str = "", **attributes: Any
    ) -> str:
        """Adds an operator.

        Args:
          inputs: Names of values, or numbers and lists of integers.
          output: Name of the result. Empty means any.
        """
        from onnx import helper

        names = [x if isinstance(x, str) else self._constant(x) for x in inputs]
        output = output or f"{operator}_{len(self.nodes)}"
        node = helper.make_node(operator, names, [output], name=output, **attributes)
        self.nodes.append(node)
        return output

    def _constant(self, value: Any) -> str:
        dtype = np.float32 if isinstance(value, float) else np.int64
        return self.array(f"constant {value}", np.asarray(value, dtype))

    def array(self, name: str, value: Any = None) -> str:
        """Adds an array. None means the parameter of this path."""
        self.arrays[name] = np.asarray(self.params[name] if value is None else value)
        return name

    def linear(self, x: str, module: str, output: str = "") -> str:
        """Adds a linear layer, whose axes of inputs or outputs may be several."""
        bias = np.asarray(self.params[f"{module}.bias"]).reshape(-1)
        kernel = np.asarray(self.params[f"{module}.kernel"]).reshape(-1, bias.size)
        product = self("MatMul", x, self.array(f"{module}.kernel", kernel))
        return self("Add", product, self.array(f"{module}.bias", bias), output=output)

    def norm(self, x: str, module: str, epsilon: float, output: str = "") -> str:
        scale, bias = (self.array(f"{module}.{name}") for name in ("scale", "bias"))
        return self(
            "LayerNormalization", x, scale, bias, epsilon=epsilon, output=output
        )

    def activate(self, x: str, name: str) -> str:
        """Adds an activation. ONNX Runtime joins the operators of a GELU again."""
        match name:
            case "identity":
                return x
            case "gelu":
                inner = self("Erf", self("Div", x, math.sqrt(2.0)))
            case "gelu_tanh":
                cubed = self("Mul", self("Pow", x, 3.0), 0.044715)
                scaled = self("Mul", self("Add", x, cubed), math.sqrt(2.0 / math.pi))
                inner = self("Tanh", scaled)
            case _:
                return self({"relu": "Relu", "tanh": "Tanh"}[name], x)
        return self("Mul", self("Mul", x, self("Add", inner, 1.0)), 0.5)


def _build(weights: Weights) -> Any:
    """Returns the model: inputs and outputs of any number and length of texts."""
    from onnx import TensorProto, helper, numpy_helper

    config, graph = weights.config, _Graph(weights.params)
    batch, length = "batch_size", "sequence_length"
    names = ["input_ids", "attention_mask"]
    names += ["token_type_ids"] * FAMILIES[config.architecture].has_segments
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, [batch, length])
        for name in names
    ]
    _add_encoder(graph, weights)
    if weights.vectors is not None:
        size = _add_vectors(graph, weights.vectors, config.hidden_size)
        hidden = [batch, length, config.hidden_size]
        shapes = {"last_hidden_state": hidden, "sentence_embedding": [batch, size]}
    else:
        shapes = _add_head(graph, weights, batch, length)
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    ]
    arrays = [numpy_helper.from_array(x, name) for name, x in graph.arrays.items()]
    made = helper.make_graph(
        graph.nodes, weights.architecture, inputs, outputs, initializer=arrays
    )
    operators = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(
        made, producer_name="bert_jax", opset_imports=operators, ir_version=_FORMAT
    )
    # Nothing is to be done before quantization, which would otherwise log a warning.
    helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})
    return model


def _add_encoder(graph: _Graph, weights: Weights) -> None:
    """Adds embeddings and layers. The result is `last_hidden_state`."""
    config, epsilon = weights.config, weights.config.layer_norm_eps
    family = FAMILIES[config.architecture]
    length = graph("Gather", graph("Shape", "input_ids"), 1)
    indices = positions = graph("Range", 0, length, 1)  # [length]
    if family.layout.first_position:  # counted from padding's, as RoBERTa's are
        pad = family.layout.first_position - 1
        real = graph("Not", graph("Equal", "input_ids", pad))
        real = graph("Cast", real, to=7)  # int64
        positions = graph("Mul", graph("CumSum", real, 1), real)
        positions = graph("Add", positions, pad)  # [batch, length]
    ids: dict[str, Any] = {"word": "input_ids", "position": positions}
    if "bert.embeddings.token_type_embeddings.embedding" in graph.params:
        ids["token_type"] = "token_type_ids" if family.has_segments else 0
    first, *others = (
        graph("Gather", graph.array(f"bert.embeddings.{name}_embeddings.embedding"), x)
        for name, x in ids.items()
    )
    for other in others:
        first = graph("Add", first, other)
    hidden = graph.norm(first, "bert.embeddings.layer_norm", epsilon)
    mask = graph("Cast", "attention_mask", to=1, output="float_mask")
    hidden_keys = graph("Unsqueeze", graph("Sub", 1.0, mask), [1, 2])
    bias = graph("Mul", hidden_keys, MASK_VALUE)  # [batch, 1, 1, length]
    if (by_distance := _biases_by_distance(weights)) is not None:
        graph.array("bert.relative_bias", by_distance)
        keys, queries = (graph("Unsqueeze", indices, [axis]) for axis in (0, 1))
        after = graph("Sub", keys, queries)  # [queries, keys]
        places = graph("Add", after, by_distance.shape[1] // 2)
        table = ("bert.relative_bias", places)
        of_heads = graph("Gather", *table, axis=1, output="position_bias")
        bias = graph("Add", bias, of_heads)  # [batch, heads, queries, keys]
    for index in range(config.num_hidden_layers):
        at = f"bert.encoder.layer_{index}"
        mixed = _attention(graph, f"{at}.attention", hidden, bias, config)
        added = graph("Add", mixed, hidden)
        hidden = graph.norm(added, f"{at}.attention_layer_norm", epsilon)
        inner = graph.linear(hidden, f"{at}.intermediate")
        inner = graph.activate(inner, config.hidden_act)
        added = graph("Add", graph.linear(inner, f"{at}.output"), hidden)
        is_last = index == config.num_hidden_layers - 1
        output = "last_hidden_state" if is_last else ""
        hidden = graph.norm(added, f"{at}.layer_norm", epsilon, output=output)


def _attention(graph: _Graph, module: str, hidden: str, bias: str, config: Any) -> str:
    def into_heads(name: str, axes: list[int]) -> str:
        # [batch, length, heads, head_dim]
        shape = [0, 0, config.num_attention_heads, config.head_dim]
        split = graph("Reshape", graph.linear(hidden, f"{module}.{name}"), shape)
        return graph("Transpose", split, perm=axes)

    query, value = (into_heads(name, [0, 2, 1, 3]) for name in ("query", "value"))
    scores = graph("MatMul", query, into_heads("key", [0, 2, 3, 1]))
    scores = graph("Add", graph("Div", scores, math.sqrt(config.head_dim)), bias)
    mixed = graph("MatMul", graph("Softmax", scores, axis=-1), value)
    mixed = graph("Transpose", mixed, perm=[0, 2, 1, 3])
    mixed = graph("Reshape", mixed, [0, 0, config.hidden_size])
    return graph.linear(mixed, f"{module}.output")


def _biases_by_distance(weights: Weights) -> np.ndarray | None:
    """Returns what the family adds to the scores of each head by how far the key is
    after the query, [heads, 2 * positions - 1], or None if it adds nothing."""
    config = weights.config
    trunk = FAMILIES[config.architecture].with_heads.trunk(config)
    ones = jnp.ones((1, config.max_position_embeddings), jnp.int32)
    params = {"params": weights.params["bert"]}
    mask = trunk.apply(params, ones, None, method="attention_mask")
    if mask.position_bias is None:
        return None
    pairs = np.asarray(mask.position_bias)[0]  # [heads, queries, keys]
    return np.concatenate([pairs[:, :0:-1, 0], pairs[:, 0]], axis=1)


def _add_head(
    graph: _Graph, weights: Weights, batch: str, length: str
) -> dict[str, list[Any]]:
    """Adds a head. Returns the shapes of the outputs."""
    config, last, heads = weights.config, "last_hidden_state", _parts(weights)
    labels = len(weights.labels)
    if "masked_lm" in heads:
        inner = graph.activate(graph.linear(last, "masked_lm.dense"), config.hidden_act)
        inner = graph.norm(inner, "masked_lm.layer_norm", config.layer_norm_eps)
        matrix = graph.array("bert.embeddings.word_embeddings.embedding")
        product = graph("MatMul", inner, graph("Transpose", matrix, perm=[1, 0]))
        graph("Add", product, graph.array("masked_lm.bias"), output="logits")
        return {"logits": [batch, length, config.vocab_size]}
    if "question_answering" in heads:
        logits = graph.linear(last, "question_answering")  # [batch, length, 2]
        names = ("start_logits", "end_logits")
        for index, name in enumerate(names):
            graph("Gather", logits, index, axis=2, output=name)
        return {name: [batch, length] for name in names}
    if "token_classification" in heads:
        graph.linear(last, "token_classification", output="logits")
        return {"logits": [batch, length, labels]}
    if "sequence_classification" in heads:
        own = "sequence_classification.dense"  # RoBERTa's and DistilBERT's
        module = own if f"{own}.kernel" in graph.params else "bert.pooler"
        first = graph("Gather", last, 0, axis=1)
        act = "relu" if config.architecture == "distilbert" else "tanh"
        inner = graph.activate(graph.linear(first, module), act)
        graph.linear(inner, "sequence_classification", output="logits")
        return {"logits": [batch, labels]}
    return {last: [batch, length, config.hidden_size]}


def _add_vectors(graph: _Graph, how: TextVectors, size: int) -> int:
    """Adds the pooling and what follows. Returns the size of a vector."""
    last = "last_hidden_state"
    mask = graph("Unsqueeze", "float_mask", [2])  # [batch, length, 1]

    def pool(mode: str) -> str:
        if mode == "cls":
            return graph("Gather", last, 0, axis=1)
        if mode == "max":
            real = graph("Cast", mask, to=9)  # bool
            kept = graph("Where", real, last, -math.inf)
            return graph("ReduceMax", kept, axes=[1], keepdims=0)
        total = graph("ReduceSum", graph("Mul", last, mask), [1], keepdims=0)
        count = graph("ReduceSum", mask, [1], keepdims=0)  # [batch, 1]
        return graph("Div", total, graph("Max", count, 1.0))

    pooled = [pool(mode) for mode in how.pooling.split("+")]
    vectors = graph("Concat", *pooled, axis=1) if pooled[1:] else pooled[0]
    size *= len(pooled)
    for index, layer in enumerate(how.dense):
        width, _, activation = layer.partition(":")
        vectors = graph.linear(vectors, f"{DENSE}.linear_{index}")
        vectors, size = graph.activate(vectors, activation), int(width)
    if how.normalized:
        lengths = graph("ReduceL2", vectors, axes=[1], keepdims=1)
        vectors = graph("Div", vectors, graph("Max", lengths, 1e-12))
    graph("Identity", vectors, output="sentence_embedding")
    return size
