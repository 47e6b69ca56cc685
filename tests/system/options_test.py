"""Cells of the table of options that once failed. `tests.system.options` has all."""

import pytest

from tests.system import options


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "name", "outcome"),
    [
        # A shared row has more tokens than there are positions.
        ("text/mpnet", "task.texts_per_row=4", "works"),
        ("text/modernbert", "task.texts_per_row=4", "works"),
        ("text/gpt", "task.windows=4", "refused"),
        # Positions of padding have the lowest number.
        ("squad/bert", "task.teacher_temperature=0.7", "works"),
        ("text/albert", "init_layers=(0, 0)", "refused"),
        ("text/deberta_v3", "model.position_initializer=sinusoidal", "refused"),
        ("pretraining/modernbert", "corpus.shift_positions=True", "refused"),
        ("embeddings/bert", "task.bilstm=True", "refused"),
    ],
)
def test_cell(column, name, outcome, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task, model = column.split("/")
    cells = [*options.fill(options.Column(task, model), name)]
    assert [cell.outcome for cell in cells] == ["works", outcome], cells
