"""The loop, for every task."""

import contextlib
import functools
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import Mesh

from bert_jax import (
    anomaly,
    compilation,
    evaluate,
    initial,
    memory,
    merge,
    processes,
    sharding,
    signals,
    step,
    storage,
    tokenization,
    workdir,
    workdir_lock,
)
from bert_jax import optimizer as optimizers
from bert_jax.checkpoint import Checkpoints, checkpoint_name, has_checkpoint
from bert_jax.errors import Interrupted, UserError
from bert_jax.heartbeat import Heartbeat
from bert_jax.history import History, Speed, collapsed
from bert_jax.merge import Report
from bert_jax.metrics import Progress, Stopwatch, table
from bert_jax.models.heads import count_parameters
from bert_jax.seeds import Log, Seeds
from bert_jax.storage import Path
from bert_jax.tasks.task import Task

# Of the pieces of the training data; bert-base-uncased finds some 0.01% in English.
MANY_UNKNOWN = 0.02


def train(task: Task, folder: Path) -> None:
    """Trains to `config.train.num_steps`, from the newest checkpoint if there is one.

    A run that has learnt nothing is said to have collapsed; `config.train.restarts`
    times it is put aside and begun anew with the next seed.

    Args:
      task: its config is resolved.
      folder: the work directory.

    Raises:
      UserError: what the user can mend; nothing half-written is left.
      Interrupted: SIGTERM or Ctrl-C; the step it stopped at is saved.
    """
    restarts = task.config.train.restarts
    if restarts and storage.in_bucket(folder):
        raise UserError(
            f"config.train.restarts={restarts}: in a bucket ({folder}) no run can be "
            "put aside at once; take a --workdir of a file system, or restarts=0"
        )
    is_first = processes.is_first()
    with workdir_lock.held(folder) if is_first else contextlib.nullcontext():
        if is_first:
            workdir.finish_putting_aside(folder)
        processes.barrier()
        first = min(workdir.runs_put_aside(folder), restarts)
        for attempt in range(first, restarts + 1):
            _run(task, folder, task.config.seed + attempt)
            processes.barrier()
            if not collapsed(task, folder) or attempt == restarts:
                break
            processes.barrier()  # all have read what is moved now
            if is_first:
                workdir.put_aside(folder, attempt)
            processes.barrier()


