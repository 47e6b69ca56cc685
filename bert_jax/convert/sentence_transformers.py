"""Vectors of texts as a folder of sentence-transformers defines them.

Its modules.json names the steps after the encoder: pooling, then perhaps linear layers
and a normalization.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save_file

from bert_jax.convert.tensors import WEIGHTS, Tensors
from bert_jax.errors import UserError
from bert_jax.runtime import untrusted

MODULES = "modules.json"
DENSE = "dense"  # name of the linear layers among the parameters
# Fields of `config.task` that a folder's modules decide.
FIELDS = ("pooling", "dense", "normalized", "max_seq_length", "prompt", "prompts")
# Prompts that every model has, empty unless it says otherwise.
_EMPTY_PROMPTS = ("query", "document")
_OWN = "config_sentence_transformers.json"
# Their pooling modes and ours. Their mean includes all tokens.
_POOLINGS = {"cls": "cls", "max": "max", "mean": "mean_all"}
# The modes in older files, in the order in which several are concatenated.
_OLD_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
}
_TORCH = "torch.nn.modules."
_ACTIVATIONS = {
    f"{_TORCH}linear.Identity": "identity",
    f"{_TORCH}activation.Tanh": "tanh",
    f"{_TORCH}activation.ReLU": "relu",
    f"{_TORCH}activation.GELU": "gelu",
}


class TextVectors(NamedTuple):
    """How a text becomes a vector: fields of `config.task`, and named prompts."""

    pooling: str  # how the tokens' vectors become one
    dense: tuple[str, ...]  # linear layers after it, each SIZE:ACTIVATION
    normalized: bool  # whether vectors have the length 1
    max_seq_length: int  # tokens of a text, to which it is cut
    prompt: str = ""  # before each text
    prompts: tuple[str, ...] = ()  # each NAME=TEXT
    pools_prompt: bool = True  # whether a prompt's tokens are pooled too
    similarity: str = "cosine"  # by which vectors are compared
    dimensions: tuple[int, ...] = ()  # sizes to which the vectors may be cut

    def task_fields(self) -> dict[str, Any]:
        """Returns the values of these fields of a config, by `task.NAME`."""
        found = {f"task.{name}": getattr(self, name) for name in FIELDS}
        # A run pools its prompts.
        return found if self.pools_prompt else found | {"task.prompts": ()}

    def find_prompt(self, prompt: str | None) -> str:
        """Returns the text of a prompt.

        Args:
          prompt: The text, or the name of one. None means the default.

        Raises:
          UserError: There is no prompt of that name. Or the pooling leaves prompts out,
            which is not supported.
        """
        named = dict.fromkeys(_EMPTY_PROMPTS, "") | self.prompt_texts()
        text = self.prompt if prompt is None else named.get(prompt, prompt)
        if prompt not in named and re.fullmatch(r"[\w-]+", prompt or ""):
            raise UserError(
                f"prompt={prompt!r}: the model has no prompt of that name, but "
                f"{', '.join(named)}; a text ends in a space or a colon"
            )
        if text and not self.pools_prompt:
            raise UserError(
                f"prompt={prompt!r}: the model's pooling leaves prompts out, which is "
                "not supported"
            )
        return text

    def prompt_texts(self) -> dict[str, str]:
        """Returns the text of each prompt by name."""
        return {
            name: text for name, _, text in (x.partition("=") for x in self.prompts)
        }


def encoder_folder(folder: Path) -> Path:
    """Returns the folder of the encoder's weights: older versions have one inside."""
    if (folder / "config.json").exists() or not (folder / MODULES).exists():
        return folder
    return folder / _modules(folder)[0][1]


