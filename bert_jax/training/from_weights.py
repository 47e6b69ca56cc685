"""The config of weights: what `init_from` says of its sizes, and of the run behind it.

See `run_config.config_of`, which asks only where a config names weights.
"""

import logging
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from bert_jax import family, registry
from bert_jax.config import configuration, fields
from bert_jax.config.configuration import field_of
from bert_jax.convert import weights
from bert_jax.convert.weights import Source
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES, Family
from bert_jax.models.config import KERNELS
from bert_jax.runtime import storage
from bert_jax.runtime.storage import Path
from bert_jax.tasks.ner.scores import is_tag
from bert_jax.workdir import folder as workdir

log = logging.getLogger(__name__)

# The task that answers with a head.
TASKS = {
    "sequence_classification": "text",
    "token_classification": "ner",
    "question_answering": "squad",
    "multiple_choice": "swag",
}


def without_config(overrides: Sequence[str]) -> ConfigDict:
    """The config that the weights of `init_from` record, or else one with which they
    answer as they are, to query them on any device."""
    config = configuration.defaults()
    for override in overrides:
        if field_of(override) == "init_from":
            configuration.override(config, override)
    storage.check("--config.init_from", config.init_from)
    source = weights.find(config.init_from)
    saved = source.recorded()
    if saved is None:
        config = _released(config.init_from, source)
    else:
        recorded = configuration.complete(saved, config.init_from)
        recorded.init_from, recorded.mesh = config.init_from, config.mesh
        recorded.model.dtype = config.model.dtype
        if recorded.model.attention in KERNELS:  # other devices may lack it
            recorded.model.attention = config.model.attention
        recorded.model.epilogue = config.model.epilogue
        if source.family.vocabulary is not None:
            recorded.tokenizer = config.tokenizer  # the weights have their own
        config = recorded
    for override in overrides:
        configuration.override(config, override)
    fields.check(config)
    return config


def _released(path: str, source: Source) -> ConfigDict:
    """Makes the config of weights without a run: the task of their head, with their
    sizes. Texts may be as long as the model allows."""
    positions, heads = source.config().max_position_embeddings, source.heads()
    name = next((TASKS[head] for head in heads if head in TASKS), "pretraining")
    config = configuration.schema(name, source.family.name)
    config.init_from = path
    config.update_from_flattened_dict(source.shape())
    source.family.complete(config)
    # Nothing is prepared or trained: the length only has to fit.
    task = config.task
    config.corpus.max_seq_length = min(config.corpus.max_seq_length, positions)
    config.evaluate.batch_size = config.predict.batch_size  # of rows that long
    labels = source.labels() if "labels" in task else ()
    match name:
        case "pretraining":
            task.objective = "ltr" if config.model.causal else task.objective
        case "squad":  # It reads in windows.
            task.max_seq_length = min(task.max_seq_length, positions)
            task.max_query_length = min(task.max_query_length, positions // 4)
            task.doc_stride = min(task.doc_stride, positions // 4)
        case _:
            task.max_seq_length = positions
    if name == "text":
        one = "regression" if len(labels) == 1 else task.kind
        task.kind = source.kind() or one
    if name == "ner" and not all(map(is_tag, labels)):
        task.scheme = "none"
    return config


def of_weights(config: ConfigDict, overrides: Sequence[str]) -> ConfigDict:
    """The config with the model sizes of the `init_from` weights and, if they recorded
    the same task, the task fields they were trained with; else only what they predict.

    Args:
      overrides: these fields keep the command line's values.
    """
    named = {field_of(override) for override in overrides}
    asked = config.copy_and_resolve_references()
    for field, value in _shape(config).items():
        if field not in named:
            asked.update_from_flattened_dict({field: value})
    source = weights.find(config.init_from)
    saved = source.recorded()
    if saved is None:
        kind = source.kind()
        if kind and "kind" in asked.task and "task.kind" not in named:
            asked.task.kind = kind
        return asked
    recorded = configuration.complete(saved, config.init_from, code=False)
    if "evaluate.checkpoint" not in named:
        asked.evaluate.checkpoint = recorded.evaluate.checkpoint
    if saved["task"].get("name") != config.task.name:
        return asked
    for name in saved["task"]:
        field, value = f"task.{name}", recorded.task[name]
        if field in fields.DATA or name not in asked.task or asked.task[name] == value:
            continue
        if field in named:
            log.info(
                "config.%s=%r, but the weights were trained with %r",
                *(field, asked.task[name], value),
            )
        else:
            asked.task[name] = value
    return asked


def shaped(folder: Path, config: ConfigDict, overrides: Sequence[str]) -> ConfigDict:
    """The config of a run that trains, with the model sizes of the `init_from` weights.

    Raises:
      UserError: an override contradicts the weights.
    """
    resumes = workdir.has_config(folder)  # the weights may be gone
    if resumes:
        run = workdir.recorded(folder, code=False)
        recorded = dict(fields.each(run))
        ours = _check_family(config, family.of(run))
        family_fields = (f"model.{name}" for name in ours.model_fields)
        shape = {n: recorded[n] for n in (*ours.source.FIELDS, *family_fields)}
    else:
        shape = _shape(config)
    free = {f"model.{name}" for name in FAMILIES[config.model.architecture].free}
    named = {field_of(override) for override in overrides}
    shaped, wrong = config.copy_and_resolve_references(), []
    values = dict(fields.each(config))
    for field, value in shape.items():
        if values[field] == value or field in named & free:
            continue
        if field in named:
            wrong.append(f"{field}={values[field]} (there {value})")
        shaped.update_from_flattened_dict({field: value})
    if wrong and not resumes:
        raise UserError(
            f"config.{', '.join(wrong)}: {config.init_from} has other sizes; "
            "leave these flags out"
        )
    return config if resumes and wrong else shaped


def _shape(config: ConfigDict) -> dict[str, Any]:
    """The model sizes of the `init_from` weights, by `GROUP.NAME`."""
    storage.check("--config.init_from", config.init_from)
    source = weights.find(config.init_from)
    _check_family(config, source.family)
    return source.shape()


def _check_family(config: ConfigDict, there: Family) -> Family:
    """The config's family; raises UserError if the weights are of another one."""
    ours = FAMILIES[config.model.architecture]
    # A config of a family's own pre-training starts from no weights, and says so.
    if there is not ours and config.task.name not in FAMILIES:
        add, leave = f"add model={there.name} to", f"leave model={ours.name} out of"
        hint = f"{leave if there.name == 'bert' else add} the arguments of --config"
        if registry.ADDED.keys() & {there.name, ours.name}:
            hint = f"name weights of {ours.title}, or a --config for {there.title}"
        raise UserError(
            f"--config.init_from={config.init_from}: these weights are "
            f"{there.title}'s, and the config is for {ours.title}: {hint}"
        )
    return ours
