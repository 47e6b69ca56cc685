"""Replaces a run's initial parameters with weights that were read."""

import itertools
import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.convert.layout import Weights
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.models.config import BertConfig
from bert_jax.models.stacking import stack_layers
from bert_jax.runtime.storage import Path


class Report(NamedTuple):
    """What `merge` did, as names of parameters."""

    source: str
    architecture: str
    taken: tuple[str, ...]
    initialised: tuple[str, ...]
    left_over: tuple[str, ...]
    facts: Mapping[str, Any] = {}  # see `layout.Weights`

    @property
    def missing(self) -> tuple[str, ...]:
        """Parts that the weights lack, fully or partly, such as `bert/pooler`."""
        return tuple(sorted({_part(name) for name in self.initialised}))

    def table(self) -> tuple[list[tuple[str, int, str]], tuple[str, str, str]]:
        """Rows and header of a short table: action, number of arrays, parts."""
        rows = []
        fields = {
            "taken": "taken",
            "new, untrained": "initialised",
            "left over": "left_over",
        }
        for what, field in fields.items():
            names = getattr(self, field)
            # "bert/pooler/kernel" -> bert; other projects' names stay as they are.
            parts = dict.fromkeys(name.partition("/")[0] for name in names)
            shown = ", ".join(list(parts)[:6]) + (", ..." if len(parts) > 6 else "")
            rows.append((what, len(names), shown))
        return rows, ("", "arrays", "of")

    def to_json(self) -> str:
        return json.dumps(self._asdict(), indent=2) + "\n"


def merge(
    initial: Mapping[str, Any], weights: Weights, config: BertConfig, source: str | Path
) -> tuple[dict[str, Any], Report]:
    """Replaces initial parameters with weights of the same name.

    Args:
      initial: the model's own parameters, unboxed; layers stacked or not.
      weights: what was read.
      config: the model's.
      source: where `weights` are from, for the report and errors.

    Returns:
      Parameters of the same structure and sharding, and the report. Takes everything
      of `bert` except perhaps the pooler; heads and a pooler that the weights lack keep
      their initial values.

    Raises:
      UserError: the models differ in a shape, the number of layers, the activation,
        the epsilon or the direction.
    """
    stacked = "layers" in initial["bert"]["encoder"]
    params = weights.params
    if stacked:
        params = stack_layers(params, weights.config.num_hidden_layers)
    decisive = ("num_hidden_layers", "hidden_act", "layer_norm_eps", "causal")
    model = vars(config) | dict(config.family_fields)
    saved = vars(weights.config) | dict(weights.config.family_fields)
    free = FAMILIES[config.architecture].free
    family_fields = (name for name, _ in config.family_fields if name not in free)
    for field in ("architecture", *decisive, "layer", "positions", *family_fields):
        mine, there = model[field], saved[field]
        if mine != there:
            raise UserError(
                f"config.model.{field}={mine!r}, but {source} has {there!r}: set "
                f"--config.model.{field}={there}"
            )
    if "masked_lm" in initial and "decoder" in weights.params:
        raise UserError(
            f"{source}: its masked LM has its own output matrix; here it is the "
            "embeddings', so pre-training cannot start from it"
        )
    left_over, facts = weights.left_over, weights.facts
    return take(initial, params, source, weights.architecture, left_over, facts)


def take(
    initial: Mapping[str, Any],
    params: Mapping[str, Any],
    source: str | Path,
    architecture: str,
    left_over: Collection[str] = (),
    facts: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], Report]:
    """As `merge`, of any model; compares shapes only.

    Args:
      params: what was read, by the same names.
      architecture: a name for it, for errors and the report.
    """
    saved, ours = flatten_dict(params), flatten_dict(initial)
    _check_shapes(ours, saved, source)
    taken = []
    merged = dict(ours)
    for path, leaf in ours.items():
        if path in saved:
            taken.append("/".join(path))
            merged[path] = _placed(saved.pop(path), leaf.sharding)
    report = Report(
        source=str(source),
        architecture=architecture,
        taken=tuple(taken),
        initialised=tuple(n for n in map("/".join, ours) if n not in taken),
        left_over=(*("/".join(path) for path in saved), *left_over),
        facts=facts or {},
    )
    return unflatten_dict(merged), report


def _placed(array: Any, sharding: jax.sharding.Sharding) -> jax.Array:
    """Puts the array on the devices; each process handles its own devices."""
    if sharding.is_fully_addressable:
        return jax.device_put(array, sharding)
    return jax.make_array_from_callback(array.shape, sharding, array.__getitem__)


def fill(params: Any, fresh: Any) -> Any:
    """Takes from `fresh` the parameters that were not read.

    If `fresh` has several seeds, each starts from what was read.
    """

    def choose(read: Any, new: jax.Array) -> jax.Array:
        if isinstance(read, jax.ShapeDtypeStruct):
            return new
        if read.shape == new.shape:
            return read
        return jax.device_put(jnp.broadcast_to(read, new.shape), new.sharding)

    return jax.tree.map(choose, params, fresh)


def whole(params: Any, report: Report, unused: Collection[str] = ()) -> Any:
    """Returns the parameters; all that are used must have been read.

    Args:
      unused: parts that the mode does not need (`Task.unused`); zeros if missing.

    Raises:
      UserError: another part is missing.
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


def _part(name: str) -> str:
    """bert/pooler/kernel -> bert/pooler; question_answering/bias -> its head."""
    head, *rest = name.split("/")
    return f"{head}/{rest[0]}" if head == "bert" else head


def _check_shapes(
    ours: Mapping[tuple, Any], saved: Mapping[tuple, Any], source: str | Path
) -> None:
    for path, leaf in ours.items():
        if path in saved and leaf.shape != saved[path].shape:
            raise UserError(
                f"{'/'.join(path)} has the shape {saved[path].shape} in {source}, but "
                f"the config requires {leaf.shape}"
            )


def check_tokenizer(
    tokenizer: Tokenizer, saved: Tokenizer | None, source: str | Path
) -> None:
    """Raises UserError if a run's vocabulary or normalizer differs from that of its
    initial weights; [unusedN] at the end do not count."""
    if saved is None:
        return
    keep = "leave config.tokenizer.vocab_file empty to keep the checkpoint's"
    mine, there = map(_used, (tokenizer, saved))
    for index, (ours, other) in enumerate(itertools.zip_longest(mine, there)):
        if ours != other:
            raise UserError(
                f"the vocabulary is not that of {source}: piece {index} is {ours!r} "
                f"here and {other!r} there; {keep}"
            )
    rules, its = map(tokenization.normalization, (tokenizer, saved))
    for name in sorted(rules.keys() | its.keys()):
        if rules.get(name) != its.get(name):
            raise UserError(
                f"the tokenizer is not that of {source}: its normalizer has {name}="
                f"{rules.get(name)} here and {its.get(name)} there; {keep}, or set "
                "config.tokenizer.lowercase as it is there"
            )


def _used(tokenizer: Tokenizer) -> list[str]:
    """Its pieces, without [unusedN] at the end."""
    pieces = tokenization.pieces_of(tokenizer)
    while pieces and pieces[-1].startswith("[unused"):
        pieces.pop()
    return pieces