def read_modules(encoder: Path, positions: int) -> TextVectors | None:
    """Reads the steps after an encoder. Returns None if there are none.

    Args:
      encoder: Folder of the encoder's weights.
      positions: Maximum number of tokens that the model takes.

    Raises:
      UserError: A module is not supported, or damaged.
    """
    folder = _find_modules_folder(encoder)
    if folder is None:
        return None
    own = untrusted.read_optional(folder / _OWN)
    if own.get("model_type") == "CrossEncoder":
        return None
    _, *modules = _modules(folder)
    if not modules or modules[0][0] != "Pooling":
        raise _unsupported_error(folder, "has no Pooling after the Transformer")
    kinds = [kind for kind, _ in modules[1:]]
    normalized = kinds[-1:] == ["Normalize"]
    dense = modules[1 : len(modules) - normalized]
    for kind, path in dense:
        if kind != "Dense":
            raise _unsupported_error(folder / path, f"is a {kind} before the end")
    pooling, pools_prompt = _pooling(folder / modules[0][1])
    prompts = own.get("prompts") or {}
    prompt = prompts.get(own.get("default_prompt_name")) or ""
    if prompt and not pools_prompt:
        raise _unsupported_error(folder, "leaves its prompt out of the pooling")
    layers = tuple(_layer(folder / path) for _, path in dense)
    paths = sorted(encoder.glob("sentence_*_config.json"))
    length = (untrusted.read_object(paths[0]) if paths else {}).get("max_seq_length")
    if length is None:
        tokenizer = untrusted.read_optional(encoder / "tokenizer_config.json")
        length = tokenizer.get("model_max_length")
    length = int(min(length or positions, positions))
    named = tuple(f"{name}={text}" for name, text in prompts.items() if text)
    similarity = own.get("similarity_fn_name") or "cosine"
    return TextVectors(
        pooling, layers, normalized, length, prompt, named, pools_prompt, similarity
    )


def read_dense(encoder: Path) -> dict[str, Any]:
    """Reads the linear layers that `read_modules` has found, as parameters of
    `models.heads.VectorLayers`."""
    folder = _find_modules_folder(encoder)
    paths = [] if folder is None else _modules(folder)
    dense = [folder / path for kind, path in paths if folder and kind == "Dense"]
    params = {}
    for index, path in enumerate(dense):
        tensors = Tensors.open_folder(path)
        kernel = tensors.read("linear.weight").T
        has_bias = "linear.bias" in tensors.shapes
        bias = tensors.read("linear.bias") if has_bias else np.zeros(kernel.shape[1:])
        params[f"linear_{index}"] = {"kernel": kernel, "bias": bias.astype(np.float32)}
    return params


def check_export(vectors: TextVectors) -> None:
    """Raises UserError if sentence-transformers has no such pooling."""
    if not {*vectors.pooling.split("+")} <= {*_POOLINGS.values()}:
        raise UserError(
            f"config.task.pooling={vectors.pooling}: sentence-transformers pools all "
            "tokens or [CLS], so it cannot be exported; ask it with --mode=predict"
        )


def module_files(
    vectors: TextVectors, dense: Mapping[str, Any], hidden: int
) -> dict[str, Any]:
    """Returns the files that make an export a folder of sentence-transformers: their
    content, JSON or the tensors of safetensors, by path.

    Args:
      dense: Parameters of the linear layers.
      hidden: Size of the encoder's vectors.
    """
    modes = [vectors.pooling] if "+" not in vectors.pooling else []
    modes = modes or vectors.pooling.split("+")
    kinds = ["Transformer", "Pooling", *["Dense"] * len(vectors.dense)]
    kinds += ["Normalize"] * vectors.normalized
    paths = [f"{index}_{kind}" if index else "" for index, kind in enumerate(kinds)]
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": path,
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    pooling = {old: _POOLINGS[new] in modes for old, new in _OLD_POOLINGS.items()}
    files: dict[str, Any] = {f"{path}/config.json": {} for path in paths[2:]}
    size = hidden * len(modes)
    for index, (path, layer) in enumerate(zip(paths[2:], vectors.dense, strict=False)):
        width, _, activation = layer.partition(":")
        theirs = {ours: name for name, ours in _ACTIVATIONS.items()}
        files[f"{path}/config.json"] = {
            "in_features": size,
            "out_features": int(width),
            "bias": True,
            "activation_function": theirs[activation],
        }
        own, size = dense[f"linear_{index}"], int(width)
        files[f"{path}/{WEIGHTS}"] = {
            "linear.weight": np.ascontiguousarray(np.asarray(own["kernel"]).T),
            "linear.bias": np.asarray(own["bias"]),
        }
    prompts = dict.fromkeys(_EMPTY_PROMPTS, "") | vectors.prompt_texts()
    if vectors.prompt and vectors.prompt not in prompts.values():
        prompts["default"] = vectors.prompt
    default = [name for name, text in prompts.items() if text == vectors.prompt != ""]
    return files | {
        MODULES: modules,
        "1_Pooling/config.json": {
            "word_embedding_dimension": hidden,
            **pooling,
            "include_prompt": vectors.pools_prompt,
        },
        "sentence_bert_config.json": {
            "max_seq_length": vectors.max_seq_length,
            "do_lower_case": False,
        },
        _OWN: {
            "similarity_fn_name": vectors.similarity,
            "prompts": prompts,
            "default_prompt_name": next(iter(default), None),
        },
    }


