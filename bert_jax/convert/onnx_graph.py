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
from bert_jax.models.config import MASK_VALUE, BertConfig

FOLDER = "onnx"  # in an export, where optimum and transformers.js look
_PACKAGES = ("onnx", "onnxruntime")
_FAMILIES = ("bert", "roberta", "xlm_roberta", "camembert", "distilbert", "mpnet")
_HEADS = (
    *("masked_lm", "question_answering"),
    *("sequence_classification", "token_classification"),
)
# The first set of operators with a LayerNormalization, and the format of its time.
_OPSET, _FORMAT = 17, 8
_FLOAT, _INT64, _BOOL = 1, 7, 9  # onnx.TensorProto's numbers of types
_MAX_BYTES = 2**31 - 2**24  # of weights in the graph's own file, which protobuf limits
_LAST = "last_hidden_state"
_WORDS = "bert.embeddings.word_embeddings.embedding"


def check(weights: Weights, dtype: str) -> None:
    """Raises UserError if a model has no graph here, or a package is missing."""
    config, heads = weights.config, _heads(weights)
    if dtype not in ONNX_DTYPES:
        why = f"must be one of {', '.join(ONNX_DTYPES)}"
    elif config.architecture not in _FAMILIES:
        why = f"a model must be of one of these families: {', '.join(_FAMILIES)}"
    elif config.causal:
        why = "a left-to-right model has no graph"
    elif heads and not heads & {*_HEADS}:
        why = f"{weights.architecture} has no graph; models with {', '.join(_HEADS)} do"
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
    graph, path = _Graph(weights.params), folder / "model.onnx"
    model = _model(graph, weights)
    is_large = sum(array.nbytes for array in graph.arrays.values()) > _MAX_BYTES
    data = f"{path.name}_data"
    onnx.save(model, path, save_as_external_data=is_large, location=data)
    if dtype == "int8":
        from onnxruntime.quantization import quantize_dynamic

        quantize_dynamic(path, folder / "model_quantized.onnx", per_channel=True)


def _heads(weights: Weights) -> set[str]:
    """Returns the heads of which the graph has one. Vectors of texts have none."""
    layout = FAMILIES[weights.config.architecture].layout
    parts = layout.architectures.get(weights.architecture, ())
    return {*parts} - {"pooler"} if weights.vectors is None else set()


class _Graph:
    """Operators and weights. A value is known by its name, and each method that adds
    operators returns the name of their result.

    Attributes:
      params: The model's parameters by path, joined by dots.
      nodes: Arguments of `onnx.helper.make_node` for each operator, in order.
      arrays: The weights and other constants by name.
    """

    def __init__(self, params: Mapping[str, Any]):
        self.params: Mapping[str, Any] = flatten_dict(params, sep=".")
        self.nodes: list[dict[str, Any]] = []
        self.arrays: dict[str, np.ndarray] = {}

    def __call__(
        self, operator: str, *inputs: Any, output: str = "", **attributes: Any
    ) -> str:
        """Adds an operator.

        Args:
          inputs: Names of values, or numbers and lists of integers.
          output: Name of the result. Empty means any.
        """
        names = []
        for value in inputs:
            if isinstance(value, str):
                names.append(value)
                continue
            dtype = np.float32 if isinstance(value, float) else np.int64
            names.append(self.array(f"constant {value}", np.asarray(value, dtype)))
        output = output or f"{operator}_{len(self.nodes)}"
        values = {"op_type": operator, "inputs": names, "outputs": [output]}
        self.nodes.append({**values, "name": output, **attributes})
        return output

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
        inputs = (x, self.array(f"{module}.scale"), self.array(f"{module}.bias"))
        return self("LayerNormalization", *inputs, epsilon=epsilon, output=output)

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


def _model(graph: _Graph, weights: Weights) -> Any:
    """Returns the model, for any number of texts of any length."""
    from onnx import helper, numpy_helper

    batch, length = "batch_size", "sequence_length"
    names = ["input_ids", "attention_mask"]
    names += ["token_type_ids"] * FAMILIES[weights.config.architecture].has_segments
    inputs = dict.fromkeys(names, (batch, length))
    _add_encoder(graph, weights)
    hidden = (batch, length, weights.config.hidden_size)
    outputs: dict[str, tuple[Any, ...]] = {_LAST: hidden}
    if weights.vectors is not None:
        size = _add_vectors(graph, weights.vectors, weights.config.hidden_size)
        outputs["sentence_embedding"] = (batch, size)
    elif heads := _heads(weights):
        axes = _add_head(graph, weights, heads)
        is_of_text = "sequence_classification" in heads
        rows = (batch,) if is_of_text else (batch, length)
        outputs = {name: (*rows, *rest) for name, rest in axes.items()}
    made = helper.make_graph(
        [helper.make_node(**node) for node in graph.nodes],
        weights.architecture,
        [helper.make_tensor_value_info(x, _INT64, inputs[x]) for x in inputs],
        [helper.make_tensor_value_info(x, _FLOAT, outputs[x]) for x in outputs],
        [numpy_helper.from_array(x, name) for name, x in graph.arrays.items()],
    )
    opsets = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(made, opset_imports=opsets, ir_version=_FORMAT)
    # The graph is ready for quantization, which otherwise warns.
    helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})
    return model


