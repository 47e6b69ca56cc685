"""The paper's tables by one command: their plans, and where their data is."""

import pytest

from bert_jax.commands import runner
from experiments.paper import tables, tasks
from tests.paper_runs import data, planned

__all__ = ["data"]  # a fixture
# Pre-trainings, runs of experiments.paper.features, and all others.
COUNTS = {"table5": (4, 0, 25), "table7": (1, 1, 1), "table8": (6, 6, 12)}


@pytest.mark.parametrize("table", tables.TABLES)
def test_table_is_planned_in_an_order_that_runs(table, data):
    plan = planned(data, "--seeds=3", table=table)
    folders = [run.folder for run in plan]
    assert len({*folders}) == len(folders) > 1
    for index, run in enumerate(plan):
        assert {*run.needs} <= {*folders[:index]}
        if not run.program:
            runner.check(run.arguments)
    kinds = [run.kind for run in plan]
    first, features = kinds.count("pre-training"), kinds.count("features")
    found = (first, features, len(kinds) - first - features)
    assert found == COUNTS.get(table, found)


def test_data_folders_are_found(data, tmp_path):
    found = tasks.find("squad", [str(tmp_path), str(data)])
    assert found.fields == (
        f"task.train_file={data}/squad/train-v1.1.json",
        f"task.dev_file={data}/squad/dev-v1.1.json",
    )
    assert tasks.find("rte", ["tfds:glue"]).fields == ("task.data_dir=tfds:glue/rte",)
