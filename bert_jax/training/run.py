"""An open run: builds, restores, evaluates, saves, reports and closes it."""

import contextlib
import functools
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
from jax.sharding import Mesh
from jaxtyping import Array
from ml_collections import ConfigDict

from bert_jax import tokenization
from bert_jax.errors import UserError
from bert_jax.runtime import processes, signals, storage, terminal
from bert_jax.tasks.task import Predictor, Task, json_lines
from bert_jax.training import anomaly, inference, setup, sharding
from bert_jax.training import optimizer as optimizers
from bert_jax.training.branch import check_branch, find_branch
from bert_jax.training.log import Log, count_positions
from bert_jax.training.profiling import Profile
from bert_jax.training.step import Step, TrainState
from bert_jax.training.watch import find_watchers, join_watched
from bert_jax.workdir import folder as workdir
from bert_jax.workdir import metrics
from bert_jax.workdir.checkpoint import Checkpoints, checkpoint_name, has_checkpoint

LINE = 79  # columns of a line in the log


class EventSchedule:
    """The schedule of logging, saving and evaluating, by number of finished steps.

    Args:
      epoch_size: Number of training rows.
    """

    def __init__(self, config: ConfigDict, epoch_size: int):
        self.num_steps = config.train.num_steps
        self._train, self._save_every = config.train, config.checkpoint.save_every
        self._epoch = epoch_size if config.train.eval_every_epoch else 0

    def should_log(self, step: int) -> bool:
        return step == self.num_steps or step % self._train.log_every == 0

    def should_save(self, step: int) -> bool:
        return step == self.num_steps or step % self._save_every == 0

    def should_watch(self, step: int) -> bool:
        return bool(self._train.watch) and step % self._train.watch == 0

    def should_evaluate(self, step: int) -> bool:
        every, rows = self._train.eval_every, self._train.batch_size
        if step == self.num_steps or (every and step and step % every == 0):
            return True
        if not (self._epoch and step):
            return False
        return step * rows // self._epoch > (step - 1) * rows // self._epoch

    def any_event(self, step: int) -> bool:
        saves_or_logs = self.should_log(step) or self.should_save(step)
        writes = saves_or_logs or self.should_watch(step)
        return writes or self.should_evaluate(step)


class BestScore:
    """The quality of each evaluation, including those before a resume.

    Losses at different sequence lengths are not comparable: when the schedule changes
    the shape of batches (apart from their number of rows), earlier evaluations are
    dropped, so the best is the best of the current phase.
    """

    def __init__(self, task: Task, folder: storage.Path, split: tuple[str, ...]):
        self._task = task
        self._seen: list[tuple[int, float]] = []  # step, quality
        for name in split:
            for line in metrics.read_metrics(folder, name):
                self.add(int(line["step"]), line)

    def add(self, step: int, numbers: Mapping[str, int | float]) -> bool:
        """Adds the scores after `step` steps. Returns whether they are the best."""
        if self._seen and self._shape(step) != self._shape(self._seen[-1][0]):
            self._seen = []
        value = self._task.selection_value(numbers)
        best = all(value > other for _, other in self._seen)
        self._seen.append((step, value))
        return best

    def should_stop(self, patience: int) -> bool:
        """Returns whether none of the last `patience` evaluations beat the best before
        them. Always False if `patience` is 0."""
        if not patience or len(self._seen) <= patience:
            return False
        values = [value for _, value in self._seen]
        return max(values[-patience:]) <= max(values[:-patience])

    def early_stop(self, step: int, taken: int) -> str:
        """Returns a line: why a run ended at step `step`, and which weights it uses.

        Args:
          taken: Step of these weights.
        """
        best, _ = max(self._seen, key=lambda seen: seen[1])
        since = sum(later > best for later, _ in self._seen)
        return (
            f"early stop at step {step}: {since} evaluations no better than step "
            f"{best}'s; the result is that of step {taken}"
        )

    def _shape(self, step: int) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the last step's batch, without the number of rows."""
        shapes = self._task.phase_at(step - 1).shapes
        return {name: shape[1:] for name, shape in shapes.items()}


