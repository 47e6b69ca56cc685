"""The loop, for every task."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
from ml_collections import ConfigDict

from bert_jax import evaluate, initial, sharding, signals, step, tasks, workdir
from bert_jax import optimizer as optimizers
from bert_jax.checkpoint import Checkpoints, has_checkpoint
from bert_jax.data import loader
from bert_jax.errors import Interrupted
from bert_jax.metrics import MetricWriter, Progress, Stopwatch, table
from bert_jax.models.heads import count_parameters


def train(config: ConfigDict, folder: Path) -> None:
    """Trains to `config.train.num_steps`, from the newest checkpoint if there is one.

    Args:
      config: the resolved config.
      folder: the work directory.

    Raises:
      UserError: what the user can mend; nothing half-written is left.
      Interrupted: SIGTERM or Ctrl-C; the step it stopped at is saved.
    """
    task = tasks.create(config)
    mesh = sharding.make_mesh(config)
    optimizer = optimizers.make(config)
    schedule = optimizers.learning_rate_schedule(config)
    abstract = sharding.abstract_state(task.init_params, optimizer, mesh)
    workdir.check(folder, config)
    begun = None
    if not has_checkpoint(folder):
        begun = initial.read(config, task, abstract.params)
    task.prepare()
    workdir.claim(folder, config, task.tokenizer)

    def initial_state() -> step.TrainState:
        def create(key: jax.Array) -> step.TrainState:
            return step.init_state(nn.meta.unbox(task.init_params(key)), optimizer)

        shardings = sharding.shardings_of(abstract)
        key = jax.random.key(config.seed)
        state = jax.jit(create, out_shardings=shardings)(key)
        if begun is None:
            return state
        return state._replace(params=initial.fill(begun[0], state.params))

    def compile_step(state: step.TrainState, batch: step.Batch, parts: int) -> Callable:
        function = functools.partial(
            step.train_step,
            loss=task.loss,
            optimizer=optimizer,
            schedule=schedule,
            seed=config.seed,
            micro_batches=parts,
        )
        out_shardings = (sharding.shardings_of(state), sharding.replicated(mesh))
        jitted = jax.jit(function, donate_argnums=0, out_shardings=out_shardings)
        with sharding.activate(mesh):
            return jitted.lower(state, batch).compile()

    num_steps, batch_size = config.train.num_steps, config.train.batch_size
    rows = sharding.local_rows(mesh, batch_size)
    clock = Stopwatch()
    with (
        signals.deferred() as stop,
        Checkpoints(folder, config.checkpoint.keep) as checkpoints,
    ):
        restored = checkpoints.restore(abstract)
        state, now = restored or (initial_state(), 0)
        writer = MetricWriter(
            folder, resume_step=now if restored else None, active=_is_first()
        )
        progress = Progress(num_steps, now, active=_is_first())
        evaluator = evaluate.Evaluator(config, task, mesh, stop, clock)
        phase, run = loader.phase_at(config, now), None
        batches = loader.batches(config, phase, now, rows)
        previous, logged = None, _Mark(clock, now)
        size = count_parameters(state.params)
        shape = " ".join(f"{axis}={n}" for axis, n in mesh.shape.items())
        kind = jax.devices()[0].device_kind
        progress.note(
            f"{folder}: {size:,} parameters on {mesh.size} x {kind} ({shape})"
        )
        if restored:
            progress.note(f"resuming at step {now} of {num_steps}")
        elif begun is not None:
            progress.note(f"from {config.init_from}:\n{table(*begun[1].table())}")
            workdir.write_atomically(folder / "init_from.json", begun[1].to_json())
        try:
            while True:
                if _evaluation_due(config, now) and not writer.has(now, "dev"):
                    progress.note(f"evaluating at step {now}")
                    numbers = evaluator(state.params, now)
                    writer.write(now, "dev", numbers)
                    progress.note(evaluate.one_line(now, numbers))
                if now == num_steps:
                    break
                if now == phase.end_step:
                    phase, run = loader.phase_at(config, now), None
                    batches = loader.batches(config, phase, now, rows)

                with clock("data wait"):
                    batch = sharding.place_batch(next(batches), mesh, batch_size)
                if run is None:
                    with clock("compile"):
                        run = signals.run_interruptibly(
                            functools.partial(
                                compile_step, state, batch, phase.micro_batches
                            ),
                            stop,
                        )
                with clock("step"):
                    state, metrics = run(state, batch)
                    now += 1
                    # One step runs while the next is put together, no more.
                    jax.block_until_ready(previous)
                    previous = metrics
                progress.update(now)

                if now % config.train.log_every == 0 or now == num_steps:
                    with clock("step"):
                        numbers = {k: float(v) for k, v in metrics.items()}
                    numbers |= logged.rates(now, phase, batch_size, task)
                    writer.write(now, "train", numbers)
                    progress.log(now, numbers)
                if now % config.checkpoint.save_every == 0 or now == num_steps:
                    with clock("checkpoint"):
                        checkpoints.save(state, now)
                stop.check()
        except Interrupted:
            progress.note(f"stopping: saving step {now} of {num_steps}")
            checkpoints.save(state, now)
            checkpoints.wait()
            progress.note(f"saved step {now}; the same command goes on from there")
            raise
        finally:
            progress.close()
            writer.close()
        with clock("checkpoint"):
            checkpoints.wait()
        if _is_first():
            evaluate.report(config, task, folder, state.params, mesh, clock)


def _is_first() -> bool:
    """Whether this process writes the logs."""
    return jax.process_index() == 0


def _evaluation_due(config: ConfigDict, now: int) -> bool:
    every = config.train.eval_every
    return now == config.train.num_steps or bool(every and now and now % every == 0)


class _Mark:
    """Where the last line of the log was written, to measure speed from."""

    def __init__(self, clock: Stopwatch, now: int):
        self._clock, self._step, self._seconds = clock, now, 0.0

    def rates(
        self, now: int, phase: loader.Phase, batch_size: int, task: Any
    ) -> dict[str, float]:
        """Speed since the last line: steps and waiting for data, nothing else.

        `tokens_per_second` counts positions, padding included; `mfu` is the share of
        the devices' bfloat16 peak, where it is known.
        """
        totals = self._clock.totals()
        seconds = totals["step"] + totals["data wait"]
        sequences = (now - self._step) * batch_size / (seconds - self._seconds)
        self._step, self._seconds = now, seconds
        rates = {
            "sequences_per_second": sequences,
            "tokens_per_second": sequences * phase.max_seq_length,
        }
        peak = sharding.peak_flops()
        if peak is not None:
            rates["mfu"] = sequences * task.flops_per_sequence(phase) / peak
        return rates
