"""What a run begins with: its config made whole, and the weights of `init_from`."""

import json
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from bert_jax import tasks, weights
from bert_jax.errors import UserError


def resolve(config: ConfigDict) -> ConfigDict:
    """The config with every value that it leaves to be worked out filled in.

    With `init_from` and no vocabulary of its own, a run keeps the checkpoint's.

    Raises:
      UserError: see `tasks.create` and `weights.read_tokenizer`.
    """
    resolved = config.copy_and_resolve_references()
    if config.init_from and not config.tokenizer.vocab_file:
        tokenizer = weights.read_tokenizer(config.init_from)
        if tokenizer is None:
            raise UserError(
                f"{config.init_from}: no vocab.txt or tokenizer.json beside the "
                "weights; name theirs with --config.tokenizer.vocab_file"
            )
        folder = Path(config.init_from)
        files = (folder / "vocab.txt", folder / "tokenizer.json")
        normalizer = json.loads(tokenizer.to_str())["normalizer"] or {}
        resolved.tokenizer.vocab_file = str(next(f for f in files if f.exists()))
        resolved.tokenizer.lowercase = bool(normalizer.get("lowercase", True))
    resolved.model.vocab_size = tasks.create(resolved).model_config.vocab_size
    return resolved


def read(
    config: ConfigDict, task: Any, abstract: Any
) -> tuple[Any, weights.Report] | None:
    """Reads `config.init_from`; None where it is empty.

    Args:
      abstract: shapes and shardings of the task's parameters.

    Returns:
      The parameters, placed on the mesh; those that the checkpoint lacks are left as
      they stand in `abstract`. And what was taken.

    Raises:
      UserError: the weights, or their vocabulary, are another model's.
    """
    if not config.init_from:
        return None
    found = weights.read(config.init_from)
    theirs = weights.read_tokenizer(config.init_from, found.config)
    weights.check_vocabulary(task.tokenizer, theirs, config.init_from)
    return weights.merge(abstract, found, task.model_config, config.init_from)


def fill(params: Any, fresh: Any) -> Any:
    """Takes from `fresh` what `read` has left to be initialised."""
    return jax.tree.map(
        lambda read, new: new if isinstance(read, jax.ShapeDtypeStruct) else read,
        params,
        fresh,
    )


def whole(params: Any, report: weights.Report) -> Any:
    """The parameters that were read, which must be all.

    Raises:
      UserError: a head is missing.
    """
    if report.initialised:
        heads = sorted({name.partition("/")[0] for name in report.initialised})
        raise UserError(
            f"{report.source}: a {report.architecture} without what this task needs: "
            f"{', '.join(heads)}; train it first, with --config.init_from"
        )
    return params