def _run(task: Task, folder: Path, first_seed: int) -> None:
    config = task.config
    anomaly.check(config, processes.count())
    seeds = Seeds(config, first_seed)
    mesh = sharding.make_mesh(config)
    memory.require(config, trains=True)
    optimizer = optimizers.make(config)
    schedule = optimizers.learning_rate_schedule(config)
    abstract = sharding.abstract_state(
        task.init_params, optimizer, mesh, config.mesh.optimizer
    )
    takes_best = checkpoint_name(config) == "best"
    workdir.check(folder, config)
    anew = not has_checkpoint(folder)
    read = functools.partial(initial.read, task, abstract.params)
    begun = read() if anew else None
    task.recall(workdir.read_data(folder))
    with processes.first_alone():
        task.prepare()
    data, first = task.data_record(), processes.is_first()
    processes.check_same("the prepared data", data)
    with processes.first_alone():
        workdir.claim(folder, config, task.tokenizer, data, write=first)
        if anew and first:
            workdir.drop_best(folder)

    def initial_state(weights: tuple[Any, Report] | None) -> step.TrainState:
        def create(seed: jax.Array) -> step.TrainState:
            params = nn.meta.unbox(task.init_params(jax.random.key(seed)))
            return step.init_state(params, optimizer)

        shardings = sharding.shardings_of(seeds.abstract(abstract))
        state = jax.jit(seeds.each(create), out_shardings=shardings)(seeds.array)
        if weights is None:
            return state
        return state._replace(params=merge.fill(weights[0], state.params))

    def compile_step(
        state: step.TrainState, batch: step.Batch, parts: int
    ) -> jax.stages.Compiled:
        lowered = compilation.lower_step(
            task, optimizer, schedule, seeds, mesh, state, batch, parts
        )
        return lowered.compile()

    num_steps = config.train.num_steps
    rows = sharding.local_rows(mesh, config.train.batch_size)
    dev = task.dev_splits
    keeps_best = bool(dev and seeds.count == 1 and (takes_best or task.epoch_size))
    clock = Stopwatch()
    with (
        signals.deferred(processes.stop()) as stop,
        Heartbeat(
            folder, clock, config.train.stall_seconds, jax.process_index()
        ) as heart,
        Checkpoints(
            folder, config.checkpoint.keep, keep_every=config.checkpoint.keep_every
        ) as checkpoints,
        Checkpoints(folder, 1, "best")
        if keeps_best
        else contextlib.nullcontext(checkpoints) as best,
    ):
        checkpoints.check(num_steps)
        newest = functools.partial(checkpoints.restore, seeds.abstract(abstract))
        restored = newest()
        state, now = restored or (initial_state(begun), 0)
        log = Log(seeds, folder, now if restored else None, processes.is_first())
        processes.barrier()  # the log holds what is gone on from, and all read that
        history = History(task, folder, dev[:1])
        progress = Progress(num_steps, now, active=processes.is_first())
        anomalies = anomaly.Anomalies(
            config.train.on_anomaly, seeds.floats, log.anomaly, progress.note
        )
        evaluator = evaluate.Evaluator(task, seeds, mesh, stop, clock)
        batches = seeds.batches(task, now, rows)
        compiled: dict[tuple, jax.stages.Compiled] = {}
        speed, widest = Speed(clock), 0
        progress.note(f"{folder}: {_size_and_devices(abstract.params, mesh)}")
        progress.note(memory.of_state(state))
        progress.note(_tokenizer_line(task))
        if restored:
            progress.note(f"resuming at step {now} of {num_steps}")
        elif begun is not None:
            progress.note(f"from {config.init_from}:\n{table(*begun[1].table())}")
            if processes.is_first():
                report = begun[1].to_json()
                storage.write_atomically(folder / "init_from.json", report)

        def save(state: step.TrainState, now: int) -> None:
            log.flush()  # who goes on from the checkpoint wants the lines before it
            with clock("checkpoint"):
                checkpoints.save(state, now)

        def gone_back(left: step.TrainState) -> tuple[step.TrainState, int]:
            """The newest good checkpoint's state, saved as that after the anomaly."""
            progress.note(f"going back, and on from step {anomalies.step}")
            with clock("checkpoint"):
                # Both at a time would need twice the room.
                jax.tree.map(lambda x: x.delete(), left)
                checkpoints.drop(anomalies.step - 1)  # nothing good has come of it
                # What was read for the first state is gone with it.
                good, _ = newest() or (initial_state(read()), 0)
                good = anomalies.leave_out(good)
            save(good, anomalies.step)
            return good, anomalies.step

        try:
            while True:
                heart.step = now
                if now == num_steps or _evaluation_due(task, now):
                    # The first one's line, written last, says that all is done.
                    for split in reversed(dev):
                        if log.has(now, split):
                            continue
                        progress.note(f"evaluating {split} at step {now}")
                        numbers = evaluator.numbers(state.params, split, now)
                        better = split == dev[0] and history.add(now, numbers[0])
                        if better and keeps_best:
                            best.save_params(state.params, now)
                            best.wait()  # before the line that says so
                        means = log.write(now, split, numbers)
                        progress.tell(task.told)
                        progress.note(evaluate.one_line(now, split, means))
                if now == num_steps or history.stops(config.train.early_stop):
                    break

                with clock("data wait"), stop.at_once():
                    batch = sharding.place_batch(
                        next(batches), mesh, task.batch_size(now), seeds.count
                    )
                parts = task.micro_batches(now)
                shapes = (parts, *((k, v.shape) for k, v in batch.items()))
                if shapes not in compiled:
                    with clock("compile"):
                        compiled[shapes] = signals.run_interruptibly(
                            functools.partial(compile_step, state, batch, parts), stop
                        )
                    if batch["input_ids"].size > widest:
                        widest = batch["input_ids"].size
                        progress.note(memory.of_step(compiled[shapes], batch))
                    progress.tell(task.told)
                with clock("step"):
                    state, metrics = compiled[shapes](state, batch, seeds.array)
                    now += 1
                    # One step runs while the next is put together, no more.
                    goes_back = anomalies.add(now, metrics)
                    if stop.signal_number or _something_due(task, now):
                        goes_back = goes_back or anomalies.settle()
                if goes_back:
                    state, now = gone_back(state)
                    batches = seeds.batches(task, now, rows)
                    continue
                speed.add(task, batch, seeds.count)
                progress.update(now)

                if now % config.train.log_every == 0 or now == num_steps:
                    with clock("step"):
                        each = seeds.floats(metrics)
                    rates = speed.rates(sharding.peak_flops())
                    means = log.write(now, "train", [one | rates for one in each])
                    progress.log(now, means)
                if now % config.checkpoint.save_every == 0 or now == num_steps:
                    save(state, now)
                stop.check()
            save(state, now)
            with clock("checkpoint"):
                checkpoints.wait()
            params, final = state.params, now
            if takes_best and dev:
                params, final = best.restore_params(abstract.params) or (params, now)
            if now < num_steps:
                progress.note(history.early_stop(now, final, keeps_best))
            progress.close()
            evaluate.close(evaluator, folder, params, final, log)
            seeds.close(task, folder, state, now)
        except Interrupted:
            if anomalies.settle():
                state, now = gone_back(state)
            progress.note(f"stopping: saving step {now} of {num_steps}")
            with clock("checkpoint"):
                checkpoints.save(state, now)  # first: there may be seconds left
                log.flush()
                checkpoints.wait()
            progress.note(f"saved step {now}; the same command goes on from there")
            raise
        finally:
            progress.close()
            log.close()


def _tokenizer_line(task: Task) -> str:
    """What the run's texts are cut by, and a warning where they do not suit it."""
    share = task.unknown_share()
    line = f"tokenizer: {tokenization.summary(task.tokenizer)}; {share:.2%} [UNK]"
    if share <= MANY_UNKNOWN:
        return line
    return (
        f"{line}\nwarning: that is much; is this the vocabulary, and the case, of the "
        "texts and the weights?"
    )


def _size_and_devices(params: Any, mesh: Mesh) -> str:
    shape = " ".join(f"{axis}={n}" for axis, n in mesh.shape.items())
    kind = jax.devices()[0].device_kind
    return f"{count_parameters(params):,} parameters on {mesh.size} x {kind} ({shape})"


def _something_due(task: Task, now: int) -> bool:
    """Whether after this step anything else is done than to take the next."""
    train, save_every = task.config.train, task.config.checkpoint.save_every
    if now == train.num_steps or now % train.log_every == 0 or now % save_every == 0:
        return True
    return _evaluation_due(task, now)


def _evaluation_due(task: Task, now: int) -> bool:
    """Whether a multiple of `eval_every` is reached, or an epoch has ended."""
    train = task.config.train
    if train.eval_every and now and now % train.eval_every == 0:
        return True
    if not (train.eval_every_epoch and task.epoch_size and now):
        return False
    rows, before = now * train.batch_size, (now - 1) * train.batch_size
    return rows // task.epoch_size > before // task.epoch_size
