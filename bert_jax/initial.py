"""What a run begins with: its config made whole, and the weights of `init_from`."""

import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from bert_jax import storage, tasks, weights, workdir
from bert_jax.checkpoint import has_checkpoint
from bert_jax.convert import layout
from bert_jax.errors import UserError
from bert_jax.storage import Path
from bert_jax.tasks.task import Task


def resolve(config: ConfigDict, folder: Path, *, from_data: bool) -> Task:
    """The task, its config with every value that it leaves to be worked out filled in.

    With `init_from` and no vocabulary of its own, a run keeps the checkpoint's.

    Args:
      folder: the work directory.
      from_data: False where the data need not be there any more: what was found in it
        when the run in `folder` began is taken instead.

    Raises:
      UserError: see `tasks.create` and `weights.read_tokenizer`.
    """
    resolved = config.copy_and_resolve_references()
    own = folder / "tokenizer.json"
    if not from_data and own.exists() and config.task.name != "pretraining":
        # Pre-training's prepared data goes by the vocabulary that it was made with.
        resolved.tokenizer.vocab_file = str(own)
    elif config.init_from and not config.tokenizer.vocab_file:
        tokenizer = weights.read_tokenizer(config.init_from)
        if tokenizer is None:
            raise UserError(
                f"{config.init_from}: no vocab.txt or tokenizer.json beside the "
                "weights; name theirs with --config.tokenizer.vocab_file"
            )
        source = storage.path(config.init_from)
        files = (source / "vocab.txt", source / "tokenizer.json")
        normalizer = json.loads(tokenizer.to_str())["normalizer"] or {}
        resolved.tokenizer.vocab_file = str(next(f for f in files if f.exists()))
        resolved.tokenizer.lowercase = bool(normalizer.get("lowercase", True))
    facts: dict[str, Any] = {}
    if not from_data:
        if has_checkpoint(folder):
            workdir.fill_in(folder, resolved)
            facts = workdir.read_facts(folder)
        elif config.init_from:
            known = weights.read_task(config.init_from)
            facts = known.get("facts", {})
            if "labels" in config.task and not config.task.labels:
                resolved.task.labels = known.get("labels", ())
        # Nothing is trained: no need of the data to count its epochs.
        resolved.train.num_steps = resolved.train.num_steps or 1
    task = tasks.create(resolved)
    task.facts.update(facts)
    task.resolve()
    return task


def read(task: Task, abstract: Any) -> tuple[Any, weights.Report] | None:
    """Reads `config.init_from`; None where it is empty.

    Args:
      abstract: shapes and shardings of the task's parameters.

    Returns:
      The parameters, placed on the mesh; those that the checkpoint lacks are left as
      they stand in `abstract`. And what was taken.

    Raises:
      UserError: the weights, or their vocabulary, are another model's.
    """
    source = task.config.init_from
    if not source:
        return None
    found = weights.read(source)
    theirs = weights.read_tokenizer(source, found.config)
    weights.check_vocabulary(task.tokenizer, theirs, source)
    labels = tuple(task.config.task.get("labels", ()))
    if labels and not _same(found.labels, labels):
        found = _without(found, layout.LABELLED_HEADS)
    return weights.merge(abstract, found, task.model_config, source)


def _same(theirs: tuple[str, ...], ours: tuple[str, ...]) -> bool:
    """Whether these are the same outputs; LABEL_0, ... are no names."""
    unnamed = theirs == layout.default_labels(len(theirs))
    return theirs == ours or (unnamed and len(theirs) == len(ours))


def _without(found: layout.Weights, heads: tuple[str, ...]) -> layout.Weights:
    """The weights but for a classifier of other labels than the task's."""
    gone = tuple(f"{head} (of other labels)" for head in heads if head in found.params)
    return dataclasses.replace(
        found,
        params={k: v for k, v in found.params.items() if k not in heads},
        left_over=(*gone, *found.left_over),
    )


def fill(params: Any, fresh: Any) -> Any:
    """Takes from `fresh` what `read` has left to be initialised.

    Where `fresh` is of several seeds, each begins with what was read.
    """

    def choose(read: Any, new: jax.Array) -> jax.Array:
        if isinstance(read, jax.ShapeDtypeStruct):
            return new
        if read.shape == new.shape:
            return read
        return jax.device_put(jnp.broadcast_to(read, new.shape), new.sharding)

    return jax.tree.map(choose, params, fresh)


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
