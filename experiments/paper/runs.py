"""A table's runs: their commands, their folders, and what they have left there.

A folder is named after what shapes its run, so tables share what they have in common:

    OUTPUT/pretraining/mlm-1f0c9a27/
    OUTPUT/finetuning/mlm-1f0c9a27/sst2-5seeds-93ab01cd/seed_0 ... seed_4
    OUTPUT/features/mlm-cased-77ab0e31/ner-5seeds-...
    OUTPUT/ensembles/mlm-1f0c9a27/squad-5seeds-...
    OUTPUT/vectors/word2vec-03ab91cc, OUTPUT/triviaqa/squad-8e01ba27
"""

import json
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from bert_jax.config import configuration
from bert_jax.config.configuration import field_of
from experiments.lib.running import ROOT
from experiments.lib.runs import Run, digest
from experiments.paper import beside, tables, whole
from experiments.paper.options import SHAPE, Options, finetuning_config
from experiments.paper.systems import Pretraining, System
from experiments.paper.tasks import Found

FEATURES = (sys.executable, "-m", "experiments.paper.features")
VECTORS = (sys.executable, "-m", "experiments.cbow.vectors")
TRIVIAQA = (sys.executable, "-m", "experiments.paper.triviaqa")
ENSEMBLE = (sys.executable, "-m", "experiments.paper.squad_ensemble")
# Seeds of smaller models train together, in one program; of these each by itself.
_APART = ("base", "large")
# "The maximal document context" (section 5.3), where a model is large enough for it.
_CONTEXT = ("task.document_context=True", "task.max_seq_length=512")


def plan(options: Options) -> list[Run]:
    """All runs of the table, each once, in the order in which they run."""
    runs: dict[Path, Run] = {}
    for system in options.table.systems:
        before = [pretraining(options, system.pretraining)]
        if system.after:
            before += _on_triviaqa(options, system)
        for run in before:
            if run.kind != "weights":
                runs.setdefault(run.folder, run)
        for column in options.table.columns:
            tuned = finetuning(options, system, column.task)
            for run in (*tuned, *scored(options, system, column.task)):
                runs.setdefault(run.folder, run)
    return list(runs.values())


def pretraining(options: Options, run: Pretraining) -> Run:
    """The pre-training run; its folder is what `init_from` names."""
    if run.weights:  # it has ended
        return Run("weights", Path(run.weights), (), run.size)
    if run.model in beside.BAGS:
        return _vectors(options)
    spec, fields = options.configs[run.model], list(options.fields)
    if run.size:
        spec = spec.replace(f"size={options.size}", f"size={run.size}")
    if options.corpus:
        fields.append(f"--config.corpus.sources={options.corpus!r}")
    model = run.size or options.size
    if run.model != "bert":
        model = f"{run.model}, {model}"
    if run.shape:
        layers, hidden, heads = run.shape
        model = f"{layers}/{hidden}/{heads}"
        shape = zip(SHAPE, (*run.shape, 4 * hidden), strict=True)
        fields += [f"--config.model.{name}={value}" for name, value in shape]
    if run.kept:
        keep, save = _kept(options)
        fields.append(f"--config.checkpoint.keep_every={keep}")
        fields.append(f"--config.checkpoint.save_every={save}")
    fields += [f"--config.{field}" for field in run.fields]
    words = (f"words={options.words}",) if options.words else ()
    name = f"{run.name}-{digest(Path(spec).name, *fields, *_own(spec), *words)}"
    data = f"--config.corpus.data_dir={options.output / 'prepared'}"
    folder = options.output / "pretraining" / name
    arguments = (f"--config={spec}", *fields, data)
    return Run("pre-training", folder, arguments, model, words=options.words)


def _own(spec: str) -> tuple[str, ...]:
    """The values of a config file that is not one of ours: it may change."""
    if Path(spec.partition(":")[0]).resolve().parent == ROOT / "configs":
        return ()
    return (json.dumps(configuration.load(spec, []).to_dict(), sort_keys=True),)


