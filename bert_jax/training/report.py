"""What a run prints when it starts, and prints and writes when it ends."""

import contextlib
import functools
import io
import itertools
import pathlib
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
from jax.sharding import Mesh

from bert_jax import family, tokenization
from bert_jax.data.rows import Batch
from bert_jax.data.vocabulary_fit import Fit
from bert_jax.family import FAMILIES
from bert_jax.models.heads import count_parameters
from bert_jax.runtime import processes, storage, terminal
from bert_jax.runtime.storage import Path
from bert_jax.tasks.task import ApplyFn, Outputs, PredictFn, Task
from bert_jax.training import memory, sharding
from bert_jax.training.evaluator import Evaluator
from bert_jax.training.inference import Compiled
from bert_jax.training.run_setup import RunSetup
from bert_jax.training.seeds import RunLog
from bert_jax.training.step import TrainState
from bert_jax.workdir import folder as workdir

# Fraction of [UNK] in the training data; about 0.0001 for bert-base-uncased in English.
MANY_UNKNOWN = 0.02
LINE = 79  # columns of a line in the log


def opening(
    setup: RunSetup, state: TrainState, resume_step: int | None
) -> Iterator[str]:
    """Yields lines: what is trained, on what, where the log is, how to stop, and where
    it starts; and that nothing will be scored, where no split has data."""
    task, folder, mesh = setup.task, setup.folder, setup.program.mesh
    phases = ", then ".join(
        f"{phase.steps:,} steps of {phase.batch_size} rows of up to "
        f"{phase.shapes['input_ids'][-1]} tokens"
        for phase in task.phases()
    )
    yield f"{folder}: {task.config.task.name}, {phases}"
    sizes, count = task.model_config, task.config.train.seeds
    seeds = f" (x {count} seeds)" if count > 1 else ""
    params = count_parameters(state.params) // count
    shape = " ".join(f"{axis}={n}" for axis, n in mesh.shape.items())
    yield (
        f"model: {sizes.num_hidden_layers} layers of {sizes.hidden_size}; "
        f"{params:,}{seeds} parameters on {mesh.size} x "
        f"{jax.devices()[0].device_kind} ({shape})"
    )
    yield memory.of_state(state.params, state.opt_state)
    yield _tokenizer_line(task, setup.data.fit)
    yield f"log: {folder / 'metrics.jsonl'}; curves: tensorboard --logdir={folder}"
    if not task.splits:
        yield "nothing will be scored: no dev data, or no evaluate.splits"
    yield "to stop: Ctrl-C, which saves; the same command resumes"
    num_steps = task.config.train.num_steps
    if resume_step is None and setup.weights is not None:
        merged = setup.weights[1].table()
        yield f"from {task.config.init_from}:\n{terminal.table(*merged)}"
    if resume_step is None:
        return
    yield f"resuming at step {resume_step} of {num_steps}"
    if setup.steps_before < num_steps:
        yield (
            f"the run had {setup.steps_before} steps; the learning rate now follows "
            f"the schedule of {num_steps}"
        )


def close(
    evaluator: Evaluator,
    folder: Path,
    params: Any,
    now: int,
    log: RunLog,
    tell: Callable[[Mapping[str, int]], None],
) -> Mapping[str, float]:
    """Prints every split's scores and writes its prediction files.

    Args:
      tell: prints the task's notices, those about the test splits among them.

    Returns:
      The baseline's scores on the first dev split.
    """
    task, seeds = evaluator.task, evaluator.seeds
    folders = [path / "predictions" for path in seeds.folders(folder)]
    baseline: Mapping[str, float] = {}
    for split in task.splits:
        each = []
        for predictions, results in zip(
            folders, evaluator.results(params, split, now), strict=True
        ):
            each.append(results.scores)
            if processes.is_first():
                results.write(predictions)
                workdir.write_facts(predictions.parent, task.facts, now)
        if split in task.dev_splits[:1]:
            baseline = results.baseline
        if each[0]:
            means = seeds.means(split, each)
            if not log.has(now, split):
                log.write(now, split, each)
            if processes.is_first():
                print(f"\n{split} at step {now}")
                print(terminal.table(*results.table(split, means)))
                if seeds.count == 1 and (details := results.details()):
                    print(f"\n{details}")
    tell(task.notices)
    if processes.is_first():
        totals = evaluator.clock.totals()
        spent = [(name, f"{seconds:.1f}") for name, seconds in totals.items()]
        print("\n" + terminal.table(spent, ("time", "seconds")))
    for predictions, one in zip(folders, seeds.split(params), strict=True):
        with _unless_first_unseen(predictions) as place:
            run = functools.partial(_predict_few, params=one, mesh=evaluator.mesh)
            task.show(place, run)
    written = [str(predictions) for predictions in folders if predictions.is_dir()]
    if written and processes.is_first():
        print(f"\npredictions: {', '.join(written)}")
    if processes.is_first():
        print(_what_next(task, seeds.folders(folder)[0], params))
    return baseline


