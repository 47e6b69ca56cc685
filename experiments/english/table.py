"""What weights are worth: fine-tuned, beside the same model from random values.

    python -m experiments.english.table --init_from=runs/english-mini \
        --data=glue_data,data [--tasks=sst2,mrpc] [--seeds=5] [--steps=all] \
        [--output=runs/english-table] [--plan] [--config.FIELD=VALUE ...]

The folders of --data are searched as experiments.paper does (docs/paper.md). The seeds
of a task train together, in one program; both systems have the same recipe, that of
configs/finetune/ with --size. --steps=2000,4000 or all also fine-tunes the checkpoints
that the run has kept (figure 5's question), and leaves the random values out. Writes
OUTPUT/report.txt and results.json; the same command goes on where it stopped.
"""

import argparse
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax import tokenization
from bert_jax.config import configuration
from bert_jax.convert import weights
from bert_jax.errors import UserError
from bert_jax.runtime import storage, terminal, untrusted
from experiments.lib import command_line, ending, execution, report
from experiments.lib.runs import Run, digest
from experiments.lib.verdicts import Scores, shown
from experiments.paper import results, tasks
from experiments.paper.options import finetuning_config
from experiments.paper.tables import SIZES
from experiments.paper.whole import column

_TASKS = ("sst2", "mrpc", "rte", "cola", "stsb", "mnli", "qnli", "squad", "ner")
COLUMNS = {task: column(task, "accuracy" if task == "mrpc" else "") for task in _TASKS}
# GLUE test scores of small models: google-research/bert, README.md; BabyLM's RoBERTa of
# 10 M words, on its evaluation's part of dev. All were trained on the tasks' whole
# training sets.
PUBLISHED: Mapping[str, Mapping[str, float]] = {
    "sst2": {"tiny": 83.2, "mini": 85.9, "small": 89.7, "BabyLM": 87.0},
    "mnli": {"tiny": 70.2, "mini": 74.8, "small": 77.6, "BabyLM": 73.2},
}
OTHERS = ("tiny", "mini", "small", "BabyLM")
TRAINED, RANDOM = "pre-trained", "random values"
NOTE = """on dev, in percent: mean ± half of the 95% interval over {seeds} seeds
(Student's t); the interval of the gain is of the differences seed by seed
* published: BERT-tiny, mini, small (4 layers of 512; google-research/bert) on test,
  BabyLM's RoBERTa of 10 M words on its part of dev; -: no figure at hand"""
_SET = (
    *("init_from", "seed", "train.seeds", "task.name", "task.data_dir"),
    *("task.train_file", "task.dev_file", "task.test_file", "tokenizer.vocab_file"),
)


