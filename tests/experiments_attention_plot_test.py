"""A picture of one head, and wrong requests in one line."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from experiments.insight import attention_plot

TOKENS = ["[CLS]", "the", "$x^2$", "<b>", "fox", "[SEP]"]


def about_row(*names):
    about = json.dumps({"tokens": TOKENS, "segments": [0] * len(TOKENS)})
    return dict.fromkeys(names or ["attentions_0"], about)


@pytest.fixture
def source(tmp_path):
    """Row 0 in two parts, and a head in which every token looks at the next one."""
    pytest.importorskip("matplotlib", reason="needs the report extra (matplotlib)")
    count = len(TOKENS)
    tensors = {}
    for name in ("attentions_0", "attentions_0_1", "attentions_12"):
        tensors[name] = np.zeros((2, 3, count, count), np.float16)
        tensors[name][1, 2] = np.roll(np.eye(count), 1, axis=1)
    save_file(tensors, tmp_path / "who.safetensors", about_row(*tensors))
    return tmp_path / "who.safetensors"


def draw(source, target, status=0, **options):
    named = {"layer": 1, "head": 2, **options}
    given = [f"--input={source}", f"--output={target}"]
    given += [f"--{name}={value}" for name, value in named.items()]
    assert attention_plot.main(given) == status


def test_map_is_that_head(source, tmp_path):
    """A picture with one black square a token, which another head has not."""
    draw(source, tmp_path / "one.png", part=1)
    draw(source, tmp_path / "none.png", layer=0)
    reader = pytest.importorskip("matplotlib.image")
    one, none = (reader.imread(tmp_path / name) for name in ("one.png", "none.png"))
    assert one.shape == none.shape
    darker = (one[..., 0] < 0.1).mean() - (none[..., 0] < 0.1).mean()
    assert 1 / 6 / 4 < darker < 1 / 6  # share of the picture, mostly the map
