"""ELMo's released files, options.json and weights.hdf5 (allenai/bilm-tf): in, out."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float

from bert_jax.errors import UserError, first_line
from bert_jax.families.elmo.config import GATES, ElmoConfig
from bert_jax.runtime import untrusted

OPTIONS, WEIGHTS = "options.json", "weights.hdf5"
_RELEASED = 262  # ids of characters. While it trains, bilm has no row for "no word"

Values = dict[str, Float[np.ndarray, "..."]]


def read_options(folder: Path) -> ElmoConfig:
    """Reads the sizes in options.json.

    Raises:
      UserError: It is missing or damaged, or no model here can be so.
    """
    path, fields = folder / OPTIONS, untrusted.read_object(folder / OPTIONS)
    if "char_cnn" not in fields:
        raise UserError(f"{path}: has no char_cnn; a model of whole words is not read")
    try:
        lstm, cnn = fields["lstm"], fields["char_cnn"]
        return ElmoConfig(
            # The released files are without their softmax.
            vocab_size=max(1, fields.get("n_tokens_vocab", 1)),
            hidden_size=lstm["projection_dim"],
            intermediate_size=lstm["dim"],
            num_hidden_layers=lstm.get("n_layers", 1),
            filters=tuple((width, number) for width, number in cnn["filters"]),
            activation=cnn["activation"],
            highways=cnn.get("n_highway") or 0,
            character_size=cnn["embedding"]["dim"],
            max_characters=cnn["max_characters_per_token"],
            cell_clip=float(lstm.get("cell_clip") or 0),
            projection_clip=float(lstm.get("proj_clip") or 0),
            skip=bool(lstm.get("use_skip_connections")),
            dropout=float(fields.get("dropout") or 0),
        )
    except (UserError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: not of a model that bilm writes: {error}") from error


def read(folder: Path) -> tuple[ElmoConfig, dict[str, Any]]:
    """Reads the sizes, and the parameters of `bert_jax.families.elmo.model.Elmo`.

    Raises:
      UserError: A file is missing or damaged, the two do not fit together, or h5py is
        not installed.
    """
    config = read_options(folder)
    path = folder / WEIGHTS
    if not path.is_file():
        raise UserError(f"{folder}: has no {WEIGHTS}")
    with _opened(path) as file:
        arrays = {
            name: _dataset(file, name, shape, path)
            for name, shape in _shapes(config).items()
        }
    return config, _params(arrays, config)


def write(
    folder: Path, config: ElmoConfig, params: Mapping[str, Any], *, batch_size: int
) -> None:
    """Writes both files into an existing folder.

    Args:
      params: Parameters of `bert_jax.families.elmo.model.Elmo`.
      batch_size: Batch size of the training, for users who continue with bilm.

    Raises:
      OSError: They cannot be written, such as on a full disk.
    """
    # In memory first: HDF5 cannot close a file on a full disk, and says so at length.
    with library().File(WEIGHTS, "w", driver="core", backing_store=False) as file:
        for name, value in _values(params, config).items():
            file.create_dataset(name, data=np.asarray(value, np.float32))
        file.flush()
        (folder / WEIGHTS).write_bytes(file.id.get_file_image())
    options = {
        "bidirectional": True,
        "char_cnn": {
            "activation": config.activation,
            "embedding": {"dim": config.character_size},
            "filters": [list(pair) for pair in config.filters],
            "max_characters_per_token": config.max_characters,
            "n_characters": _RELEASED,
            "n_highway": config.highways,
        },
        "dropout": config.dropout,
        "lstm": {
            "cell_clip": config.cell_clip,
            "dim": config.intermediate_size,
            "n_layers": config.num_hidden_layers,
            "proj_clip": config.projection_clip,
            "projection_dim": config.hidden_size,
            "use_skip_connections": config.skip,
        },
        "batch_size": batch_size,
        "n_tokens_vocab": config.vocab_size,
    }
    text = json.dumps(options, indent=2) + "\n"
    (folder / OPTIONS).write_text(text, encoding="utf-8")


def _shapes(config: ElmoConfig) -> dict[str, tuple[int, ...]]:
    """Returns the shape of every array of weights.hdf5, by its name there."""
    size, wide = config.hidden_size, config.convolution_size
    inner = config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "char_embed": (_RELEASED - 1, config.character_size)
    }
    for i, (width, number) in enumerate(config.filters):
        shapes[f"CNN/W_cnn_{i}"] = (1, width, config.character_size, number)
        shapes[f"CNN/b_cnn_{i}"] = (number,)
    for i in range(config.highways):
        for name in ("carry", "transform"):
            shapes[f"CNN_high_{i}/W_{name}"] = (wide, wide)
            shapes[f"CNN_high_{i}/b_{name}"] = (wide,)
    if wide != size:
        shapes |= {"CNN_proj/W_proj": (wide, size), "CNN_proj/b_proj": (size,)}
    for direction in (0, 1):
        for i in range(config.num_hidden_layers):
            root = _cell(direction, i)
            shapes[f"{root}/W_0"] = (2 * size, GATES * inner)
            shapes[f"{root}/B"] = (GATES * inner,)
            shapes[f"{root}/W_P_0"] = (inner, size)
    return shapes


def _params(arrays: Values, config: ElmoConfig) -> dict[str, Any]:
    table = arrays["char_embed"]
    # As bilm reads it: a row of zeros for no word comes first.
    cnn = {"char_embed": np.concatenate([np.zeros_like(table[:1]), table])}
    cnn |= {ours: arrays[saved_name] for ours, saved_name in _same(config).items()}
    for i in range(len(config.filters)):
        cnn[f"W_cnn_{i}"] = arrays[f"CNN/W_cnn_{i}"][0]
    params: dict[str, Any] = {"cnn": cnn}
    gates = (GATES, config.intermediate_size)
    for i in range(config.num_hidden_layers):
        kernel, bias, down = (
            np.stack([arrays[f"{_cell(direction, i)}/{name}"] for direction in (0, 1)])
            for name in ("W_0", "B", "W_P_0")
        )
        params[f"lstm_{i}"] = {
            "kernel": kernel.reshape(*kernel.shape[:2], *gates),
            "bias": bias.reshape(2, *gates),
            "projection": down,
        }
    return params


def _values(params: Mapping[str, Any], config: ElmoConfig) -> Values:
    """Inverts `_params`."""
    cnn = params["cnn"]
    values = {"char_embed": cnn["char_embed"][1:]}
    values |= {saved_name: cnn[ours] for ours, saved_name in _same(config).items()}
    for i in range(len(config.filters)):
        values[f"CNN/W_cnn_{i}"] = cnn[f"W_cnn_{i}"][None]
    for i in range(config.num_hidden_layers):
        layer = params[f"lstm_{i}"]
        for direction in (0, 1):
            root, kernel = _cell(direction, i), layer["kernel"][direction]
            values[f"{root}/W_0"] = kernel.reshape(len(kernel), -1)
            values[f"{root}/B"] = layer["bias"][direction].reshape(-1)
            values[f"{root}/W_P_0"] = layer["projection"][direction]
    return values


def _same(config: ElmoConfig) -> dict[str, str]:
    """Returns our names of the arrays that have the same shape there, and theirs."""
    names = {f"b_cnn_{i}": f"CNN/b_cnn_{i}" for i in range(len(config.filters))}
    for i in range(config.highways):
        for kind in ("W", "b"):
            for name in ("carry", "transform"):
                names[f"{kind}_high_{i}_{name}"] = f"CNN_high_{i}/{kind}_{name}"
    if config.convolution_size != config.hidden_size:
        names |= {"W_proj": "CNN_proj/W_proj", "b_proj": "CNN_proj/b_proj"}
    return names


def _cell(direction: int, layer: int) -> str:
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"


def _dataset(
    file: Any, name: str, shape: tuple[int, ...], path: Path
) -> Float[np.ndarray, "..."]:
    if name not in file:
        raise UserError(f"{path}: has no {name}, which {OPTIONS} asks for")
    dataset = file[name]
    if dataset.shape != shape or dataset.dtype.kind != "f":
        raise UserError(
            f"{path}: {name} is {dataset.dtype} {dataset.shape}, but {OPTIONS} asks "
            f"for {shape}"
        )
    array = dataset.astype(np.float32)[...]
    if not np.isfinite(array).all():
        raise UserError(f"{path}: {name} has NaN or infinity; the file is damaged")
    return array


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with library().File(path, "r") as file:
            yield file
    except (OSError, RuntimeError) as error:
        why = first_line(error)
        raise UserError(f"{path}: not an HDF5 file that can be used ({why})") from error


def library() -> ModuleType:
    """Imports h5py. Raises UserError if it is not installed."""
    try:
        import h5py
    except ImportError as error:
        raise UserError(
            f"{WEIGHTS}: ELMo's weights need h5py; pip install '.[elmo]'"
        ) from error
    return h5py
