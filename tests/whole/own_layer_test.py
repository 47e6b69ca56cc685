"""A layer of one's own that starts from BERT's weights: its own part learns."""

import json

import jax
import numpy as np
import pytest

from bert_jax.convert import weights
from tests import micro_config
from tests.runs import run, write_pairs

LAYER = '''
import flax.linen as nn

from bert_jax.models.encoder import EncoderLayer
from bert_jax.models.layers import Dense
from bert_jax.registry import LAYERS


class Bottleneck(EncoderLayer):
    """BERT's layer, and a small one after it (Houlsby et al. 2019)."""

    starts_from = ("post_norm",)

    @nn.compact
    def __call__(self, hidden, index, mask, key, positions=None):
        hidden, _ = super().__call__(hidden, index, mask, key, positions)
        width = (self.config.field("width"),)
        inner = Dense(self.config, width, ("embed", "mlp"), name="down")(hidden)
        up = Dense(self.config, (self.config.hidden_size,), ("mlp", "embed"), name="up")
        hidden = hidden + up(nn.relu(inner))
        return hidden, hidden


LAYERS["bottleneck"] = Bottleneck
'''


@pytest.fixture
def config(plain, tmp_path):
    write_pairs(tmp_path, "fox", "cat")
    path = micro_config.finetuning(
        *(tmp_path / "own.py", plain, "finetune/text:recipe=tiny"),
        """from bert_jax.config.field import Field
        config.model.layer = "bottleneck"
        config.model.width = Field(4, "[1, 64]")
        config.train.num_steps = 4""",
    )
    path.write_text(path.read_text() + LAYER)
    return path


@pytest.mark.slow
def test_new_part_alone_learns_beside_the_weights(config, plain, tmp_path):
    chosen = "('/(down|up)/', 'sequence_classification')"
    given = (
        f"--config.optimizer.trainable={chosen}",
        "--config.model.scan_layers=True",
    )
    _, err = run(config, tmp_path / "run", *given)
    (row,) = (line for line in err.splitlines() if "new, untrained" in line)
    assert row.endswith("bert/encoder, sequence_classification")
    report = json.loads((tmp_path / "run" / "init_from.json").read_text())
    assert "bert/encoder/layers/up/kernel" in report["initialised"]
    assert "bert/encoder/layers/attention/query/kernel" in report["taken"]
    before, after = (weights.read_weights(x).params for x in (plain, tmp_path / "run"))
    ours, theirs = (x["bert"]["encoder"]["layer_0"] for x in (after, before))
    for name in ("attention", "output"):
        jax.tree.map(np.testing.assert_array_equal, ours[name], theirs[name])
    assert np.any(ours["up"]["bias"])  # zeros before
    _, err = run(config, tmp_path / "wrong", "--config.model.layer=post_norm",
                 f"--config.init_from={tmp_path / 'run'}", status=2)  # fmt: skip
    assert "config.model.layer='post_norm', but" in err
