"""What is due when, against counting."""

from hypothesis import given
from hypothesis import strategies as st

from bert_jax.training.due import Due

counts = st.integers(1, 40)


@given(counts, counts, counts, st.integers(0, 40), counts, st.integers(0, 200))
def test_what_is_due(num_steps, log, save, evaluate, rows, epoch):
    due = Due(num_steps, log, save, evaluate, rows, epoch)
    seen = 0
    for step in range(1, num_steps + 1):
        epochs_end = any((seen + row + 1) % epoch == 0 for row in range(rows) if epoch)
        seen += rows
        last = step == num_steps
        assert due.log(step) == (last or step in range(0, num_steps, log))
        assert due.save(step) == (last or step in range(0, num_steps, save))
        at = bool(evaluate) and step in range(0, num_steps, evaluate)
        assert due.evaluation(step) == (last or at or epochs_end)
        assert due.any_event(step) == (
            due.log(step) or due.save(step) or due.evaluation(step)
        )


def test_nothing_is_evaluated_before_the_first_step():
    assert not Due(10, 1, 1, 1, 8, 8).evaluation(0)
    assert Due(0, 1, 1, 0, 8, 0).evaluation(0)