def write_modules(
    vectors: TextVectors, dense: Mapping[str, Any], hidden: int, folder: Path
) -> dict[str, Any]:
    """Writes the tensors of `module_files` into a folder of an export. Returns the
    other files, which are JSON."""
    files = module_files(vectors, dense, hidden)
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True)
    for name in [name for name in files if name.endswith(WEIGHTS)]:
        save_file(files.pop(name), folder / name, metadata={"format": "pt"})
    return files


def _find_modules_folder(encoder: Path) -> Path | None:
    """Returns the folder of the modules.json that names an encoder, or None."""
    if (encoder / MODULES).exists():
        return encoder
    outer = encoder.absolute().parent
    if (outer / MODULES).exists() and _modules(outer)[0][1] == encoder.name:
        return outer
    return None


def _modules(folder: Path) -> list[tuple[str, str]]:
    """Returns the kind and the folder of each module. The first is a Transformer."""
    path = folder / MODULES
    modules = []
    for module in untrusted.parse_json(path.read_bytes(), str(path)):
        package, _, kind = module["type"].rpartition(".")
        if package.partition(".")[0] != "sentence_transformers":
            raise _unsupported_error(
                folder, f"has a module of its own code, {module['type']}"
            )
        modules.append((kind, module["path"]))
    if not modules or modules[0][0] != "Transformer":
        raise _unsupported_error(folder, "does not begin with a Transformer")
    return modules


def _pooling(folder: Path) -> tuple[str, bool]:
    """Returns the modes, and whether prompts are pooled as well."""
    fields = untrusted.read_object(folder / "config.json")
    modes = fields.get("pooling_mode")
    if modes is None:
        own = sorted(
            n for n, x in fields.items() if x and n.startswith("pooling_mode_")
        )
        modes = [_OLD_POOLINGS.get(name, name) for name in own]
    modes = [modes] if isinstance(modes, str) else modes or ["mean"]
    if not {*modes} <= {*_POOLINGS}:
        raise _unsupported_error(folder, f"pools by {modes!r:.80}")
    joined = "+".join(_POOLINGS[mode] for mode in modes)
    return joined, fields.get("include_prompt", True)


def _layer(folder: Path) -> str:
    """Returns a linear layer as `config.task.dense` has it."""
    fields = untrusted.read_optional(folder / "config.json")
    for name in ("module_input_name", "module_output_name"):
        if fields.get(name) not in (None, "sentence_embedding"):
            raise _unsupported_error(folder, f"has {name}={fields[name]!r:.80}")
    act = fields.get("activation_function", f"{_TORCH}activation.Tanh")
    if act not in _ACTIVATIONS or fields.get("use_residual"):
        raise _unsupported_error(folder, f"has activation_function={act!r:.80}")
    size, _ = Tensors.open_folder(folder).shapes.get("linear.weight", (0, 0))
    return f"{size}:{_ACTIVATIONS[act]}"


def _unsupported_error(folder: Path, why: str) -> UserError:
    return UserError(
        f"{folder}: {why}, so sentence vectors cannot be computed as its makers do; "
        "encode, words, and sentences with a layer can be"
    )