def _add_encoder(graph: _Graph, weights: Weights) -> None:
    """Adds embeddings and layers, up to `last_hidden_state`."""
    config, epsilon = weights.config, weights.config.layer_norm_eps
    family = FAMILIES[config.architecture]
    length = graph("Gather", graph("Shape", "input_ids"), 1)
    places = graph("Range", 0, length, 1)  # [length]
    ids: dict[str, Any] = {"word": "input_ids", "position": places}
    if (first := family.layout.first_position) > 0:  # RoBERTa's, after padding's
        real = graph("Not", graph("Equal", "input_ids", first - 1))
        real = graph("Cast", real, to=_INT64)
        count = graph("Mul", graph("CumSum", real, 1), real)
        ids["position"] = graph("Add", count, first - 1)  # [batch, length]
    if "bert.embeddings.token_type_embeddings.embedding" in graph.params:
        ids["token_type"] = "token_type_ids" if family.has_segments else 0
    hidden = ""
    for name, index in ids.items():
        table = graph.array(f"bert.embeddings.{name}_embeddings.embedding")
        vectors = graph("Gather", table, index)
        hidden = graph("Add", hidden, vectors) if hidden else vectors
    hidden = graph.norm(hidden, "bert.embeddings.layer_norm", epsilon)

    mask = graph("Cast", "attention_mask", to=_FLOAT)
    padding = graph("Unsqueeze", graph("Sub", 1.0, mask), [1, 2])
    bias = graph("Mul", padding, MASK_VALUE)  # [batch, 1, 1, length]
    if (by_distance := _biases_by_distance(weights)) is not None:
        table = graph.array("bert.relative_bias", by_distance)
        keys, queries = (graph("Unsqueeze", places, [axis]) for axis in (0, 1))
        after = graph("Sub", keys, queries)  # [queries, keys]
        column = graph("Add", after, by_distance.shape[1] // 2)
        # [batch, heads, queries, keys]
        bias = graph("Add", bias, graph("Gather", table, column, axis=1))
    for index in range(config.num_hidden_layers):
        at = f"bert.encoder.layer_{index}"
        mixed = _attention(graph, f"{at}.attention", hidden, bias, config)
        added = graph("Add", mixed, hidden)
        hidden = graph.norm(added, f"{at}.attention_layer_norm", epsilon)
        inner = graph.linear(hidden, f"{at}.intermediate")
        inner = graph.activate(inner, config.hidden_act)
        added = graph("Add", graph.linear(inner, f"{at}.output"), hidden)
        output = _LAST if index == config.num_hidden_layers - 1 else ""
        hidden = graph.norm(added, f"{at}.layer_norm", epsilon, output)


def _attention(
    graph: _Graph, module: str, hidden: str, bias: str, config: BertConfig
) -> str:
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
    graph: _Graph, weights: Weights, heads: set[str]
) -> dict[str, tuple[int, ...]]:
    """Adds a head. Returns its outputs with their axes after the batch and length."""
    config = weights.config
    if "masked_lm" in heads:
        inner = graph.linear(_LAST, "masked_lm.dense")
        inner = graph.activate(inner, config.hidden_act)
        inner = graph.norm(inner, "masked_lm.layer_norm", config.layer_norm_eps)
        matrix = graph("Transpose", graph.array(_WORDS), perm=[1, 0])
        bias = graph.array("masked_lm.bias")
        graph("Add", graph("MatMul", inner, matrix), bias, output="logits")
        return {"logits": (config.vocab_size,)}
    if "question_answering" in heads:
        logits = graph.linear(_LAST, "question_answering")  # [batch, length, 2]
        graph("Gather", logits, 0, axis=2, output="start_logits")
        graph("Gather", logits, 1, axis=2, output="end_logits")
        return {"start_logits": (), "end_logits": ()}
    if "token_classification" in heads:
        graph.linear(_LAST, "token_classification", "logits")
        return {"logits": (len(weights.labels),)}
    dense = "sequence_classification.dense"  # RoBERTa's and DistilBERT's
    module = dense if f"{dense}.kernel" in graph.params else "bert.pooler"
    act = "relu" if config.architecture == "distilbert" else "tanh"
    first = graph.linear(graph("Gather", _LAST, 0, axis=1), module)
    graph.linear(graph.activate(first, act), "sequence_classification", "logits")
    return {"logits": (len(weights.labels),)}


def _add_vectors(graph: _Graph, how: TextVectors, size: int) -> int:
    """Adds pooling and what follows it, up to `sentence_embedding`. Returns its size.

    Args:
      size: Size of the encoder's vectors.
    """
    mask = graph("Unsqueeze", "attention_mask", [2])  # [batch, length, 1]

    def pool(mode: str) -> str:
        if mode == "cls":
            return graph("Gather", _LAST, 0, axis=1)
        if mode == "max":
            kept = graph("Where", graph("Cast", mask, to=_BOOL), _LAST, -math.inf)
            return graph("ReduceMax", kept, axes=[1], keepdims=0)
        factors = graph("Cast", mask, to=_FLOAT)
        total = graph("ReduceSum", graph("Mul", _LAST, factors), [1], keepdims=0)
        count = graph("ReduceSum", factors, [1], keepdims=0)  # [batch, 1]
        return graph("Div", total, graph("Max", count, 1.0))

    pooled = [pool(mode) for mode in how.pooling.split("+")]
    vectors, size = graph("Concat", *pooled, axis=1), size * len(pooled)
    for index, layer in enumerate(how.dense):
        width, _, activation = layer.partition(":")
        vectors = graph.linear(vectors, f"{DENSE}.linear_{index}")
        vectors, size = graph.activate(vectors, activation), int(width)
    if how.normalized:
        lengths = graph("ReduceL2", vectors, axes=[1], keepdims=1)
        vectors = graph("Div", vectors, graph("Max", lengths, 1e-12))
    graph("Identity", vectors, output="sentence_embedding")
    return size
