"""Objectives, masks and layers that read the step and the config; layers' losses."""

import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bert_jax import modes
from bert_jax.config import configuration
from bert_jax.data import loader
from bert_jax.registry import TRANSFORMS
from bert_jax.tasks.objectives import masked_targets
from bert_jax.training import setup, sharding
from bert_jax.training.step import Step
from bert_jax.training.transforms import Transform
from bert_jax.workdir import metrics
from tests.micro import error_line
from tests.runs import run, saved

# A coefficient that rises with the step, more tokens to predict at every step, and a
# layer whose loss is a known number: its field times the step it reads.
CODE = """
import flax.linen as nn

from bert_jax.config.field import Field
from bert_jax.data.masking import MASKINGS, bert_masking
from bert_jax.models.encoder import EncoderLayer
from bert_jax.registry import LAYERS
from bert_jax.tasks.objectives import MASKED_LM, OBJECTIVES, Objective

extends = {micro!r}


def rising(config):
    coefficient = config.task.coefficient

    def losses(outputs, batch):
        found = MASKED_LM.losses(outputs, batch)
        by_step = coefficient * batch["step"][0] * found["masked_lm_loss"]
        return found | {{"rising_loss": by_step}}

    def weights(batch):
        found = MASKED_LM.weights(batch)
        return found | {{"rising_loss": found["masked_lm_loss"]}}

    return Objective(losses, weights)


def more_each_step(texts, uniforms, masking):
    budget = (texts.budget * 0 + 1 + texts.step // masking.every).clip(max=texts.budget)
    return bert_masking(texts._replace(budget=budget), uniforms, masking)


class Balanced(EncoderLayer):
    @staticmethod
    def losses(config):
        return {{"balance": 0.5}}

    @nn.compact
    def __call__(self, hidden, index, mask, key, positions=None):
        step = self.param("train_step", nn.initializers.zeros, ())
        self.sow("losses", "balance", self.config.field("scale") * (step + 1))
        return super().__call__(hidden, index, mask, key, positions)


OBJECTIVES["rising"] = rising
MASKINGS["more"] = more_each_step
LAYERS["balanced"] = Balanced


def get_config(config):
    config.task.objective, config.task.coefficient = "rising", Field(0.25)
    config.masking.name, config.masking.every = "more", Field(2)
    config.model.layer, config.model.scale = "balanced", Field(0.125)
    return config
"""


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (
                ("--config.train.micro_batches=2", "--config.model.scan_layers=True"),
                ("--config.train.seeds=2", "--config.model.remat=full"),
            )
        ),
    ],
    ids=str,
)
def test_numbers_follow_the_step(micro, tmp_path, arguments):
    path = tmp_path / "mine.py"
    path.write_text(CODE.format(micro=micro))
    short = ("--config.train.num_steps=6", "--config.model.num_hidden_layers=2")
    run(path, tmp_path / "run", *short, *arguments, "--config.task.coefficient=0.5")
    seeds = "--config.train.seeds=2" in arguments
    folder = tmp_path / "run" / "seed_1" if seeds else tmp_path / "run"
    layers = 2
    for line in metrics.read_metrics(folder, "train"):
        step = line["step"] - 1  # steps count from 0
        rising = 0.5 * step * line["masked_lm_loss"]
        assert line["rising_loss"] == pytest.approx(rising, rel=1e-5)
        balance = layers * 0.5 * 0.125 * (step + 1)
        assert line["balance_loss"] == pytest.approx(balance, rel=1e-6)
    dev = metrics.read_metrics(folder, "dev")[-1]
    assert dev["rising_loss"] == pytest.approx(0.5 * 6 * dev["masked_lm_loss"])
    params = flatten_dict(saved(folder, 6, "params")["params"], sep="/")
    steps = [x for name, x in params.items() if name.endswith("train_step")]
    assert np.concatenate([np.ravel(x) for x in steps]).tolist() == [5.0] * layers


@pytest.mark.slow
def test_running_mean_has_the_step_of_the_student(micro, tmp_path, monkeypatch):
    def with_steps(loss, task):
        def changed(params, batch, key):
            found = flatten_dict(params["average"], sep="/").items()
            (step,) = (x for name, x in found if name.endswith("train_step"))
            count = masked_targets(batch).weights.sum()
            return loss(params, batch, key) | {"seen": count * step}

        return changed

    seen = Transform(with_steps, {"seen": "masked_lm_loss"}, ("seen",))
    monkeypatch.setitem(TRANSFORMS, "seen", seen)
    path = tmp_path / "mine.py"
    path.write_text(CODE.format(micro=micro))
    given = ("--config.optimizer.ema=0.5", "--config.train.transforms=('seen',)")
    run(path, tmp_path / "run", "--config.train.num_steps=4", *given)
    lines = metrics.read_metrics(tmp_path / "run", "train")
    assert [line["seen"] for line in lines] == pytest.approx([0, 1, 2, 3])


