"""The steps at which logging, saving and evaluation are due, against counting."""

from hypothesis import given
from hypothesis import strategies as st

from bert_jax.training.run import EventSchedule
from configs import tiny

counts = st.integers(1, 40)


def make(num_steps, log, save, evaluate, rows, epoch):
    config = tiny.get_config("plain")
    config.train.update(num_steps=num_steps, log_every=log, eval_every=evaluate)
    config.train.update(batch_size=rows, eval_every_epoch=bool(epoch))
    config.checkpoint.save_every = save
    return EventSchedule(config, epoch)


@given(counts, counts, counts, st.integers(0, 40), counts, st.integers(0, 200))
def test_due_steps(num_steps, log, save, evaluate, rows, epoch):
    due = make(num_steps, log, save, evaluate, rows, epoch)
    seen = 0
    for step in range(1, num_steps + 1):
        epochs_end = any((seen + row + 1) % epoch == 0 for row in range(rows) if epoch)
        seen += rows
        last = step == num_steps
        assert due.should_log(step) == (last or step in range(0, num_steps, log))
        assert due.should_save(step) == (last or step in range(0, num_steps, save))
        at = bool(evaluate) and step in range(0, num_steps, evaluate)
        assert due.should_evaluate(step) == (last or at or epochs_end)
        assert due.any_event(step) == (
            due.should_log(step) or due.should_save(step) or due.should_evaluate(step)
        )


def test_due_evaluations_begin_with_the_first_step():
    assert not make(10, 1, 1, 1, 8, 8).should_evaluate(0)
    assert make(0, 1, 1, 0, 8, 0).should_evaluate(0)
