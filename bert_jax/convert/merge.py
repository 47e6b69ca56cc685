"""Replaces a run's initial parameters with weights that were read."""

import dataclasses
import json
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.convert.layout import Weights
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES, GENERATOR
from bert_jax.models.config import BertConfig
from bert_jax.models.stacking import stack_layers
from bert_jax.runtime.storage import Path

# Fields that no parameter's shape determines.
_DECISIVE = (
    *("architecture", "num_hidden_layers", "hidden_act", "layer_norm_eps", "causal"),
    *("layer", "positions"),
)


class Report(NamedTuple):
    """Names of the parameters that `merge_weights` loaded or not. `Weights` has the
    facts."""

    source: str  # path or name of the weights
    architecture: str  # `Weights.architecture`
    taken: tuple[str, ...]  # loaded
    initialised: tuple[str, ...]  # new, since the weights lack them
    left_over: tuple[str, ...]  # names in the weights that the model does not use
    facts: Mapping[str, Any] = {}  # the run's fitted values other than weights

    @property
    def missing(self) -> tuple[str, ...]:
        """Parts that the weights lack, fully or partly, such as `bert/pooler`."""
        depth = {"bert": 2}  # parts of a name, one for a head
        paths = (name.split("/") for name in self.initialised)
        return tuple(sorted({"/".join(x[: depth.get(x[0], 1)]) for x in paths}))

    def table(self) -> tuple[list[tuple[str, int, str]], tuple[str, str, str]]:
        """Returns rows and header of a short table: action, number of arrays, parts."""

        def heads(names: Sequence[str]) -> Collection[str]:
            """Returns `bert` for bert/pooler/kernel, and other projects' names."""
            return dict.fromkeys(name.partition("/")[0] for name in names)

        rows = [
            (what, len(names), textwrap.shorten(", ".join(parts), 60))
            for what, names, parts in (
                ("taken", self.taken, heads(self.taken)),
                ("new, untrained", self.initialised, self.missing),
                ("left over", self.left_over, heads(self.left_over)),
            )
        ]
        return rows, ("", "arrays", "of")

    def to_json(self) -> str:
        return json.dumps(self._asdict(), indent=2) + "\n"


def merge_weights(
    initial: Mapping[str, Any], weights: Weights, config: BertConfig, source: str | Path
) -> tuple[dict[str, Any], Report]:
    """Replaces initial parameters with weights of the same name.

    Args:
      initial: The model's own parameters, unboxed, with layers stacked or not.
      config: Config of the model.
      source: Path of `weights`, for the report and errors.

    Returns:
      Parameters of the same structure and sharding, and the report. Heads, a pooler and
      a custom layer's parts that the weights lack keep their initial values.

    Raises:
      UserError: The models differ in a shape or in _DECISIVE. A layer may differ if it
        `starts_from` the weights'.
    """
    params, family = weights.params, FAMILIES[config.architecture]
    if GENERATOR in initial:
        others = {name: other.params for name, other in weights.others.items()}
        params = family.replaced_tokens.join(params, others)
    if "layers" in initial["bert"]["encoder"]:
        params = stack_layers(params, weights.config.num_hidden_layers)
    model, saved = (vars(x) | dict(x.family_fields) for x in (config, weights.config))
    own = family.fields.items()
    free = {
        n.removeprefix("model.") for n, f in own if f.fixed_by == "weights_by_default"
    }
    if weights.config.layer in config.layer_class.starts_from:
        free.add("layer")
    for field in (*_DECISIVE, *(name for name, _ in config.family_fields)):
        if field not in free and model[field] != saved[field]:
            raise UserError(
                f"config.model.{field}={model[field]!r}, but {source} has "
                f"{saved[field]!r}: set --config.model.{field}={saved[field]}"
            )
    read, ours = flatten_dict(params), flatten_dict(initial)
    taken, merged = [], dict(ours)
    for path, leaf in ours.items():
        if path not in read:
            continue
        name, array = "/".join(path), read.pop(path)
        if leaf.shape != array.shape:
            raise UserError(
                f"{name} has the shape {array.shape} in {source}, but the config "
                f"requires {leaf.shape}"
            )
        taken.append(name)
        merged[path] = _place_array(array, leaf.sharding)
    report = Report(
        source=str(source),
        architecture=weights.architecture,
        taken=tuple(taken),
        initialised=tuple(n for n in map("/".join, ours) if n not in taken),
        left_over=(*("/".join(path) for path in read), *weights.left_over),
        facts=weights.provenance.get("task", {}),
    )
    return unflatten_dict(merged), report


def _place_array(array: Any, sharding: jax.sharding.Sharding) -> jax.Array:
    """Puts the array on the devices. Each process handles its own devices."""
    if sharding.is_fully_addressable:
        return jax.device_put(array, sharding)
    return jax.make_array_from_callback(array.shape, sharding, array.__getitem__)


