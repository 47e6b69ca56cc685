"""The config of a mode, from a run or weights, a file and the command line.

A mode that queries a model (predict, evaluate, ...) does as the model's run would, so
task, lengths, labels and choice of checkpoint are as recorded. `Field.fixed_by`
specifies whether the command line may have another value.
"""

import logging
import os
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from ml_collections import ConfigDict, FrozenConfigDict

from bert_jax import family
from bert_jax.config import configuration, fields
from bert_jax.config.field import PLAIN, require_value
from bert_jax.convert import sentence_transformers, weights
from bert_jax.errors import UserError
from bert_jax.runtime import hub, storage
from bert_jax.runtime.storage import Path
from bert_jax.tasks.ner.scores import is_tag
from bert_jax.training.branch import find_branch
from bert_jax.workdir import folder as workdir
from bert_jax.workdir.checkpoint import has_checkpoint

log = logging.getLogger(__name__)

# Each head's task.
TASKS = {
    "sequence_classification": "text",
    "token_classification": "ner",
    "question_answering": "squad",
    "multiple_choice": "swag",
}


def config_of(
    folder: Path,
    given: ConfigDict | None,
    flags: Mapping[str, Any],
    *,
    is_inference: bool,
) -> FrozenConfigDict:
    """Returns the config that holds in a mode.

    It is a base, with the values that a run or weights fix, and then the flags:

      a new run            base: the file. The weights of `init_from` fix the fields
                           that are theirs, whatever the file has.
      a resumed run        base: the file, or else the run's. All values are compared
                           with the run's later (`workdir.folder.check_run`).
      a run that answers   base: the run's, which fixes all. The file is not read.
      weights that answer  base: the file, or else the weights' own, which fix the
                           fields that are theirs.

    A flag that has another value than a fixed one is refused where `Field.fixed_by`
    says so, and otherwise logged.

    Args:
      given: The config of a file, with the flags, if any.
      flags: Values by field.
      is_inference: Whether the mode does not train.

    Raises:
      UserError: No config is named, or a field differs that must not in this mode.
    """
    asks_run = is_inference and has_checkpoint(folder)
    if asks_run:
        config = _asked_run(folder, given)
        values = fixed = dict(fields.iter_fields(config))
    else:
        config = _base(folder, given, flags, is_inference=is_inference)
        values = dict(fields.iter_fields(config))
        fixed = _fixed_by_weights(folder, config, is_inference=is_inference)
    config.update_from_flattened_dict({n: x for n, x in fixed.items() if n in values})
    resumes = not is_inference and workdir.has_config(folder)
    for name, value in flags.items():
        there, here = configuration.set_field(config, name, value)
        if there != here and name in fixed and not resumes:
            _refuse(config, name, there, here, folder if asks_run else None)
    # The command of a run, repeated with another mode, names the run's own text.
    is_own = asks_run and config.corpus.sources == values["corpus.sources"]
    if is_inference and "corpus.sources" in flags and not is_own:
        _name_texts(config, flags, values["corpus.sources"])
    named = config.init_from
    if config.model.lora_rank and named and not named.startswith(hub.PREFIX):
        # The run reads its base there again, from whatever folder.
        config.init_from = str(storage.absolute_path(hub.model_folder(named)))
    if config.train.branch_from:
        path = storage.storage_path(config.train.branch_from)
        config.train.branch_from = str(storage.absolute_path(path))
    configuration.check_config(config)
    options = fields.task_values(config)
    if options.dev_fraction and options.dev_file and not is_inference:
        raise UserError(
            f"config.task.dev_fraction={options.dev_fraction}: dev_file="
            f"{options.dev_file} is named too; set one of them"
        )
    return FrozenConfigDict(config)


def _base(
    folder: Path,
    given: ConfigDict | None,
    flags: Mapping[str, Any],
    *,
    is_inference: bool,
) -> ConfigDict:
    """Returns the config that values are fixed in, if no run is asked.

    Raises:
      UserError: There is none.
    """
    if given is not None:
        return fields.copy_mutable(given)
    resumes = workdir.has_config(folder)
    if resumes or (flags.get("train.branch_from") and not is_inference):
        if resumes:
            config = workdir.recorded_config(folder)
        else:
            here = configuration.with_defaults()
            configuration.set_field(
                here, "train.branch_from", flags["train.branch_from"]
            )
            branch = find_branch(here)
            assert branch is not None
            config = branch.config()
            for field in ("branch_step", "extend", "profile_steps"):  # of its own start
                config.train[field] = here.train[field]
            if "train.num_steps" in flags:
                config.train.num_epochs = 0.0
            elif config.train.num_epochs:
                config.train.num_steps = 0  # of data that may be other
        if "train.num_epochs" in flags:
            config.train.num_steps = 0  # counted again
        return config
    if is_inference and "init_from" in flags:
        return _of_weights_alone(flags["init_from"])
    there = "has no run" if folder.exists() else "does not exist"
    or_weights = " or --config.init_from=WEIGHTS" * is_inference
    raise UserError(
        f"--workdir={folder} {there}, and there is no --config=FILE{or_weights}; give "
        "one of them"
    )


