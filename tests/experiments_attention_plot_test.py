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


@pytest.mark.parametrize("kind", ["pdf", "svg"])
def test_other_formats(source, tmp_path, kind):
    draw(source, tmp_path / f"one.{kind}", row=12)
    start = (tmp_path / f"one.{kind}").read_bytes()[:5]
    assert start == {"pdf": b"%PDF-", "svg": b"<?xml"}[kind]


def test_all_heads_of_a_layer(source, tmp_path):
    draw(source, tmp_path / "one.png")
    given = [f"--input={source}", "--layer=1", f"--output={tmp_path / 'all.png'}"]
    assert attention_plot.main(given) == 0
    sizes = [
        np.frombuffer((tmp_path / f"{name}.png").read_bytes()[16:24], ">u4")
        for name in ("one", "all")
    ]  # PNG's header: width and height
    assert sizes[1][0] > 2.5 * sizes[0][0] and sizes[1][1] == sizes[0][1]


def test_a_long_row_is_a_picture_of_limited_size(monkeypatch):
    pytest.importorskip("matplotlib", reason="needs the report extra (matplotlib)")
    monkeypatch.setattr(attention_plot, "PIXELS", attention_plot.PIXELS // 8)
    count = 2 * int(attention_plot.PIXELS / attention_plot.DPI / attention_plot.INCHES)
    heads = {"layer 0": np.eye(count, dtype=np.float32)}
    layer = attention_plot.Layer(["a"] * count, heads)
    width, height = np.frombuffer(attention_plot.picture(layer, "png")[16:24], ">u4")
    assert max(width, height) <= attention_plot.PIXELS


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"row": 3}, "has no attentions_3, --row=3 --part=0; it has attentions_0,"),
        ({"row": -1}, "has no attentions_-1"),
        ({"part": 2}, "has no attentions_0_2"),
        ({"layer": 2}, "--layer=2: "),
        ({"head": -1}, "--head=-1: "),
    ],
)
def test_wrong_requests(source, tmp_path, capsys, options, says):
    draw(source, tmp_path / "one.png", status=2, **options)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and says in line
    assert not (tmp_path / "one.png").exists()


def test_wrong_files(source, tmp_path, capsys):
    draw(source, tmp_path / "one.jpg", status=2)
    draw(source, tmp_path / "none" / "one.png", status=2)
    draw(tmp_path / "none.safetensors", tmp_path / "one.png", status=2)
    save_file({"other": np.zeros(2)}, tmp_path / "other.safetensors")
    draw(tmp_path / "other.safetensors", tmp_path / "one.png", status=2)
    ending, folder, missing, other = capsys.readouterr().err.splitlines()
    assert "must end in one of .png, .pdf, .svg" in ending
    assert "must be a file in an existing folder" in folder
    assert "not a safetensors file" in missing and "it has none" in other
