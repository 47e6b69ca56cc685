"""A table's runs: their commands, their folders, and what they have left there.

A folder is named after what shapes its run, so tables share what they have in common:

    OUTPUT/pretraining/mlm-1f0c9a27/
    OUTPUT/finetuning/mlm-1f0c9a27/sst2-5seeds-93ab01cd/seed_0 ... seed_4
    OUTPUT/features/mlm-cased-77ab0e31/ner-5seeds-...

`result.json` in a run's folder says that it has ended well; `NAME.failed.json` beside
the folder has the error of one that has not, `NAME.log` what it printed, and
`NAME.budget.json` the steps that read the words it is to read.
"""

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bert_jax.config import configuration
from bert_jax.config.configuration import field_of
from experiments.paper import tables
from experiments.paper.options import Options, finetuning_config
from experiments.paper.systems import Pretraining, System
from experiments.paper.tasks import Found
from experiments.running import ROOT

FEATURES = (sys.executable, "-m", "experiments.features")
# Seeds of smaller models train together, in one program; of these each by itself.
_APART = ("base", "large")
# "The maximal document context" (section 5.3), where a model is large enough for it.
_CONTEXT = ("task.document_context=True", "task.max_seq_length=512")


class Run(NamedTuple):
    """A process to run.

    Attributes:
      kind: "pre-training" or the task.
      folder: its work directory.
      arguments: of bert_jax.main, or of experiments.features, but for the folder.
      model: its size; runs of one kind and model take about equally long.
      needs: the folder of the pre-training run that it starts from.
      words: that it is to read; its steps follow from the data. 0: those of its config.
    """

    kind: str
    folder: Path
    arguments: tuple[str, ...]
    model: str
    needs: Path | None = None
    words: int = 0

    @property
    def budget(self) -> Path:
        """What `experiments.paper.budget` writes."""
        return self.beside(".budget.json")

    def beside(self, end: str) -> Path:
        return self.folder.with_name(self.folder.name + end)


def plan(options: Options) -> list[Run]:
    """All runs of the table, each once, in the order in which they run."""
    runs: dict[Path, Run] = {}
    for system in options.table.systems:
        first = pretraining(options, system.pretraining)
        if not system.pretraining.weights:
            runs.setdefault(first.folder, first)
        for column in options.table.columns:
            if column.task in options.found:
                for run in finetuning(options, system, column.task):
                    runs.setdefault(run.folder, run)
    return list(runs.values())


def pretraining(options: Options, run: Pretraining) -> Run:
    """The pre-training run; its folder is what `init_from` names."""
    if run.weights:  # it has ended
        return Run("weights", Path(run.weights), (), run.size)
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
        shape = {
            "num_hidden_layers": layers,
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "intermediate_size": 4 * hidden,
        }
        fields += [f"--config.model.{name}={value}" for name, value in shape.items()]
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
    """The runs that give a system's scores on a task: one for all seeds together, or
    one for each; one of experiments.features for all its choices."""
    first = pretraining(options, system.pretraining)
    if system.choice:
        task = "features"
    source = first.folder
    if system.share < 100:
        keep, _ = _kept(options)
        step = keep * (tables.SHARES.index(system.share) + 1)
        source = source / "checkpoints" / str(step)
    data, seeds = options.found["ner" if system.choice else task], options.seeds
    start = f"config.init_from={source}"
    if task == "features":
        # Table 8 needs one choice of layers only.
        choice = "" if system.choice else tables.best_features(options.size)
        return [_features(options, first, data.fields, choice)]
    size = system.pretraining.size or options.size
    spec = finetuning_config(data, size, system.pretraining.model)
    shared: tuple[str, ...] = _CONTEXT if task == "ner" and size in _APART else ()
    if options.words:
        shared = _alike(options, data)
    fields = [f"--config.{field}" for field in (*data.fields, *shared, *system.fields)]
    fields += options.finetuning
    parent = options.output / "finetuning" / _name(first)
    share = "" if system.share == 100 else f"-{system.share}percent"
    own = digest(Path(spec).name, *fields)
    arguments = (f"--config={spec}", f"--{start}", *fields)
    if size not in _APART and seeds > 1:
        folder = parent / f"{task}{share}-{seeds}seeds-{own}"
        together = ("--config.seed=0", f"--config.train.seeds={seeds}")
        return [Run(task, folder, (*arguments, *together), first.model, _needs(first))]
    folder = parent / f"{task}{share}-{own}"
    return [
        first._replace(
            kind=task,
            folder=folder / f"seed_{seed}",
            arguments=(*arguments, f"--config.seed={seed}"),
            needs=_needs(first),
            words=0,
        )
        for seed in range(seeds)
    ]


def _alike(options: Options, data: Found) -> tuple[str, ...]:
    """What systems that are compared take from BERT's config of a task, so that they
    read the same rows as often; and their last step, as BERT does."""
    train = configuration.load(finetuning_config(data, options.size), []).train
    fields = {
        "train.batch_size": train.batch_size,
        "train.num_epochs": train.num_epochs,
        "train.early_stop": 0,
        "evaluate.checkpoint": "last",
    }
    given = {field_of(text) for text in options.finetuning}
    return tuple(f"{k}={v}" for k, v in fields.items() if k not in given)


def _features(options: Options, first: Run, fields: Sequence[str], choice: str) -> Run:
    """experiments.features on the pre-training run; an empty choice: all."""
    names = {"task.train_file": "train", "task.dev_file": "dev"}
    names["task.test_file"] = "test"
    files = [field.partition("=") for field in fields]
    data = [f"--{names[field]}={path}" for field, _, path in files]
    context = ("--document_context",) if options.size in _APART else ()
    # The paper's BiLSTM is as wide as Base (section 5.3), ours as each size.
    width = min(768, tables.SIZES[options.size][1])
    if choice:
        context = (*context, f"--choices={choice}")
    given = (*data, f"--seeds={options.seeds}", f"--size={width}", *context)
    parent = options.output / "features" / _name(first)
    folder = parent / f"ner-{options.seeds}seeds-{digest(*given)}"
    start = f"--init_from={first.folder}"
    return Run("features", folder, (start, *given), first.model, _needs(first))


def _name(first: Run) -> str:
    """What the folder is called of what starts from a pre-training."""
    if first.kind != "weights":
        return first.folder.name
    return f"{first.folder.name}-{digest(str(first.folder))}"


def _needs(first: Run) -> Path | None:
    """The folder that a run waits for."""
    return None if first.kind == "weights" else first.folder


def digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]