def _name_texts(
    config: ConfigDict, flags: Mapping[str, Any], own: tuple[str, ...]
) -> None:
    """Makes `corpus.sources` of the command line the texts to evaluate, beside the
    splits that it names.

    Args:
      own: The sources that a run was trained on.

    Raises:
      UserError: The task is another than pre-training.
    """
    name, sources = "corpus.sources", config.corpus.sources
    require_value(fields.FIELDS, name, sources)
    if config.task.name != "pretraining":
        raise UserError(
            f"--config.{name}={sources}: texts to evaluate are for a run of "
            f"pre-training; config.task.name={config.task.name}, leave it out"
        )
    named = config.evaluate.splits if "evaluate.splits" in flags else ()
    config.evaluate.splits = tuple(dict.fromkeys((*named, *sources)))
    config.corpus.sources = own


def _refuse(
    config: ConfigDict, name: str, there: Any, here: Any, folder: Path | None
) -> None:
    """Raises UserError if a field must not differ. Otherwise prints that it does, if
    that may surprise.

    Args:
      there: Recorded value.
      here: The command line's value.
      folder: The run that is queried. None means the weights of `init_from`.
    """
    field = fields.fields_of(config).get(name, PLAIN)
    run, weights = folder is not None, config.train.branch_from or config.init_from
    is_fixed = not field.may_differ if run else field.fixed_by == "weights"
    if is_fixed:
        owner = f"the run in {folder}" if run else f"the model in {weights}"
        raise UserError(
            f"--config.{name}={here}: {owner} has {there!r}, and this mode must use "
            f"the {'run' if run else 'model'}'s value; leave this flag out"
        )
    if field.fixed_by != "none":
        owner = "the run" if run else weights
        log.info("config.%s=%r, but %s has %r", name, here, owner, there)


def _asked_run(folder: Path, given: ConfigDict | None) -> ConfigDict:
    """Returns the config of a run, to query it on this machine.

    Raises:
      UserError: `given` has another task, or the run has several seeds.
    """
    config = workdir.recorded_config(folder)
    if given is not None and given.task.name != config.task.name:
        raise UserError(
            f"--workdir={folder}: a run of the task {config.task.name!r}, but --config "
            f"has {given.task.name!r}; leave --config out, or name another --workdir"
        )
    workdir.require_one_seed(folder, config)
    here = configuration.with_defaults()
    # The folder may be of somebody else, who must not decide whose pages may call.
    config.mesh.update(here.mesh)
    config.serve.update((given or here).serve)
    return config


def _of_weights_alone(init_from: str) -> ConfigDict:
    """Returns the config that these weights record, or else one with which they answer
    unchanged, to query them on any device."""
    here = configuration.with_defaults()
    configuration.set_field(here, "init_from", init_from)
    storage.check_path("--config.init_from", here.init_from)
    source = weights.find_source(here.init_from)
    saved = source.run_config()
    if saved is None:
        return _released(here.init_from, source)
    config = configuration.complete_config(saved, here.init_from)
    known = fields.fields_of(config)
    of_machine = [n for n, field in known.items() if field.machine or field.path]
    values = dict(fields.iter_fields(config))
    config.update_from_flattened_dict(
        {name: known[name].default for name in of_machine if name in values}
    )
    if _is_of_vectors(config):
        config.update_from_flattened_dict(_vector_fields(source))
    config.init_from, config.init_layers = here.init_from, ()
    config.model.lora_rank = 0  # merged
    config.model.dtype, config.model.epilogue = here.model.dtype, here.model.epilogue
    if config.model.attention == "fused":  # other devices may lack it
        config.model.attention = here.model.attention
    config.tokenizer = here.tokenizer  # the weights have their own
    return config


def _released(path: str, source: weights.Source) -> ConfigDict:
    """Makes the config of weights without a run: the task of their head, with their
    sizes. Texts may be as long as the model allows."""
    positions = source.config().max_position_embeddings
    found = [TASKS[head] for head in source.heads() if head in TASKS]
    vectors = {} if found else _vector_fields(source)
    # A head that config.json names alone is refused by its name.
    named = [TASKS[head] for head in source.named_heads() if head in TASKS]
    name = [*found, *["embeddings"] * bool(vectors), *named, "pretraining"][0]
    config = configuration.with_defaults(name, source.family.name)
    config.init_from = path
    config.update_from_flattened_dict(source.shape())
    source.family.fill_defaults(config)
    # Nothing is prepared or trained: the length only has to fit.
    task = config.task
    config.corpus.max_seq_length = min(config.corpus.max_seq_length, positions)
    config.evaluate.batch_size = config.predict.batch_size  # for rows that long
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
    config.update_from_flattened_dict(vectors)
    if name == "text":
        one = "regression" if len(labels) == 1 else task.kind
        task.kind = source.kind() or one
    if name == "ner" and not all(map(is_tag, labels)):
        task.scheme = "none"
    return config


