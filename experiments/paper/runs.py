"""A table's runs: their commands, their folders, and the results left there.

A folder is named after everything that shapes its run, so tables share common runs:

    OUTPUT/pretraining/mlm-1f0c9a27/
    OUTPUT/finetuning/mlm-1f0c9a27/sst2-5seeds-93ab01cd/seed_0 ... seed_4
    OUTPUT/features/mlm-cased-77ab0e31/ner-5seeds-...
"""

import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from bert_jax.commands.runner import Run, digest, identify
from bert_jax.config import configuration
from bert_jax.config.configuration import field_of
from experiments.paper import tables
from experiments.paper.options import (
    SHAPE,
    Options,
    finetuning_config,
    pretraining_config,
)
from experiments.paper.systems import Pretraining, System
from experiments.paper.tasks import Found

FEATURES = (sys.executable, "-m", "experiments.paper.features")
BUDGET = (sys.executable, "-m", "experiments.paper.budget")
# Seeds of smaller models train together, in one program. Of these sizes each trains by
# itself.
_APART = ("base", "large")
# "The maximal document context" (section 5.3), where a model is large enough for it.
_CONTEXT = ("task.document_context=True", "task.max_seq_length=512")


def plan(options: Options) -> list[Run]:
    """Returns all runs of the table, each once, in the order in which they run."""
    runs = []
    for system in options.table.systems:
        runs.append(pretraining(options, system.pretraining))
        for column in options.table.columns:
            runs += finetuning(options, system, column.task)
    once = {run.folder: run for run in runs if run.kind != "weights"}
    return list(once.values())


def pretraining(options: Options, run: Pretraining) -> Run:
    """Returns the pre-training run, whose folder is the value of `init_from`."""
    if run.weights:  # it has ended
        return Run("weights", Path(run.weights), ())
    spec, fields = options.configs[run.model], list(options.fields)
    if run.size:
        spec = spec.replace(f"size={options.size}", f"size={run.size}")
    if run.shape:
        shape = zip(SHAPE, (*run.shape, 4 * run.shape[1]), strict=True)
        fields += [f"--config.model.{name}={value}" for name, value in shape]
    if run.kept:
        keep, save = _kept(options)
        fields.append(f"--config.checkpoint.keep_every={keep}")
        fields.append(f"--config.checkpoint.save_every={save}")
    fields += [f"--config.{field}" for field in run.fields]
    words = (f"words={options.words}",) if options.words else ()
    # A config of ours is known by its name. Another one may change.
    is_ours = options.configs[run.model] == pretraining_config(run.model, options.size)
    own = () if is_ours else (identify(spec, fields),)
    name = f"{run.name}-{digest(Path(spec).name, *fields, *own, *words)}"
    data = f"--config.corpus.data_dir={options.output / 'prepared'}"
    folder = options.output / "pretraining" / name
    arguments = (f"--config={spec}", *fields, data)
    if options.words:
        given = (*arguments, f"--words={options.words}")
        return Run("pre-training", folder, given, program=BUDGET)
    return Run("pre-training", folder, arguments)


def _kept(options: Options) -> tuple[int, int]:
    """Returns the numbers of steps between checkpoints that stay and that are saved.

    Figure 5's points are multiples of both.
    """
    config = options.resolved
    between = max(1, config.train.num_steps // len(tables.SHARES))
    saves = -(-between // config.checkpoint.save_every)
    save = between // saves
    return save * saves, save


def finetuning(options: Options, system: System, task: str) -> list[Run]:
    """Returns the runs that fine-tune a system on a task.

    There is one for all seeds together, or one for each, or one of
    experiments.paper.features for all its choices. There are none if the task has no
    data, or is not one of the system's.
    """
    if task not in options.found:
        return []
    first = pretraining(options, system.pretraining)
    if system.choice:
        task = "features"
    data, seeds = options.found["ner" if system.choice else task], options.seeds
    if task == "features":
        # Table 8 needs one choice of layers only.
        choice = "" if system.choice else tables.best_features(options.size)
        return [_features(options, first, data.fields, choice)]
    size, model = system.pretraining.size or options.size, system.pretraining.model
    spec = finetuning_config(data, size, model)
    shared: tuple[str, ...] = _CONTEXT if task == "ner" and size in _APART else ()
    if options.words:
        own = {field.partition("=")[0] for field in system.fields}
        shared = _alike(options, data, own)
    fields = [f"--config.{field}" for field in (*data.fields, *shared, *system.fields)]
    fields += options.finetuning
    parent = options.output / "finetuning" / _name(first)
    name = task if system.share == 100 else f"{task}-{system.share}percent"
    source = first.folder
    if system.share < 100:
        keep, _ = _kept(options)
        step = keep * (tables.SHARES.index(system.share) + 1)
        source = source / "checkpoints" / str(step)
    arguments = (f"--config={spec}", f"--config.init_from={source}", *fields)
    needs = _needs(first)
    digested = digest(Path(spec).name, *fields)
    if size not in _APART and seeds > 1:
        folder = parent / f"{name}-{seeds}seeds-{digested}"
        together = ("--config.seed=0", f"--config.train.seeds={seeds}")
        return [Run(task, folder, (*arguments, *together), needs)]
    return [
        Run(
            task,
            parent / f"{name}-{digested}" / f"seed_{seed}",
            (*arguments, f"--config.seed={seed}"),
            needs,
        )
        for seed in range(seeds)
    ]


def _alike(options: Options, data: Found, own: Collection[str]) -> tuple[str, ...]:
    """Returns the fields that systems that are compared take from BERT's task config.

    With them they read the same rows as often, and use their last step, as BERT does.

    Args:
      own: Names of the fields that a system sets itself.
    """
    train = configuration.load_config(finetuning_config(data, options.size), []).train
    fields = {
        "train.batch_size": train.batch_size,
        "train.num_epochs": train.num_epochs,
        "train.early_stop": 0,
        "evaluate.checkpoint": "last",
    }
    given = {field_of(text) for text in options.finetuning} | set(own)
    return tuple(f"{k}={v}" for k, v in fields.items() if k not in given)


def _features(options: Options, first: Run, fields: Sequence[str], choice: str) -> Run:
    """Returns experiments.paper.features on the pre-training run.

    An empty choice means all.
    """
    files = [field.removeprefix("task.").replace("_file", "", 1) for field in fields]
    data = [f"--{file}" for file in files]
    context = ("--document_context",) * (options.size in _APART)
    # The paper's BiLSTM is as wide as Base (section 5.3), ours as each size.
    width = min(768, tables.SIZES[options.size][1])
    given = (*data, f"--seeds={options.seeds}", f"--size={width}", *context)
    given += (f"--choices={choice}",) * bool(choice)
    parent = options.output / "features" / _name(first)
    folder = parent / f"ner-{options.seeds}seeds-{digest(*given)}"
    start = f"--init_from={first.folder}"
    arguments, needs = (start, *given), _needs(first)
    return Run("features", folder, arguments, needs, program=FEATURES)


def _name(first: Run) -> str:
    """Returns the folder's name for a run that starts from a pre-training."""
    if first.kind != "weights":
        return first.folder.name
    return f"{first.folder.name}-{digest(str(first.folder))}"


def _needs(first: Run) -> tuple[Path, ...]:
    """Returns the folder that a run waits for, if any."""
    return () if first.kind == "weights" else (first.folder,)
