"""A run of a config file that defines a task, an optimizer or another part."""

from pathlib import Path

import pytest

from bert_jax import registry, tasks
from bert_jax.config import command_line, configuration
from bert_jax.family import FAMILIES
from bert_jax.runtime import storage
from bert_jax.tasks.objectives import OBJECTIVES
from bert_jax.training import optimizer, setup
from bert_jax.workdir import folder
from tests.micro import error_line
from tests.runs import here, run

OWN = {
    "task.name": "from bert_jax.tasks import TASKS as names\n"
    "from bert_jax.tasks.pretraining import Pretraining as own\n",
    "model.attention": "from bert_jax.registry import ATTENTIONS as names\n"
    "from bert_jax.models.attention import einsum_attention as own\n",
    "model.architecture": "from bert_jax.family import FAMILIES as names\n"
    "from bert_jax.family import Family\nown = Family()\n",
    "task.objective": """from bert_jax.tasks.objectives import MASKED_LM as lm
from bert_jax.tasks.objectives import OBJECTIVES as names
own = lm._replace(
    losses=lambda out, x: lm.losses(out, x) | {"mean": out["masked_lm_logits"].mean()},
    weights=lambda x: lm.weights(x) | {"mean": 1.0 + 0 * x["input_ids"][0, 0]},
)
""",
    "optimizer.name": "from bert_jax.training.optimizer import OPTIMIZERS as names\n"
    "own = names['adamw']\n",
    "optimizer.schedule": "from bert_jax.training.optimizer import SCHEDULES as names\n"
    "own = names['polynomial']\n",
}


@pytest.fixture
def write(micro, tmp_path, monkeypatch):
    """Writes focal.py, which gives a field a custom value."""
    monkeypatch.chdir(tmp_path)
    Path("micro.py").write_text(Path(micro).read_text())

    def write(field, name="focal"):
        Path("focal.py").write_text(
            f'{OWN[field]}\nextends = "micro"\nnames["{name}"] = own\n\n\n'
            f'def get_config(config):\n    config.{field} = "{name}"\n'
        )
        return "focal.py"

    return write


@pytest.mark.slow
def test_config_file_that_defines_the_task_is_needed_by_every_mode(write):
    spec, short = write("task.name"), "--config.train.num_steps=1"
    run(spec, "run", short)
    tasks.TASKS.pop("focal")  # as in a new process, which has not read focal.py
    there = sorted(Path().rglob("*"))
    for mode in {*command_line.MODES} - {"prepare", "export"}:
        flags = [f"--mode={mode}", "--workdir=run", "--output=out"]
        _, error = here(*flags, status=2)
        assert error.startswith("error: config.task.name='focal': choose one of ")
        assert "needs the --config file that adds it" in error
    assert sorted(Path().rglob("*")) == there
    Path("rows.jsonl").write_text('{"text": "a [MASK]"}\n')
    predicts = ("--mode=predict", "--input=rows.jsonl")
    out, error = run(spec, "run", *predicts)
    assert "probability" in out and "not the code" not in error
    assert Path("run/code/focal.py").read_text() == Path("focal.py").read_text()
    _, error = run(spec, "run", short)  # the same command resumes
    assert "not the code" not in error
    Path("focal.py").write_text(Path("focal.py").read_text() + "# a change\n")
    for asked in (predicts, (short,)):
        _, error = run(spec, "run", *asked)
        assert "warning: not the code that this run began with: focal.py (" in error


@pytest.mark.parametrize("field", OWN)
def test_config_file_definitions_must_be_there_but_for_the_weights(write, field):
    place = storage.storage_path("run")
    config = configuration.load_config(write(field), [])
    task = setup.build_task(config, place, from_data=True)
    folder.claim_folder(place, task.config, task.tokenizer)
    recorded = folder.read_config(place)
    recorded["defined_in"] = {"task": {"name": "focal.py"}}  # by an earlier version
    assert configuration.complete_config(recorded, "run")
    kinds = (registry.ATTENTIONS, optimizer.OPTIMIZERS, optimizer.SCHEDULES)
    for names in (*kinds, OBJECTIVES, FAMILIES):
        names.pop("focal", None)
    if field != "task.name":  # `tasks.create_task` refuses it
        line = error_line(configuration.complete_config, recorded, "run")
        assert line.startswith(f"run: config.{field}='focal': choose")
    assert configuration.complete_config(recorded, "run", code=False)
    other = configuration.load_config("micro.py", [])
    assert "another config: " in error_line(folder.check_run, place, other)


@pytest.mark.slow
def test_run_warns_of_a_loss_that_each_micro_batch_adds(write):
    spec = write("task.objective")
    for parts, expected in ((1, 0), (2, 1)):
        flags = ["--config.train.num_steps=1", f"--config.train.micro_batches={parts}"]
        _, error = run(spec, f"run_{parts}", *flags)
        assert error.count("warning: the weight of mean in a batch is not") == expected