def require_dev(task: Task) -> None:
    """Reads the evaluation data, before a run claims its folder.

    Raises:
      UserError: A file is missing or wrong, or a field needs scores on dev and there
        are none.
    """
    config, dev = task.config, task.dev_splits  # reads the files
    needs = {
        f"train.early_stop={config.train.early_stop}": config.train.early_stop,
        f"evaluate.score={config.evaluate.score}": config.evaluate.score,
        "evaluate.checkpoint=best": config.evaluate.checkpoint == "best",
        "task.calibration": task.options.calibration != "none",
    }
    if not dev and (set_fields := [name for name, value in needs.items() if value]):
        raise UserError(
            f"config.{set_fields[0]}: needs scores on dev, and there are none; name "
            "dev data (in Python dev=), and dev in config.evaluate.splits"
        )


class Run:
    """A run: its `state` after `step` steps, and the operations of the loop on it.

    Building it reads the data, which it prepares if necessary, and then claims the
    folder and restores the newest checkpoint. All processes do it together.

    Args:
      task: The task, whose config is resolved.
      folder: The work directory.
      stack: A stack whose end closes the run.
      code: Result of `files.read_code`. None means that the code is not known.
      step: Class of the training step.

    Attributes:
      train_step: The training step.
      log: The printed lines and written metrics.
      due: The schedule of logging, saving and evaluating.
      best_score: Scores on the first dev split.
      anomalies: Steps whose loss is not finite.
      branch: The place in another run where this one begins, if it does.
      profile: The recording of `train.profile_steps`.
      learning_rates: Learning rate of each step.

    Raises:
      UserError: A problem that the user can fix. Leaves no half-written file.
    """

    state: TrainState
    step: int
    counted: tuple[float, float]  # for the last batch, see `log.count_positions`

    def __init__(
        self,
        task: Task,
        folder: storage.Path,
        stack: contextlib.ExitStack,
        code: Mapping[str, bytes] | None = None,
        step: type[Step] = Step,
    ):
        config = task.config
        self.task, self.folder = task, folder
        self.mesh = sharding.make_mesh(config)
        workdir.check_run(folder, config)
        is_new = not has_checkpoint(folder)
        self.branch = find_branch(config) if is_new else None
        if self.branch is not None:
            check_branch(config, self.branch)
        starts_fresh = is_new and self.branch is None
        needs_weights = starts_fresh or config.model.lora_rank
        base, loaded = (
            setup.read_start(task, self.mesh) if needs_weights else (None, None)
        )
        self.loaded = loaded if starts_fresh else None  # parameters, report
        self.train_step = step(task, self.mesh, base)
        self.seeds = self.train_step.seeds
        self._abstract = self.seeds.abstract(self.train_step.abstract)
        self.learning_rates = optimizers.learning_rates(config)
        if self.branch is not None and base is not None:
            workdir.check_data(self.branch.folder, {"base": base.digest})
        task.reuse_prepared_data(workdir.read_data(folder))
        with processes.wait_for_first():
            self.data = setup.recording(
                task.training_data(), self.train_step.constant_values, base
            )
            require_dev(task)
            inference.require_score(task, self.mesh)
        processes.check_same("the prepared data", self.data.record)
        self.due = EventSchedule(config, self.data.epoch_size)
        self._watchers = find_watchers(config.train.watchers)
        branched = self.branch and self.branch.restore(self._abstract.items())
        self._claim()
        stack.enter_context(signals.defer_signals())
        resume_step = self._restore(stack, branched)
        self._open(stack, resume_step)
        for line in opening_lines(self, resume_step):
            self.log.note(line)
        if code is not None and processes.is_first():
            if resume_step is None:
                workdir.write_code(folder, code)
            elif warning := workdir.changed_code_warning(folder, code):
                self.log.note(warning)
        self.log.print_counts(task.notices)

    def _claim(self) -> None:
        """Writes config, vocabulary and data record to the folder."""
        task, data, is_first = self.task, self.data, processes.is_first()
        with processes.wait_for_first():
            workdir.claim_folder(
                *(self.folder, task.config, task.tokenizer, data.record), write=is_first
            )
        if is_first and self.loaded is not None:
            path = self.folder / "init_from.json"
            storage.write_atomically(path, self.loaded[1].to_json())

    def _restore(
        self, stack: contextlib.ExitStack, branched: tuple[dict[str, Any], int] | None
    ) -> int | None:
        """Restores `state` and `step`. Returns the step, or None for a new run.

        Args:
          branched: Result of `Branch.restore`. None means that it is no new branch.
        """
        config, kept = self.task.config, self.task.config.checkpoint
        self._checkpoints = stack.enter_context(
            Checkpoints(self.folder, kept.keep, keep_every=kept.keep_every)
        )
        saved = self._checkpoints.restore(self._abstract.items())
        if saved:
            self.state, self.step = self._abstract.restored(*saved), saved[1]
        elif branched is not None:
            trees, step = branched
            self.step = 0 if config.train.branch_step == "zero" else step
            self.state = self._abstract.restored(trees, self.step)
        else:
            params = None if self.loaded is None else self.loaded[0]
            self.state, self.step = self.train_step.first_state(params), 0
        if processes.is_first():
            workdir.drop_best(self.folder, self.step if saved else -1)
        processes.barrier()
        self._best = None
        takes_best = checkpoint_name(config) == "best" or self.data.epoch_size
        if self.task.dev_splits and self.seeds.count == 1 and takes_best:
            self._best = stack.enter_context(Checkpoints(self.folder, 1, "best"))
        return self.step if saved else None

    def _open(self, stack: contextlib.ExitStack, resume_step: int | None) -> None:
        """Opens the log and the stream of batches."""
        task, config = self.task, self.task.config
        self.log = Log(self.seeds, self.folder, config, resume_step, self.step)
        stack.callback(self.log.close)
        profile = Profile(config.train.profile_steps, self.step, self.folder)
        self.profile = stack.enter_context(profile)
        processes.barrier()  # all read the log, once it is cut to the resume step
        self.best_score = BestScore(task, self.folder, task.dev_splits[:1])
        stops = config.train.on_anomaly == "stop"
        self.anomalies = anomaly.Anomalies(stops, self.seeds, self.log)
        self.evaluator = inference.Evaluator(
            task, self.seeds, self.mesh, model_params=self.train_step.model_params
        )
        rows = sharding.local_rows(self.mesh, config.train.batch_size)
        self._batches = self.seeds.batches(task, self.step, rows)

    def next_batch(self) -> dict[str, Array]:
        """Waits for the batch of the next step, and puts it on the devices."""
        with self.log.stepping():
            rows, size = next(self._batches), self.task.phase_at(self.step).batch_size
            self.counted = count_positions(rows)
            return sharding.place_batch(rows, self.mesh, size, self.seeds.count)

    def compiled_step(self, batch: dict[str, Array]) -> jax.stages.Compiled:
        """Returns the step's program for these shapes. `Step.trace` has arguments."""
        parts = self.task.phase_at(self.step).micro_batches
        watchers = self._watchers if self.due.should_watch(self.step + 1) else ()
        return self.train_step.compiled(self.state, batch, parts, self.log, watchers)

    def write_watched(
        self, batch: dict[str, Array], metrics: dict[str, Array], watched: Any
    ) -> None:
        """Logs the numbers of a step's watchers.

        Args:
          watched: Those that the step has computed.
        """
        with self.log.stepping():
            jax.block_until_ready(watched)
        for watcher in self._watchers:
            watched = join_watched(
                watched, watcher.after_step(self.state, batch, metrics), self.seeds
            )
        if watched:
            self.log.write(self.step, "watch", self.seeds.floats(watched))

    def evaluate(self) -> None:
        """Evaluates the dev splits that lack scores at this step. Saves the best."""
        # The first split's line is written last: it marks the evaluation complete.
        dev, params = self.task.dev_splits, self.state.evaluation_params()
        for split in reversed(dev):
            if self.log.has(self.step, split):
                continue
            self.log.note(f"evaluating {split} at step {self.step}")
            results = [*self.evaluator.results(params, split, self.step)]
            scores = [each.scores for each in results]
            better = split == dev[0] and self.best_score.add(self.step, scores[0])
            if better and self._best is not None:
                self._best.save({"params": params}, self.step)
                self._best.wait()  # must be saved before its line is written
            is_fitted = split == dev[0] and self.seeds.count == 1
            if is_fitted and processes.is_first():  # also for a run that is stopped
                workdir.write_facts(self.folder, results[0].fitted, self.step)
            means = self.log.write(self.step, split, scores)
            self.log.print_counts(self.task.notices)
            if self.step < self.due.num_steps:  # else a table follows
                main = self.task.selection_score
                # The main score, and others that fit.
                names = sorted(means, key=lambda name: name != main)
                shown = ", ".join(f"{name} {means[name]:.4g}" for name in names)
                line = f"step {self.step} {split}: {shown}"
                self.log.note(textwrap.shorten(line, LINE, placeholder=" ..."))

    def save(self, *, wait: bool = False) -> None:
        """Starts saving the state. With `wait`, waits until it is on disk."""
        self.log.flush()  # a run that resumes here needs the lines before it
        self._checkpoints.save(self.state.items(), self.step)
        if wait:
            self._checkpoints.wait()

    def finish(self) -> int:
        """Saves the last state, evaluates the run's final weights, reports.

        Returns:
          The step of these weights.
        """
        self.save(wait=True)
        params, taken = self.state.evaluation_params(), self.step
        if self._best is not None and checkpoint_name(self.task.config) == "best":
            best = self._best.restore_params(self.train_step.abstract.params)
            params, taken = best or (params, taken)
        if self.step < self.due.num_steps:
            self.log.note(self.best_score.early_stop(self.step, taken))
        self.log.end_progress()
        print_scores(self, params, taken)
        self.log.finished = True
        self.seeds.close(
            *(self.task, self.data.record, self.folder), *(self.state, self.step)
        )
        return taken


