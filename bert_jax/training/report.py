"""Messages at a run's start, and messages and files at its end."""

import functools
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import Mesh

from bert_jax import family, tokenization
from bert_jax.family import FAMILIES
from bert_jax.models.heads import count_parameters
from bert_jax.runtime import processes, terminal
from bert_jax.tasks.task import Predictor, Task
from bert_jax.training.inference import Answerer
from bert_jax.workdir import folder as workdir

if TYPE_CHECKING:
    from bert_jax.training.run import Run

LINE = 79  # columns of a line in the log
_MANY_UNKNOWN = 0.02  # about 0.0001 for bert-base-uncased in English


def opening_lines(run: "Run", resume_step: int | None) -> Iterator[str]:
    """Yields lines: the model, its data, where the log is, how to stop, and where the
    run starts. One warns that nothing will be scored, where no split has data."""
    task, mesh, seeds = run.task, run.mesh, run.seeds.count
    phases = ", then ".join(
        f"{phase.steps:,} steps of {phase.batch_size} rows of up to "
        f"{phase.shapes['input_ids'][-1]} tokens"
        for phase in task.phases()
    )
    yield f"{run.folder}: {task.config.task.name}, {phases}"
    sizes = task.model_config
    count = count_parameters(run.state.params) // seeds
    shape = " ".join(f"{axis}={n}" for axis, n in mesh.shape.items())
    yield (
        f"model: {sizes.num_hidden_layers} layers of {sizes.hidden_size}; "
        f"{count:,}{f' (x {seeds} seeds)' if seeds > 1 else ''} parameters on "
        f"{mesh.size} x {jax.devices()[0].device_kind} ({shape})"
    )
    yield _tokenizer_line(task, run.data.unknown_share)
    metrics = run.folder / "metrics.jsonl"
    yield f"log: {metrics}; curves: tensorboard --logdir={run.folder}"
    if not task.splits:
        yield "nothing will be scored: no dev data, or no evaluate.splits"
    yield "to stop: Ctrl-C, which saves; the same command resumes"
    num_steps = task.config.train.num_steps
    if resume_step is not None:
        yield f"resuming at step {resume_step} of {num_steps}"
        if run.steps_before < num_steps:
            yield (
                f"the run had {run.steps_before} steps; the learning rate now follows "
                f"the schedule of {num_steps}"
            )
    elif run.weights is not None:
        merged = run.weights[1].table()
        yield f"from {task.config.init_from}:\n{terminal.format_table(*merged)}"


def print_scores(run: "Run", params: Any, now: int) -> None:
    """Prints every split's scores and writes its prediction files.

    Args:
      params: The run's final weights, for all seeds.
      now: Step of these weights.
    """
    task, seeds, is_first = run.task, run.seeds, processes.is_first()
    folders = [path / "predictions" for path in seeds.folders(run.folder)]
    for split in task.splits:
        each = []
        for predictions, results in zip(
            folders, run.evaluator.results(params, split, now), strict=True
        ):
            each.append(results.scores)
            if is_first:
                results.write(predictions)
                workdir.write_facts(predictions.parent, task.fitted, now)
        if not each[0]:
            continue
        means, baseline = seeds.means(split, each), results.baseline()
        if not run.log.has(now, split):
            run.log.write(now, split, each)
        if is_first:
            print(f"\n{split} at step {now}")
            print(terminal.format_table(*results.table(split, means, baseline)))
            if seeds.count == 1 and (details := results.details()):
                print(f"\n{details}")
            is_main = split in task.dev_splits[:1] and task.selection_score in baseline
            if is_main and task.selection_value(means) <= task.selection_value(
                baseline
            ):
                why = "no better than the majority baseline's (docs/faq.md)"
                run.log.note(f"COLLAPSED: the score on {split} is {why}")
    run.log.tell(task.notices)
    if is_first:
        totals = run.log.clock.totals
        spent = [(name, f"{seconds:.1f}") for name, seconds in totals.items()]
        print("\n" + terminal.format_table(spent, ("time", "seconds")))
    if processes.process_count() == 1:  # others would take part in the computation
        for predictions, one in zip(folders, seeds.split(params), strict=True):
            given = {"params": one, "mesh": run.mesh, "config": task.model_config}
            answer = functools.partial(_answer_few, **given)
            task.show_examples(predictions, answer)
    written = [str(predictions) for predictions in folders if predictions.is_dir()]
    if written and is_first:
        print(f"\npredictions: {', '.join(written)}")


def one_line(now: int, split: str, scores: Mapping[str, float], main: str) -> str:
    """Formats an evaluation for the progress log: the main score, others that fit."""
    names = sorted(scores, key=lambda name: name != main)
    shown = ", ".join(f"{name} {scores[name]:.4g}" for name in names)
    return textwrap.shorten(f"step {now} {split}: {shown}", LINE, placeholder=" ...")


def _answer_few(
    predictor: Predictor, parsed: Sequence[Any], params: Any, mesh: Mesh, config: Any
) -> list[dict[str, Any]]:
    return Answerer(predictor, params, mesh, 4, config).start(parsed)()


def _tokenizer_line(task: Task, unknown_share: float) -> str:
    """Describes the tokenizer. Warns if much of the text is [UNK]."""
    its = family.family_of(task.config)
    if its.vocabulary is None and task.config.task.name not in FAMILIES:
        return f"words: {its.describe_input(task.config)}"
    summary = tokenization.describe_tokenizer(task.tokenizer)
    line = f"tokenizer: {summary}; {unknown_share:.2%} [UNK]"
    reads_all = its.vocabulary is None  # rare words, too
    if unknown_share <= _MANY_UNKNOWN or reads_all:
        return line
    return (
        f"{line}\nwarning: that is a lot; check that the vocabulary and its case fit "
        "the texts and the weights"
    )
