"""The phases of a run: parts of its schedule, each with a batch shape, and perhaps with
values of its own (`train.phases`)."""

import ast
import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bert_jax.config import fields
from bert_jax.config.field import require_value
from bert_jax.errors import UserError

# Fields that a phase may set, by the beginnings of their names.
_SHAPE = (
    "train.batch_size",
    "corpus.max_seq_length",
    "masking.max_predictions_per_seq",
    "train.micro_batches",
)
_RATES = (
    "optimizer.schedule",
    "optimizer.learning_rate",
    "optimizer.warmup_",
    "optimizer.decay_",
)
_MAY_SET = (*_SHAPE, "corpus.weights", "masking.", *_RATES)


class Phase(NamedTuple):
    """A part of the schedule in which all batches have one shape.

    Attributes:
      batch_size: Rows of a whole batch.
      micro_batches: Number of parts that a batch is split into.
      shapes: Shapes of a whole batch, by column, in a task's phases (`Task.phases`),
        else ().
      changes: Names and values of the config's fields that differ in the phase.
    """

    first_step: int
    end_step: int
    batch_size: int
    max_seq_length: int
    max_predictions_per_seq: int
    micro_batches: int
    shapes: Any = ()
    changes: tuple[tuple[str, Any], ...] = ()

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.end_step - self.first_step

    def value(self, config: ConfigDict, name: str) -> Any:
        """Returns a field's value in this phase, by `GROUP.NAME`."""
        return _value(config, dict(self.changes), name)


def phases_of(config: ConfigDict) -> list[Phase]:
    """Returns the schedule's phases: those of `train.phases`, or the one or two of
    `phase2` (appendix A.2).

    Raises:
      UserError: The phases do not have `train.num_steps` steps together, or one has
        none.
    """
    changes = _changes(config)
    found: list[Phase] = []
    first = 0
    for its_own, end in zip(
        changes, _ends(config.train.num_steps, changes), strict=True
    ):
        values = {n: x for n, x in its_own.items() if n not in ("steps", "fraction")}
        rows, length, predictions, parts = (
            _value(config, values, name) for name in _SHAPE
        )
        if first == end and config.train.phases:
            raise UserError(
                f"config.train.phases: phase {len(found) + 1} has none of the "
                f"config.train.num_steps={config.train.num_steps} steps"
            )
        if first < end or not found:
            changed = tuple(values.items())
            shape = (first, end, rows, length, predictions, parts)
            found.append(Phase(*shape, changes=changed))
        first = end
    return found


def find_phase(schedule: Sequence[Phase], step: int) -> Phase:
    """Returns the phase that `step` belongs to (the last phase after the last step)."""
    *earlier, last = schedule
    return next((p for p in earlier if step < p.end_step), last)


def rate_schedules(config: ConfigDict) -> Iterator[tuple[int, ConfigDict]]:
    """Yields the first step of each schedule of the learning rate, with its config.

    A phase with a rate of its own begins one, as LAMB's authors do for another batch
    size. It lasts until the next begins, and `train.num_steps` is its steps.

    Raises:
      UserError: `phase2` has a rate or a warm-up without enough steps.
    """
    second, phases = config.phase2, phases_of(config)
    last = phases[-1].steps if len(phases) > 1 and second.learning_rate else 0
    if (second.learning_rate and not last) or second.warmup_steps > last:
        raise UserError(
            f"config.phase2.learning_rate={second.learning_rate} and "
            f"warmup_steps={second.warmup_steps}: phase 2's schedule has {last} steps "
            f"(config.phase2.fraction={second.fraction})"
        )
    rates = [
        {name: value for name, value in phase.changes if name.startswith(_RATES)}
        for phase in phases
    ]
    begun = [0, *(i for i in range(1, len(phases)) if rates[i])]
    if begun == [0] and not rates[0]:
        yield 0, config
        return
    one_phase = {"train.phases": (), "phase2.fraction": 0.0}
    one_phase |= {"phase2.learning_rate": 0.0, "phase2.warmup_steps": 0}
    for i, end in zip(begun, [*begun[1:], len(phases)], strict=True):
        first = phases[i].first_step
        steps = {"train.num_steps": phases[end - 1].end_step - first}
        yield first, fields.with_values(config, one_phase | steps | rates[i])


