"""A work directory remembers which config file defined what a run is made of."""

from pathlib import Path

import pytest
from ml_collections import ConfigDict
from runs import here, run

from bert_jax import registry, tasks
from bert_jax.config import command_line, configuration
from bert_jax.errors import UserError
from bert_jax.models import attention
from bert_jax.runtime import storage
from bert_jax.training import optimizer, setup
from bert_jax.workdir import folder

OWN = {
    "task.name": "from bert_jax.tasks import TASKS as names\n"
    "from bert_jax.tasks.pretraining import Pretraining as own\n",
    "model.attention": "from bert_jax.models.attention import ATTENTIONS as names\n"
    "from bert_jax.models.attention import einsum_attention as own\n",
    "model.architecture": "from bert_jax.family import FAMILIES as names\n"
    "from bert_jax.family import Family\nown = Family()\n",
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


def forget(*registries):
    """As in a new process, which has not read focal.py."""
    registry.ADDED.clear()
    for names in registries:
        names.pop("focal", None)


def claimed(spec):
    """The config.json of a run that has just begun."""
    place = storage.path("run")
    task = setup.build_task(configuration.load(spec, []), place, from_data=True)
    folder.claim(place, task.config, task.tokenizer)
    return folder.read_config(place)


@pytest.mark.slow
def test_every_mode_asks_for_the_file_that_defines_the_task(write):
    spec, short = write("task.name"), "--config.train.num_steps=1"
    run(spec, "run", short)
    forget(tasks.TASKS)
    there = sorted(Path().rglob("*"))
    said = "run/config.json: this run's task 'focal' is defined in focal.py: add "
    for mode in (*command_line.ASKS, "train", "describe"):
        flags = [f"--mode={mode}", "--workdir=run", "--output=out"]
        _, error = here(*flags, status=2)
        assert error == f"error: {said}--config=focal.py\n"
    assert sorted(Path().rglob("*")) == there
    Path("rows.jsonl").write_text('{"text": "a [MASK]"}\n')
    out, _ = run(spec, "run", "--mode=predict", "--input=rows.jsonl")
    assert "probability" in out
    run(spec, "run", short)  # the same command resumes
    assert folder.read_config(storage.path("run"))["defined_in"] == {
        "task": {"name": spec}
    }


@pytest.mark.parametrize("field", OWN)
def test_what_a_config_file_defines_is_recorded(write, field):
    recorded = claimed(write(field))
    group, name = field.split(".")
    assert recorded["defined_in"] == {group: {name: "focal.py"}}
    assert ConfigDict(recorded)  # as other programs read it
    assert configuration.complete(recorded, "run")
    forget(tasks.TASKS, attention.ATTENTIONS, optimizer.OPTIMIZERS, optimizer.SCHEDULES)
    said = r"^run: this run's \w+ 'focal' is defined in focal\.py: add "
    with pytest.raises(UserError, match=said):
        configuration.complete(recorded, "run")
    assert configuration.complete(recorded, "run", code=False)  # for its weights
    with pytest.raises(UserError, match="another config: "):
        folder.check(storage.path("run"), configuration.load("micro.py", []))
