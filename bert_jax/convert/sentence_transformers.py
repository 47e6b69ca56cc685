"""Sentence vectors as a folder of sentence-transformers defines them.

Its modules.json names the steps after the encoder: pooling, then perhaps linear layers
and a normalization.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from tokenizers import Tokenizer, normalizers

from bert_jax.convert.tensors import Tensors
from bert_jax.errors import UserError
from bert_jax.models.layers import pool_tokens
from bert_jax.runtime import untrusted

MODULES = "modules.json"
# The pooling modes of older files, in the order in which several are concatenated.
_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
}
_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "torch.nn.modules.linear.Identity": lambda x: x,
    "torch.nn.modules.activation.Tanh": jnp.tanh,
    "torch.nn.modules.activation.ReLU": jax.nn.relu,
    "torch.nn.modules.activation.GELU": lambda x: jax.nn.gelu(x, approximate=False),
}

Vectors = Float[Array, "batch size"]


class Pipeline(NamedTuple):
    """The steps from texts and their tokens' vectors to text vectors."""

    poolings: tuple[str, ...]
    steps: tuple[Callable[[Vectors], Vectors], ...]  # after pooling
    max_seq_length: int
    lowercase: bool
    prompt: str  # before each text

    def tokenizer(self, tokenizer: Tokenizer) -> Tokenizer:
        """Copies a tokenizer, to cut texts to `max_seq_length` tokens."""
        copy = Tokenizer.from_str(tokenizer.to_str())
        copy.enable_truncation(self.max_seq_length)
        if self.lowercase:
            others = [] if copy.normalizer is None else [copy.normalizer]
            copy.normalizer = normalizers.Sequence([normalizers.Lowercase(), *others])
        return copy

    def vectors(
        self,
        hidden: Float[Array, "batch length hidden"],
        mask: Int[Array, "batch length"],
    ) -> Vectors:
        """Computes each text's vector from its tokens' vectors."""
        pooled = [pool_tokens(hidden, mask, mode) for mode in self.poolings]
        vectors = jnp.concatenate(pooled, axis=-1)
        for step in self.steps:
            vectors = step(vectors)
        return vectors


def encoder_folder(folder: Path) -> Path:
    """Returns the folder of the encoder's weights: older versions have one inside."""
    if (folder / "config.json").exists() or not (folder / MODULES).exists():
        return folder
    return folder / _modules(folder)[0][1]


def read_modules(folder: Path, positions: int) -> Pipeline | None:
    """Reads the steps of a folder's modules. Returns None if it has no modules.json.

    Args:
      positions: Maximum number of tokens that the model takes.

    Raises:
      UserError: A module is not supported, or damaged.
    """
    if not (folder / MODULES).exists():
        return None
    (_, encoder), *modules = _modules(folder)
    if not modules or modules[0][0] != "Pooling":
        raise _unsupported(folder, "has no Pooling after the Transformer")
    poolings, all_of_it = _poolings(folder / modules[0][1])
    own = untrusted.read_optional(folder / "config_sentence_transformers.json")
    default = own.get("default_prompt_name")
    prompt = (own.get("prompts") or {}).get(default) or ""
    if prompt and not all_of_it:
        raise _unsupported(folder, "leaves its prompt out of the pooling")
    length, lowercase = _limits(folder / encoder, positions)
    steps = tuple(_step(folder / path, kind) for kind, path in modules[1:])
    return Pipeline(poolings, steps, length, lowercase, prompt)


def of_task(task: Mapping[str, Any]) -> Pipeline:
    """Returns the steps of a run of text vectors.

    Args:
      task: The run's `config.task`.
    """
    steps = (_normalized,) if task["normalized"] else ()
    return Pipeline((task["pooling"],), steps, task["max_seq_length"], False, "")