def _fixed_by_weights(
    folder: Path, config: ConfigDict, *, is_inference: bool
) -> dict[str, Any]:
    """Returns the values that the weights of `init_from`, if there are any, fix, by
    field. A field of text vectors that the config sets to another value is not fixed;
    it is printed.

    Raises:
      UserError: There are no such weights, or they are of another family.
    """
    if not config.init_from and (is_inference or not config.train.branch_from):
        return {}
    fixed = _values_of_weights(folder, config, is_inference)
    known = fields.fields_of(config)
    for field in sentence_transformers.FIELDS if _is_of_vectors(config) else ():
        name, value = f"task.{field}", config.task[field]
        if name in fixed and value not in (known[name].default, fixed[name]):
            owner = config.init_from
            log.info("config.%s=%r, but %s has %r", name, value, owner, fixed[name])
            del fixed[name]
    return fixed


def _values_of_weights(
    folder: Path, config: ConfigDict, is_inference: bool
) -> dict[str, Any]:
    """Returns the sizes of the weights of `init_from`, by field. With `is_inference`
    also the whole task that they were trained on or, if that is not recorded, the kind
    of their outputs."""
    if not is_inference and workdir.has_config(folder):  # the weights may be gone
        run = workdir.recorded_config(folder, code=False)
        _check_family(config, family.family_of(run))
        vectors = sentence_transformers.FIELDS if _is_of_vectors(run) else ()
        recorded = {f"task.{name}": run.task[name] for name in vectors}
        return fields.decided_values(run) | recorded
    if not is_inference and (branch := find_branch(config)):
        run = branch.config()
        _check_family(config, family.family_of(run))
        return fields.decided_values(run)
    storage.check_path("--config.init_from", config.init_from)
    source = weights.find_source(config.init_from)
    _check_family(config, source.family)
    sizes, saved = source.shape(), source.run_config() if is_inference else None
    if config.init_layers:
        sizes["model.num_hidden_layers"] = len(config.init_layers)
    if not is_inference and config.tokenizer.add:
        tokenizer, rows = source.tokenizer(), sizes["model.vocab_size"]
        tokens = tokenizer.get_vocab_size() if tokenizer is not None else rows
        sizes["model.vocab_size"] = max(rows, tokens + len(config.tokenizer.add))
    if _is_of_vectors(config):
        sizes |= _vector_fields(source)
    if saved is None:
        kind = source.kind() if is_inference else None
        return sizes | ({"task.kind": kind} if kind else {})
    run = configuration.complete_config(saved, config.init_from, code=False)
    sizes["evaluate.checkpoint"] = run.evaluate.checkpoint
    known = fields.fields_of(run)
    task = {f"task.{name}": run.task[name] for name in saved["task"]}
    if task["task.name"] != config.task.name:
        return sizes
    return sizes | {n: x for n, x in task.items() if not known.get(n, PLAIN).path}


def _is_of_vectors(config: ConfigDict) -> bool:
    return bool(config.task.name == "embeddings")


def _vector_fields(source: weights.Source) -> dict[str, Any]:
    """Returns the fields of the task of text vectors that weights decide, by
    `task.NAME`.

    Raises:
      UserError: They specify vectors in a way that is not supported.
    """
    vectors = source.text_vectors()
    return {} if vectors is None else vectors.task_fields()


def _check_family(config: ConfigDict, there: family.Family) -> None:
    """Raises UserError if the weights are of another family than the config."""
    ours = family.FAMILIES[config.model.architecture]
    if there is not ours:
        raise UserError(
            f"--config.init_from={config.init_from}: these weights are "
            f"{there.title}'s, and the config is for {ours.title}: name weights of "
            f"{ours.title}, or --config=FILE:model={there.name}"
        )


def nothing_to_ask(folder: Path) -> UserError:
    hint = "train one first, or name weights with --config.init_from"
    return UserError(f"--workdir={folder}: has no checkpoint; {hint}")


def predictions_subfolder(folder: Path, config: ConfigDict) -> str:
    """Returns the subfolder of `predictions` for these answers: "" for the run's own
    data and checkpoint, else a name for the differences. Different files with the same
    name have different subfolders."""
    known, run = fields.fields_of(config), workdir.recorded_config(folder)
    recorded = dict(fields.iter_fields(run))
    names = [
        f"{os.path.basename(value).partition('.')[0] or 'other'}-"
        f"{sha256(os.path.abspath(value).encode()).hexdigest()[:6]}"
        for name, value in fields.iter_fields(config)
        if name.startswith("task.") and known.get(name, PLAIN).path
        if value != recorded.get(name)
    ]
    if config.evaluate.checkpoint != run.evaluate.checkpoint:
        names.append(config.evaluate.checkpoint)
    return "-".join(names)