def require_complete(params: Any, report: Report, unused: Collection[str] = ()) -> Any:
    """Returns the parameters. All that are used must have been read.

    Args:
      unused: Parts that the mode does not need (`Task.unused_parameters`), zeros if
        missing.

    Raises:
      UserError: Another part is missing.
    """
    needed = [part for part in report.missing if part not in unused]
    if needed:
        raise UserError(
            f"{report.source}: {report.architecture} without what this task needs: "
            f"{', '.join(needed)}; train it first, with --config.init_from"
        )

    return jax.tree.map(
        lambda leaf: (
            jnp.zeros(leaf.shape, leaf.dtype, device=leaf.sharding)
            if isinstance(leaf, jax.ShapeDtypeStruct)
            else leaf
        ),
        params,
    )


def keep_layers(weights: Weights, layers: Sequence[int], source: str | Path) -> Weights:
    """Returns the weights of some layers, in this order, and of everything else.

    Args:
      layers: Values of `config.init_layers`.

    Raises:
      UserError: There is no such layer, or all layers have the same parameters.
    """
    encoder = dict(weights.params["bert"]["encoder"])
    count = weights.config.num_hidden_layers
    if count > 1 and "layer_1" not in encoder:
        raise UserError(
            f"config.init_layers={tuple(layers)}: the layers of {source} have the same "
            "parameters; leave it out"
        )
    found = [encoder.pop(f"layer_{index}") for index in range(count)]
    if max(layers) >= count:
        raise UserError(
            f"config.init_layers={tuple(layers)}: {source} has the layers 0 to "
            f"{count - 1}"
        )
    encoder |= {f"layer_{new}": found[old] for new, old in enumerate(layers)}
    trunk = {**weights.params["bert"], "encoder": encoder}
    return dataclasses.replace(
        weights,
        config=dataclasses.replace(weights.config, num_hidden_layers=len(layers)),
        params={**weights.params, "bert": trunk},
    )


def add_rows(
    weights: Weights, saved: Tokenizer, words: Sequence[str], config: ConfigDict
) -> Weights:
    """Adds a row for each new word wherever there is one for each token, in the other
    models of a run too. Words take the rows that no token has first.

    Args:
      weights: A model that was read.
      saved: Its tokenizer.
      words: Words of `config.tokenizer.add`, in the order of their ids.
      config: Config of the run. With `tokenizer.added_rows=mean` a row is the mean of
        those of the word's tokens, with `random` it is drawn as at first (biases: 0).
    """
    count, before = saved.get_vocab_size(), weights.config.vocab_size
    space = tokenization.kind_of(saved).before_word
    tokens = [saved.encode(space + x, add_special_tokens=False).ids for x in words]
    rng = np.random.default_rng(config.seed)

    names = {"embeddings", "masked_lm"}  # the rest may have as many rows by chance
    params = flatten_dict(weights.params)
    for path, rows in params.items():
        if not names & {*path} or not rows.ndim or len(rows) != before:
            continue
        if config.tokenizer.added_rows == "mean":
            new = np.array([rows[ids].mean(axis=0) for ids in tokens])
        else:
            spread = config.model.initializer_range if rows.ndim > 1 else 0.0
            new = spread * rng.normal(size=(len(words), *rows.shape[1:]))
        spare = rows[count + len(words) :]
        params[path] = np.concatenate(
            [rows[:count], np.asarray(new, rows.dtype), spare]
        )
    others = {
        name: add_rows(other, saved, words, config)
        for name, other in weights.others.items()
    }
    return dataclasses.replace(weights, params=unflatten_dict(params), others=others)


def check_tokenizer(
    tokenizer: Tokenizer,
    saved: Tokenizer | None,
    source: str | Path,
    words: Collection[str] = (),
) -> None:
    """Raises UserError if a run's vocabulary or normalizer differs from that of its
    initial weights.

    Args:
      words: Words that the run adds. They do not count, nor do [unusedN] at the end.
    """
    if saved is None:
        return
    ours, theirs = (
        (_used(each, words), tokenization.normalizer_settings(each))
        for each in (tokenizer, saved)
    )
    if ours != theirs:
        raise UserError(
            f"the tokenizer is not that of {source}; leave config.tokenizer.vocab_file "
            "empty to keep the checkpoint's, or set config.tokenizer.lowercase as it "
            "is there"
        )


def _used(tokenizer: Tokenizer, added: Collection[str]) -> list[str]:
    """Returns its tokens, without added words, then without [unusedN] at the end."""
    pieces = [x for x in tokenization.tokens_by_id(tokenizer) if x not in added]
    while pieces and pieces[-1].startswith("[unused"):
        pieces.pop()
    return pieces
