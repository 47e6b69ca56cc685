"""A picture of one head, and wrong requests in one line."""

import io
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
    """Row 0 in two parts; a head in which every token looks at the next one."""
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


def test_the_map_is_that_head(source, tmp_path):
    reader = pytest.importorskip(
        "matplotlib.image", reason="needs the report extra (matplotlib)"
    )
    draw(source, tmp_path / "one.png", part=1)
    picture = reader.imread(io.BytesIO((tmp_path / "one.png").read_bytes()))[..., :3]
    draw(source, tmp_path / "none.png", layer=0)
    empty = reader.imread(io.BytesIO((tmp_path / "none.png").read_bytes()))[..., :3]
    assert np.ptp(picture, axis=-1).max() == 0  # grey
    # Black squares of the map's size, which the head without attention lacks.
    side = int(0.15 * attention_plot.DPI)

    def squares(pixels):
        dark = (pixels[..., 0] < 0.1).astype(int)
        sums = np.pad(dark.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
        inside = sums[side:, side:] - sums[:-side, side:]
        inside = inside - sums[side:, :-side] + sums[:-side, :-side]
        return np.argwhere(inside > 0.8 * side**2)

    assert len(squares(empty)) == 0
    found = squares(picture)
    # The last token looks at the first: one square at the left, below all others.
    left = found[found[:, 1] < np.median(found[:, 1]) - side]
    assert found[:, 0].max() in left[:, 0]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"row": 3}, "has no attentions_3, --row=3 --part=0; it has attentions_0,"),
        ({"layer": 2}, "--layer=2: "),
    ],
)
def test_wrong_requests(source, tmp_path, capsys, options, says):
    draw(source, tmp_path / "one.png", status=2, **options)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and says in line
    assert not (tmp_path / "one.png").exists()