@ending.command
def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    options, fields = parse(argv)
    found, missing = tasks.find_all(options.tasks, options.data, "")
    runs = plan(options, fields, found)
    for name, why in missing.items():
        print(f"left out: {name}: {why}", flush=True)
    return execution.finish(
        list(runs.values()),
        options,
        lambda errors: written(options, argv, runs),
        partial=True,
    )


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and the fields of all fine-tuning runs.

    Raises:
      UserError: an option or field that does not exist, or that this sets itself; no
        weights.
    """
    parser = command_line.Parser("experiments.english.table", __doc__)
    parser.add_argument("--init_from", required=True, help="a run or a model folder")
    parser.add_argument("--data", required=True, help="folders, between commas")
    names, every = command_line.several(str, COLUMNS), ",".join(COLUMNS)
    parser.add_argument("--tasks", default=every, type=names, help="of these")
    parser.add_argument("--size", default="tiny", choices=tuple(SIZES))
    parser.add_argument("--seeds", default=5, type=int)
    parser.add_argument("--steps", default="", help="checkpoints of the run, or all")
    parser.add_run_options("runs/english-table")
    options, fields = command_line.with_fields(parser, argv, _SET)
    command_line.check_counts(options, "seeds")
    command_line.require_bert(options.init_from, "the table is")
    return options, fields


def systems(options: argparse.Namespace) -> dict[str, tuple[str, ...]]:
    """What is fine-tuned, by name: the fields of where it starts.

    Raises:
      UserError: a step that has no checkpoint.
    """
    source = options.init_from
    if options.steps:
        return {
            f"step {step}": (f"--config.init_from={source}/checkpoints/{step}",)
            for step in _steps(options)
        }
    shape = weights.read_shape(source)
    random = [f"--config.model.{name}={value}" for name, value in shape.items()]
    model = (weights.recorded(source) or {"model": _official(source)})["model"]
    if positions := model.get("position_initializer"):
        random.append(f"--config.model.position_initializer={positions}")
    # It is of the pre-trained model's new head too.
    spread = f"--config.model.initializer_range={model.get('initializer_range', 0.02)}"
    return {
        TRAINED: (f"--config.init_from={source}", spread),
        RANDOM: (*random, spread, *_vocabulary(source)),
    }


def _official(source: str) -> dict[str, Any]:
    """The file of sizes beside weights that no run of ours wrote."""
    for name in ("config.json", "bert_config.json"):
        if (storage.path(source) / name).exists():
            return untrusted.read_json(storage.path(source), name)
    raise UserError(f"{source}: has no config.json and no bert_config.json")


def plan(
    options: argparse.Namespace, fields: Sequence[str], found: Mapping[str, tasks.Found]
) -> dict[tuple[str, str], Run]:
    """The runs by system and task, in the order in which they run."""
    runs = {}
    starts = systems(options)
    states = {system: _state(start) for system, start in starts.items()}
    for task, own in found.items():
        spec = finetuning_config(own, options.size)
        for system, start in starts.items():
            given = (
                *start,
                *(f"--config.{field}" for field in own.fields),
                "--config.train.eval_every_epoch=False",
                "--config.seed=0",
                f"--config.train.seeds={options.seeds}",
                *fields,
            )
            place = f"{task}-{digest(Path(spec).name, *given, *states[system])}"
            folder = options.output / system.replace(" ", "-") / place
            arguments_of = (f"--config={spec}", *given)
            # Not a run of pre-training: it needs one.
            needs = (Path(options.init_from),)
            runs[system, task] = Run(task, folder, arguments_of, options.size, needs)
    return runs


def written(
    options: argparse.Namespace,
    argv: Sequence[str],
    runs: Mapping[tuple[str, str], Run],
) -> str:
    """Writes results.json and report.txt, of the runs that have ended; their text."""
    found = {key: results.of_run(run, COLUMNS[key[1]]) for key, run in runs.items()}
    names = list(dict.fromkeys(task for _, task in runs))
    table = curve(found, names) if options.steps else compared(found, names, runs)
    facts = report.facts("experiments.english.table", argv)
    about = report.listed(facts)
    note = NOTE.format(seeds=options.seeds)
    text = "\n\n".join([terminal.table(*table), note, about])
    by_task: dict[str, dict[str, dict[int, float]]] = {}
    for (system, task), score in found.items():
        by_task.setdefault(task, {})[system] = score
    contents = {"facts": facts, "scores": by_task}
    return f"{text}\n\n{report.write(options.output, contents, text)}"


def compared(
    found: Scores, names: Sequence[str], runs: Mapping[tuple[str, str], Run]
) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The rows and the header of the table."""
    lines = []
    for task in names:
        floor = results.baseline_of(runs[TRAINED, task], COLUMNS[task])
        trained, random = found[TRAINED, task], found[RANDOM, task]
        both = sorted(trained.keys() & random.keys())
        gain = shown([trained[n] - random[n] for n in both])
        published = PUBLISHED.get(task, {})
        others = (f"{published[o]:.1f}" if o in published else "-" for o in OTHERS)
        majority = "-" if floor is None else f"{floor:.1f}"
        scores = (shown([*system.values()]) for system in (random, trained))
        lines.append((COLUMNS[task].title, majority, *scores, gain, *others))
    header = ("task", "majority", RANDOM, TRAINED, "gain", *(f"{o}*" for o in OTHERS))
    return lines, header


def curve(
    found: Scores, names: Sequence[str]
) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """By pre-training step."""
    steps = list(dict.fromkeys(system for system, _ in found))
    lines = [
        (step, *(shown([*found[step, task].values()]) for task in names))
        for step in steps
    ]
    return lines, ("pre-training", *(COLUMNS[task].title for task in names))


def _steps(options: argparse.Namespace) -> list[int]:
    folder = storage.path(options.init_from) / "checkpoints"
    there = sorted(
        int(path.name)
        for path in (folder.iterdir() if folder.exists() else ())
        if path.name.isdecimal()
    )
    if options.steps == "all" and there:
        return there
    asked = [part for part in options.steps.split(",") if part]
    wrong = [part for part in asked if not part.isdecimal() or int(part) not in there]
    if wrong or not asked:
        listed = ", ".join(map(str, there)) or "none"
        raise UserError(
            f"--steps={options.steps}: {folder} has the steps {listed}; a run keeps "
            "more with --config.checkpoint.keep_every"
        )
    return sorted(map(int, asked))


def _state(start: Sequence[str]) -> list[str]:
    """Tells the weights that a system starts from, if any, from those that stood at the
    same path before; of the files, because the pooler counts too."""
    states = []
    for field in start:
        if configuration.field_of(field) == "init_from":
            folder = storage.path(field.partition("=")[2])
            # Of a run: they have the times.
            files = [*folder.glob("checkpoints/*/_CHECKPOINT_METADATA")]
            files = files or [p for p in folder.iterdir() if p.is_file()]
            hashed = hashlib.sha256()
            for path in sorted(p for p in files if p.suffix != ".md"):
                hashed.update(path.read_bytes())
            states.append(hashed.hexdigest())
    return states


def _vocabulary(source: str) -> tuple[str, ...]:
    """The fields of the vocabulary beside the weights, with its case and accents."""
    tokenizer = weights.read_tokenizer(source)
    if tokenizer is None:
        raise UserError(f"{source}: has no tokenizer.json and no vocab.txt")
    file = f"--config.tokenizer.vocab_file={source}"
    if (storage.path(source) / "tokenizer.json").exists():
        return (f"{file}/tokenizer.json",)
    rules = tokenization.normalization(tokenizer)
    return f"{file}/vocab.txt", *(
        f"--config.tokenizer.{field}={rules[field]}"
        for field in ("lowercase", "strip_accents")
        if field in rules
    )


if __name__ == "__main__":
    ending.start(main)
