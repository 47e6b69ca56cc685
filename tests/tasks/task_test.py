"""`Task.constants`, by a task of one's own: an encoder that is read but not trained."""

import shutil

import numpy as np
import orbax.checkpoint as ocp
import pytest

from bert_jax.config import configuration
from bert_jax.training import setup, sharding
from bert_jax.training.step import Step
from tests import micro_config
from tests.runs import losses, run, write_pairs

TAUGHT = '''
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.convert import weights
from bert_jax.models.architectures import BertWithHeads
from bert_jax.models.heads import init_model
from bert_jax.tasks import TASKS
from bert_jax.tasks.finetuning import Finetuning
from bert_jax.tasks.text import Text

COLUMNS = ("input_ids", "input_mask", "segment_ids")


class Taught(Finetuning):
    """Classifies texts, the logits near the first numbers of a teacher's vectors."""

    def __init__(self, config, tokenizer=None):
        super().__init__(Text, config, tokenizer)

    def constants(self):
        read = weights.read_weights(self.config.task.guide_from)
        self.guide = BertWithHeads(read.config)
        init = functools.partial(init_model, self.guide)
        boxed = jax.eval_shape(init, jax.random.key(0))
        values = {"bert": read.params["bert"]}
        return {"teacher": nn.meta.replace_boxed(boxed, values)}

    def loss(self, params, batch, key):
        losses = super().loss(params, batch, key)
        inputs = [batch[name] for name in COLUMNS]
        taught = self.guide.apply({"params": params["teacher"]}, *inputs)["pooled"]
        logits = self.logits(params, batch)["logits"]
        errors = jnp.mean((logits - taught[:, : logits.shape[-1]]) ** 2, axis=-1)
        return losses | {"distance": jnp.sum(batch["row_weights"] * errors)}

    def loss_weights(self, batch):
        weights = super().loss_weights(batch)
        return weights | {"distance": sum(weights.values())}


TASKS["taught"] = Taught
'''


@pytest.fixture
def taught(plain, tmp_path):
    """The task's config file, next to its data and its teacher."""
    write_pairs(tmp_path, "fox", "cat")
    shutil.copytree(plain, tmp_path / "teacher")
    path = micro_config.finetuning(
        *(tmp_path / "taught.py", plain, "finetune/text:recipe=tiny"),
        f"""config.task.name = "taught"
        config.task.guide_from = "{tmp_path / "teacher"}"
        config.task.dev_file = ""
        config.train.num_steps = 16
        config.model.hidden_dropout_prob = 0.1
        config.train.log_every = 1""",
    )
    path.write_text(path.read_text() + TAUGHT)
    return path


@pytest.mark.slow
def test_seeds_share_constants_and_others_are_noticed(taught, tmp_path):
    """With dropout."""
    short, two = "--config.train.num_steps=2", "--config.train.seeds=2"
    for name, own in (("run", two), ("alone", "--config.seed=1")):
        run(taught, tmp_path / name, short, own)
    alone = losses(tmp_path / "alone")
    np.testing.assert_allclose(losses(tmp_path / "run" / "seed_1"), alone, rtol=1e-5)
    saved = tmp_path / "alone" / "checkpoints" / "2" / "params"
    own = {"bert", "sequence_classification"}  # and no teacher
    assert {*ocp.StandardCheckpointer().restore(saved)} == own
    shutil.rmtree(tmp_path / "teacher")
    shutil.copytree(tmp_path / "alone", tmp_path / "teacher")
    more = ("--config.train.num_steps=4", "--config.train.extend=True")
    _, err = run(taught, tmp_path / "run", two, *more, status=2)
    assert err.splitlines()[-1] == (
        f"error: --workdir={tmp_path / 'run'}: the content of Task.constants (a "
        "teacher) is not what this run began with; restore it, or use another --workdir"
    )


@pytest.mark.slow
def test_constants_are_split_as_parameters_and_no_part_of_the_program(taught):
    given = [f"--config.mesh.{axis}=2" for axis in ("data", "fsdp", "tensor")]
    task = setup.build_task(
        configuration.load_config(str(taught), given), taught.parent, from_data=True
    )
    step = Step(task, sharding.make_mesh(task.config))
    query = step.constants["teacher"]["bert"]["encoder"]["layer_0"]["attention"]
    assert query["query"]["kernel"].sharding.shard_shape((32, 2, 16)) == (16, 1, 16)
    batch = next(task.batches(0, slice(None), 0))
    placed = sharding.place_batch(batch, step.mesh, 16)
    traced = step.trace(step.abstract, placed, 1)
    assert max(np.size(x) for x in (*traced.jaxpr.consts, 0)) < 100