@pytest.mark.slow
def test_losses_of_layers_beside_a_teacher_and_where_rows_compare(micro, tmp_path):
    """A teacher's share is of the task's losses, not of the layers'."""
    path = tmp_path / "sown_losses.py"
    path.write_text(CODE.format(micro=micro))
    short = ("--config.train.num_steps=1", "--config.task.objective=mlm")
    run(path, tmp_path / "teacher", *short)
    given = (f"--config.task.teacher={tmp_path / 'teacher'}",)
    given += ("--config.task.teacher_share=1.0",)
    run(path, tmp_path / "run", *short, *given)
    (line,) = metrics.read_metrics(tmp_path / "run", "train")
    assert line["balance_loss"] == pytest.approx(0.5 * 0.125)
    assert line["masked_lm_loss"] == 0.0
    (tmp_path / "pairs.jsonl").write_text('{"text": "a", "text_b": "b"}\n' * 4)
    (tmp_path / "vectors.py").write_text(
        "import sown_losses as own\n\nextends = 'finetune/embeddings:recipe=tiny'\n\n\n"
        "def get_config(config):\n"
        "    config.model.layer, config.model.scale = 'balanced', own.Field(0.125)\n"
        "    return config\n"
    )
    files = f"--config.task.train_file={tmp_path / 'pairs.jsonl'}"
    found = (f"--config.init_from={tmp_path / 'run'}", files)
    found += ("--config.task.max_seq_length=16",)
    error = run(tmp_path / "vectors.py", tmp_path / "v", *found, status=2)[1]
    assert "adds the loss balance, and embeddings compares rows" in error


def test_adapters_read_the_step_of_their_own_run(micro, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(CODE.format(micro=micro))
    run(path, tmp_path / "base", "--config.train.num_steps=2")
    given = (f"--config.init_from={tmp_path / 'base'}", "--config.model.lora_rank=2")
    run(path, tmp_path / "run", "--config.train.num_steps=4", *given)
    lines = metrics.read_metrics(tmp_path / "run", "train")
    balance = [0.5 * 0.125 * (step + 1) for step in range(4)]
    assert [x["balance_loss"] for x in lines] == pytest.approx(balance)
    task = modes.make_task(None, str(tmp_path / "run"), {}, trains=False)
    restored = setup.restored_params(task, tmp_path / "run", task.unused_parameters())
    params = flatten_dict(restored.params, sep="/")
    (step,) = (x for name, x in params.items() if name.endswith("train_step"))
    assert step == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('"losses", "balance"', '"losses", "balanse"'), "names balance; sow it with"),
        (('{{"balance": 0.5}}', "{{}}"), "sows the loss balance; add its weight to"),
        (
            ("return config", "config.optimizer.trainable = ('train_step',)"),
            "'train_step' names no parameter that can learn",
        ),
    ],
    ids=["not sown", "not named", "trained"],
)
def test_layers_of_a_user_that_are_wrong(micro, tmp_path, change, message):
    assert CODE.count(change[0]) == 1
    (tmp_path / "mine.py").write_text(CODE.replace(*change).format(micro=micro))
    config = configuration.load_config(str(tmp_path / "mine.py"), [])
    task = setup.build_task(config, tmp_path, from_data=True)
    mesh = sharding.make_mesh(task.config)
    batch = loader.batch_at(task.config, 0)

    def trace():
        step = Step(task, mesh)
        step.trace(step.abstract, batch, 1)

    assert message in error_line(trace)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2])
def test_weights_of_an_objective_see_the_step(micro, tmp_path, parts):
    path = tmp_path / "mine.py"
    code = CODE.replace('found["masked_lm_loss"]}}', '1.0 * batch["step"].sum() + 1}}')
    assert code.count('batch["step"]') == 2
    path.write_text(code.format(micro=micro))
    split = f"--config.train.micro_batches={parts}"
    run(path, tmp_path / "run", "--config.train.num_steps=3", split)
    for line in metrics.read_metrics(tmp_path / "run", "train"):
        assert np.isfinite(line["rising_loss"])


def test_masks_follow_the_step(micro, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(CODE.format(micro=micro))
    config = configuration.load_config(str(path), [])
    config.corpus.data_dir = str(tmp_path / "data")
    for step in (0, 1, 2, 5, 7):
        chosen = loader.batch_at(config, step)["masked_lm_weights"].sum(axis=1)
        assert chosen.max() == min(1 + step // 2, 6)
    assert loader.batch_at(config, 3, "dev")["masked_lm_weights"].sum(axis=1).max() == 1