def _what_next(task: Task, folder: Path, params: Mapping[str, Any]) -> str:
    """Commands to try with a trained model."""
    run, place = f"  {_python()} -m bert_jax.main", shlex.quote(str(folder))
    own = workdir.defined_in(task.config)
    asks = f"{run} --workdir={place}"
    asks += f" --config={shlex.quote(next(iter(own.values())))}" if own else ""
    export = f"{asks} --mode=export --output=FOLDER"
    rows, finetune = "ROWS.jsonl", []
    if task.config.task.name == "pretraining":
        config = "configs/finetune/glue.py:task=mrpc"
        kind = task.model_config.architecture
        config += f",model={kind}" if kind != "bert" else ""
        rows = "TEXTS.txt"
        data = "--config.task.data_dir=hf:nyu-mll/glue"
        if not own.keys() & {"model.architecture", "model.layer", "model.positions"}:
            finetune = [f"{run} --config={config} {data} --config.init_from={place}"]
    predict = f"{asks} --mode=predict --input={rows}"
    lines = ["\ntry next:", *([predict] if task.answers_rows else []), *finetune]
    if not _unexported(task, params):
        lines.append(export)
    return "\n".join(lines)


def _unexported(task: Task, params: Mapping[str, Any]) -> bool:
    """Whether `--mode=export` refuses the run."""
    its, fields = family.of(task.config), task.config.task
    head = getattr(task, "head", "")
    if its.unexported(fields) or fields.name == its.name:
        return bool(its.unexported(fields))
    parts = {its.trunk_name, "masked_lm", "next_sentence"}
    if head:
        from bert_jax.models.architectures import BUILT_IN

        parts |= {*BUILT_IN} - set(itertools.chain(*its.layout.OURS.values()))
    return bool(params.keys() - parts or task.model_config.of_your_own())


def _python() -> str:
    """What starts this Python here: `python` where it is the one on the path."""
    path = shutil.which("python")
    if path and pathlib.Path(path).parent == pathlib.Path(sys.executable).parent:
        return "python"
    with contextlib.suppress(ValueError):  # another folder
        return str(pathlib.Path(sys.executable).relative_to(pathlib.Path.cwd()))
    return sys.executable


@contextlib.contextmanager
def _unless_first_unseen(folder: Path) -> Iterator[Path]:
    """Yields process 0 the folder; the others, which must take part in the computation,
    a temporary folder, with standard output discarded."""
    if processes.is_first():
        yield folder
        return
    with (
        tempfile.TemporaryDirectory() as gone,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        yield storage.path(gone)


def one_line(now: int, split: str, scores: Mapping[str, float], main: str) -> str:
    """An evaluation for the progress log: the main score, and others while they fit."""
    shown = [f"{name} {value:.4g}" for name, value in scores.items() if name != main]
    line = f"step {now} {split}: {main} {scores[main]:.4g}"
    for more in shown:
        if len(line) + len(more) > LINE - 2:
            break
        line += f", {more}"
    return line


def _predict_few(function: ApplyFn, params: Any, mesh: Mesh) -> PredictFn:
    compiled, size = Compiled(function, mesh), sharding.batch_multiple(mesh, 4)

    def predict(rows: Batch) -> Outputs:
        outputs = jax.device_get(compiled.of(params, rows, size))
        return {name: x[: len(rows["input_ids"])] for name, x in outputs.items()}

    return predict


def _tokenizer_line(task: Task, fit: Fit) -> str:
    """Describes the tokenizer; warns if much of the text is [UNK] or letters."""
    its = family.of(task.config)
    if its.vocabulary is None and task.config.task.name not in FAMILIES:
        return f"words: {its.words(task.config)}"
    summary = tokenization.summary(task.tokenizer)
    line = f"tokenizer: {summary}; {fit.unknown_share:.2%} [UNK]"
    texts = task.config.task.get("train_file") or task.config.task.get("data_dir")
    if fault := fit.fault(texts or ", ".join(task.config.corpus.sources)):
        return f"{line}\nwarning: {fault}"
    reads_all = its.vocabulary is None  # rare words, too
    if fit.unknown_share <= MANY_UNKNOWN or reads_all:
        return line
    return (
        f"{line}\nwarning: that is a lot; check that the vocabulary and its case fit "
        "the texts and the weights"
    )