def files_of_task(task: Mapping[str, Any], size: int) -> dict[str, Any]:
    """Returns the contents of the JSON files that make an export of a run of text
    vectors a folder of sentence-transformers, by path.

    Args:
      size: Size of a vector.

    Raises:
      UserError: sentence-transformers has no such pooling.
    """
    mode = {"mean_all": "mean", "cls": "cls"}.get(task["pooling"])
    if mode is None:
        raise UserError(
            f"config.task.pooling={task['pooling']}: sentence-transformers pools all "
            "tokens or [CLS], so it cannot be exported; ask it with --mode=predict"
        )
    kinds = ["Transformer", "Pooling", *["Normalize"] * task["normalized"]]
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": f"{index}_{kind}" if index else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, kind in enumerate(kinds)
    ]
    pooling = {name: mode == own for name, own in _POOLINGS.items()}
    files: dict[str, Any] = {f"{each['path']}/config.json": {} for each in modules[2:]}
    return files | {
        MODULES: modules,
        "1_Pooling/config.json": {"word_embedding_dimension": size, **pooling},
        "sentence_bert_config.json": {
            "max_seq_length": task["max_seq_length"],
            "do_lower_case": False,
        },
        "config_sentence_transformers.json": {"similarity_fn_name": "cosine"},
    }


def _modules(folder: Path) -> list[tuple[str, str]]:
    """Returns the kind and the folder of each module. The first is a Transformer."""
    path = folder / MODULES
    modules = []
    for module in untrusted.parse_json(path.read_bytes(), str(path)):
        package, _, kind = module["type"].rpartition(".")
        if package.partition(".")[0] != "sentence_transformers":
            raise _unsupported(
                folder, f"has a module of its own code, {module['type']}"
            )
        modules.append((kind, module["path"]))
    if not modules or modules[0][0] != "Transformer":
        raise _unsupported(folder, "does not begin with a Transformer")
    return modules


def _poolings(folder: Path) -> tuple[tuple[str, ...], bool]:
    """Returns the modes, and whether prompts are pooled as well."""
    fields = untrusted.read_object(folder / "config.json")
    modes = fields.get("pooling_mode")
    if modes is None:
        own = sorted(
            n for n, x in fields.items() if x and n.startswith("pooling_mode_")
        )
        modes = [_POOLINGS.get(name, name) for name in own]
    modes = [modes] if isinstance(modes, str) else modes or ["mean"]
    if not {*modes} <= {*_POOLINGS.values()}:
        raise _unsupported(folder, f"pools by {modes!r:.80}")
    # Their mean includes all tokens.
    modes = ["mean_all" if mode == "mean" else mode for mode in modes]
    return tuple(modes), fields.get("include_prompt", True)


def _limits(folder: Path, positions: int) -> tuple[int, bool]:
    """Returns the maximum tokens of a text, and whether texts are lowercased."""
    paths = sorted(folder.glob("sentence_*_config.json"))
    fields = untrusted.read_object(paths[0]) if paths else {}
    length = fields.get("max_seq_length")
    if length is None:
        tokenizer = untrusted.read_optional(folder / "tokenizer_config.json")
        length = tokenizer.get("model_max_length")
    return int(min(length or positions, positions)), bool(fields.get("do_lower_case"))


def _step(folder: Path, kind: str) -> Callable[[Vectors], Vectors]:
    fields = untrusted.read_optional(folder / "config.json")
    for name in ("module_input_name", "module_output_name"):
        if fields.get(name) not in (None, "sentence_embedding"):
            raise _unsupported(folder, f"has {name}={fields[name]!r:.80}")
    if kind == "Dense":
        return _dense(folder, fields)
    if kind != "Normalize":
        raise _unsupported(folder, f"is a {kind}")
    return _normalized


def _normalized(vectors: Vectors) -> Vectors:
    lengths = jnp.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / jnp.maximum(lengths, 1e-12)


def _dense(folder: Path, fields: Mapping[str, Any]) -> Callable[[Vectors], Vectors]:
    act = fields.get("activation_function", "torch.nn.modules.activation.Tanh")
    if act not in _ACTIVATIONS or fields.get("use_residual"):
        raise _unsupported(folder, f"has activation_function={act!r:.80}")
    tensors = Tensors.of_folder(folder)
    weight = jnp.asarray(tensors.read("linear.weight"))
    has_bias = fields.get("bias", True)
    bias = jnp.asarray(tensors.read("linear.bias")) if has_bias else 0.0
    return lambda vectors: _ACTIVATIONS[act](vectors @ weight.T + bias)


def _unsupported(folder: Path, why: str) -> UserError:
    return UserError(
        f"{folder}: {why}, so sentence vectors cannot be computed as its makers do; "
        "encode, words, and sentences with a layer can be"
    )