def opening_lines(run: Run, resume_step: int | None) -> Iterator[str]:
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
    count, learning = run.train_step.parameter_counts()
    shape = " ".join(f"{axis}={n}" for axis, n in mesh.shape.items())
    yield (
        f"model: {sizes.num_hidden_layers} layers of {sizes.hidden_size}; "
        f"{count:,}{f' (x {seeds} seeds)' if seeds > 1 else ''} parameters"
        f"{f', {learning:,} of which learn,' if learning < count else ''} on "
        f"{mesh.size} x {jax.devices()[0].device_kind} ({shape})"
    )
    tokenizer = tokenization.describe_tokenizer(task.tokenizer)
    unknown = run.data.unknown_share
    line = f"tokenizer: {tokenizer}; {unknown:.2%} [UNK]"
    if unknown > tokenization.MANY_UNKNOWN:
        line += (
            "\nwarning: that is a lot; check that the vocabulary and its case fit the "
            "texts and the weights"
        )
    yield line
    yield f"log: {run.folder}/metrics.jsonl; curves: tensorboard --logdir={run.folder}"
    if not task.splits:
        yield "nothing will be scored: no dev data, or no evaluate.splits"
    yield "to stop: Ctrl-C, which saves; the same command resumes"
    if resume_step is not None:
        yield f"resuming at step {resume_step} of {run.due.num_steps}"
    elif run.branch is not None:
        yield f"from the state of {run.branch.folder}, at step {run.step}"
    elif run.loaded is not None:
        merged = run.loaded[1].table()
        yield f"from {task.config.init_from}:\n{terminal.format_table(*merged)}"


def print_scores(run: Run, params: Any, now: int) -> None:
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
                workdir.write_facts(predictions.parent, results.fitted, now)
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
    run.log.print_counts(task.notices)
    for predictions, one in zip(folders, seeds.split(params), strict=True):
        params = run.train_step.model_params(one, now)
        given = {"params": params, "mesh": run.mesh, "config": task.model_config}
        # Every process takes part in the computation.
        text, rows = task.show_examples(functools.partial(_answer_few, **given))
        if rows and is_first:
            print(text)
            storage.write_atomically(predictions / "dev.jsonl", json_lines(rows))
    written = [str(predictions) for predictions in folders if predictions.is_dir()]
    if written and is_first:
        print(f"\npredictions: {', '.join(written)}")


def _answer_few(
    predictor: Predictor, parsed: Sequence[Any], params: Any, mesh: Mesh, config: Any
) -> list[dict[str, Any]]:
    return inference.Answerer(predictor, params, mesh, 4, config).start(parsed)()