def _kept(options: Options) -> tuple[int, int]:
    """Every how many steps a checkpoint stays, and is saved: figure 5's points are
    multiples of both."""
    config = options.resolved
    between = max(1, config.train.num_steps // len(tables.SHARES))
    saves = -(-between // config.checkpoint.save_every)
    save = between // saves
    return save * saves, save


def finetuning(options: Options, system: System, task: str) -> list[Run]:
    """The runs that fine-tune a system on a task: one for all seeds together, or one
    for each; one of experiments.paper.features for all its choices. None if the
    task has no data, or is none of the system's."""
    if task not in options.found or not system.does(task):
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
    if model in beside.BAGS:  # which have their words in common
        parent = parent.with_name(f"{model}-{parent.name}")
    name = task if system.share == 100 else f"{task}-{system.share}percent"
    name += f"-after-{system.after}" if system.after else ""
    start, needs = _start(options, system)
    arguments = (f"--config={spec}", *start, *fields)
    digested = digest(Path(spec).name, *fields)
    if size not in _APART and seeds > 1:
        folder = parent / f"{name}-{seeds}seeds-{digested}"
        together = ("--config.seed=0", f"--config.train.seeds={seeds}")
        return [Run(task, folder, (*arguments, *together), first.model, needs)]
    return [
        Run(
            task,
            parent / f"{name}-{digested}" / f"seed_{seed}",
            (*arguments, f"--config.seed={seed}"),
            *(first.model, needs),
        )
        for seed in range(seeds)
    ]


def _start(
    options: Options, system: System
) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """What a system's fine-tuning starts from: arguments, and the runs to wait for."""
    first = pretraining(options, system.pretraining)
    if system.pretraining.model in beside.BAGS:
        start = [f"--config.tokenizer.vocab_file={first.folder / 'vocab.txt'}"]
        if system.pretraining.model.startswith("word2vec"):
            start.append(f"--config.task.vectors={first.folder / 'vectors.npy'}")
        return tuple(start), (first.folder,)
    source, needs = first.folder, _needs(first)
    if system.share < 100:
        keep, _ = _kept(options)
        step = keep * (tables.SHARES.index(system.share) + 1)
        source = source / "checkpoints" / str(step)
    if system.after:
        *_, tuned = _on_triviaqa(options, system)
        source, needs = tuned.folder, (tuned.folder,)
    return (f"--config.init_from={source}",), needs


def scored(options: Options, system: System, task: str) -> list[Run]:
    """The runs that have a system's scores on a task."""
    tuned = finetuning(options, system, task)
    if not (system.ensemble and tuned):
        return tuned
    folders = [run.folder for run in tuned]
    if len(tuned) == 1:  # all seeds
        folders = [folders[0] / f"seed_{seed}" for seed in range(options.seeds)]
    own = digest(*(str(folder.relative_to(options.output)) for folder in folders))
    parent = pretraining(options, system.pretraining)
    folder = options.output / "ensembles" / _name(parent) / f"{task}-{own}"
    arguments = (f"--workdirs={','.join(map(str, folders))}",)
    needs = tuple(run.folder for run in tuned)
    model = tuned[0].model
    return [Run("ensemble", folder, arguments, model, needs, program=ENSEMBLE)]


def _on_triviaqa(options: Options, system: System) -> list[Run]:
    """TriviaQA in SQuAD's form, and the system fine-tuned on it for an epoch."""
    first = pretraining(options, system.pretraining)
    files = tuple(f"--{field}" for field in options.found[whole.TRIVIAQA].fields)
    place = options.output / "triviaqa" / f"squad-{digest(*files)}"
    written = Run(
        *("TriviaQA's files", place, files, ""), program=TRIVIAQA, file="train.json"
    )
    size = system.pretraining.size or options.size
    spec = finetuning_config(options.found["squad"], size, system.pretraining.model)
    fields = ("--config.train.num_epochs=1", *options.finetuning, "--config.seed=0")
    own = digest(Path(spec).name, *files, *fields)
    folder = options.output / "finetuning" / _name(first) / f"triviaqa-{own}"
    start = (
        f"--config.init_from={first.folder}",
        f"--config.task.train_file={place / written.file}",
    )
    arguments = (f"--config={spec}", *start, *fields)
    needs = (*_needs(first), place)
    return [written, Run("triviaqa", folder, arguments, first.model, needs)]


def _vectors(options: Options) -> Run:
    """The words of the bags, and their vectors."""
    resolved = options.resolved
    given = [f"--corpus={','.join(options.corpus)}", f"--words={options.words}"]
    given += ["--cased"] if not resolved.tokenizer.lowercase else []
    folder = options.output / "vectors" / f"words-{digest(*given)}"
    data = f"--data_dir={options.output / 'prepared'}"
    return Run("word vectors", folder, (*given, data), "", program=VECTORS)


def _alike(options: Options, data: Found, own: Collection[str]) -> tuple[str, ...]:
    """What systems that are compared take from BERT's config of a task, so that they
    read the same rows as often; and their last step, as BERT does.

    Args:
      own: the fields that a system has itself.
    """
    train = configuration.load(finetuning_config(data, options.size), []).train
    fields = {
        "train.batch_size": train.batch_size,
        "train.num_epochs": train.num_epochs,
        "train.early_stop": 0,
        "evaluate.checkpoint": "last",
    }
    given = {field_of(text) for text in options.finetuning} | set(own)
    return tuple(f"{k}={v}" for k, v in fields.items() if k not in given)


def _features(options: Options, first: Run, fields: Sequence[str], choice: str) -> Run:
    """experiments.paper.features on the pre-training run; an empty choice: all."""
    files = [field.removeprefix("task.").split("_file=", 1) for field in fields]
    data = [f"--{split}={path}" for split, path in files]
    context = ("--document_context",) if options.size in _APART else ()
    # The paper's BiLSTM is as wide as Base (section 5.3), ours as each size.
    width = min(768, tables.SIZES[options.size][1])
    if choice:
        context = (*context, f"--choices={choice}")
    given = (*data, f"--seeds={options.seeds}", f"--size={width}", *context)
    parent = options.output / "features" / _name(first)
    folder = parent / f"ner-{options.seeds}seeds-{digest(*given)}"
    start = f"--init_from={first.folder}"
    arguments, needs = (start, *given), _needs(first)
    return Run("features", folder, arguments, first.model, needs, program=FEATURES)


def _name(first: Run) -> str:
    """What the folder is called of what starts from a pre-training."""
    if first.kind != "weights":
        return first.folder.name
    return f"{first.folder.name}-{digest(str(first.folder))}"


def _needs(first: Run) -> tuple[Path, ...]:
    """The folder that a run waits for, if any."""
    return () if first.kind == "weights" else (first.folder,)