def check_phases(config: ConfigDict) -> Iterator[tuple[str, ConfigDict]]:
    """Yields each text of `train.phases` as an error names it, with the phase's config,
    whose values remain to be checked together.

    Raises:
      UserError: A text is no phase, or sets a field that no phase has.
    """
    if config.train.phases and config.phase2.fraction:
        raise UserError(
            f"config.train.phases and config.phase2.fraction={config.phase2.fraction}: "
            "both are phases; set --config.phase2.fraction=0"
        )
    known = fields.fields_of(config)
    for number, text in enumerate(config.train.phases):
        named = f"config.train.phases[{number}]={text!r}"
        parsed = _parse(text)
        values = dict(parsed)
        if len(parsed) > len(values):
            raise UserError(f"{named}: has a field twice; leave one out")
        if {"steps", "fraction"} <= {*values}:
            raise UserError(f"{named}: has steps and fraction; leave one out")
        steps, share = values.pop("steps", 1), values.pop("fraction", 1.0)
        if type(steps) is not int or steps < 1:
            raise UserError(f"{named}: steps must be a whole number, at least 1")
        if type(share) not in (int, float) or not 0 < share <= 1:
            raise UserError(f"{named}: fraction must be above 0 and at most 1")
        for name, value in values.items():
            group, _, last = name.partition(".")
            if not name.startswith(_MAY_SET) or last not in config.get(group, {}):
                raise UserError(
                    f"{named}: {name} does not belong to a phase, which has steps "
                    "or fraction, and perhaps train.batch_size, train.micro_batches, "
                    "corpus.max_seq_length, corpus.weights, masking.*, and the "
                    "learning rate's fields of optimizer.*"
                )
            try:
                require_value(known, name, value)
            except UserError as error:
                raise UserError(f"{named}: {error}") from error
        yield named, fields.with_values(config, _one_warmup(values))
    if config.train.phases and config.train.num_steps:
        phases_of(config)


def _value(config: ConfigDict, changes: Mapping[str, Any], name: str) -> Any:
    group, _, last = name.partition(".")
    return changes.get(name, config[group][last])


def _changes(config: ConfigDict) -> list[dict[str, Any]]:
    """Returns the fields of each phase, with its `steps` or `fraction`."""
    if config.train.phases:
        return [_one_warmup(dict(_parse(text))) for text in config.train.phases]
    second = config.phase2
    if not second.fraction:
        return [{}]
    changed = {
        "fraction": second.fraction,
        "corpus.max_seq_length": second.max_seq_length,
        "masking.max_predictions_per_seq": second.max_predictions_per_seq,
        "train.micro_batches": second.micro_batches,
    }
    if second.batch_size:
        changed["train.batch_size"] = second.batch_size
    if second.learning_rate:
        changed["optimizer.learning_rate"] = second.learning_rate
        changed["optimizer.warmup_steps"] = second.warmup_steps
        changed["optimizer.warmup_fraction"] = 0.0
    return [{}, changed]


def _one_warmup(values: dict[str, Any]) -> dict[str, Any]:
    """Adds that a phase with a warm-up in steps has none in shares, or the reverse."""
    steps, share = "optimizer.warmup_steps", "optimizer.warmup_fraction"
    if steps in values:
        return {share: 0.0, **values}
    return {steps: 0, **values} if share in values else values


@functools.cache  # a run asks for its phases at every step
def _parse(text: str) -> tuple[tuple[str, Any], ...]:
    """Returns the fields of "NAME=VALUE NAME=VALUE", where a value may have spaces."""
    parts = re.split(r"\s+(?=[\w.]+\s*=)", text.strip()) if text.strip() else []
    found: list[tuple[str, Any]] = []
    for part in parts:
        name, _, value = (x.strip() for x in part.partition("="))
        try:
            found.append((name, ast.literal_eval(value)))
        except (SyntaxError, ValueError):
            found.append((name, value))
    return tuple(found)


def _ends(num_steps: int, changes: Sequence[Mapping[str, Any]]) -> list[int]:
    """Returns the step after each phase. One without steps and fraction has the rest.

    Fractions are rounded where phases end, so that no step is lost or counted twice.

    Raises:
      UserError: The phases have more steps or fewer.
    """
    exact = [
        phase.get("steps", num_steps * phase.get("fraction", 0)) for phase in changes
    ]
    rest = [
        i for i, phase in enumerate(changes) if not {"steps", "fraction"} & {*phase}
    ]
    missing = num_steps - sum(exact)
    if len(rest) > 1 or (not rest and abs(missing) > 0.5) or missing < -0.5:
        raise UserError(
            f"config.train.phases: {sum(exact):g} steps and {len(rest)} phases for the "
            f"rest of config.train.num_steps={num_steps}; one phase may have the rest"
        )
    last = rest[0] if rest else len(changes) - 1
    before = [round(x) for x in itertools.accumulate(exact[:last])]
    after = [round(x) for x in itertools.accumulate(reversed(exact[last + 1 :]))]
    return [*before, *(num_steps - x for x in reversed([0, *after]))]
