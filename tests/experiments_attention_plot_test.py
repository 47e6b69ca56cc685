"""A picture of one head, and wrong requests in one line."""

import errno
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


def test_a_long_row_is_a_picture_of_limited_size(monkeypatch):
    pytest.importorskip("matplotlib", reason="needs the report extra (matplotlib)")
    monkeypatch.setattr(attention_plot, "PIXELS", attention_plot.PIXELS // 8)
    count = 2 * int(attention_plot.PIXELS / attention_plot.DPI / attention_plot.INCHES)
    head = attention_plot.Head(["a"] * count, np.eye(count, dtype=np.float32))
    content = attention_plot.picture(head, "layer 0", "png")
    width, height = np.frombuffer(content[16:24], ">u4")  # PNG's header
    assert max(width, height) <= attention_plot.PIXELS


def test_a_full_disk_is_one_line(source, tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(attention_plot, "picture", lambda *_: b"")
    monkeypatch.setattr(attention_plot, "write_atomically", full)
    draw(source, tmp_path / "one.png", status=2)
    assert capsys.readouterr().err == (
        "error: writing: No space left on device; make room there and run the same "
        "command again\n"
    )


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
    (tmp_path / "page.html").write_text("<html>" * 100)
    draw(tmp_path / "page.html", tmp_path / "one.png", status=2)
    save_file({"other": np.zeros(2)}, tmp_path / "other.safetensors")
    draw(tmp_path / "other.safetensors", tmp_path / "one.png", status=2)
    ending, folder, missing, page, other = capsys.readouterr().err.splitlines()
    for kind in (np.int16, np.uint8):
        save_file({"attentions_0": np.zeros((2, 3, 6, 6), kind)}, source, about_row())
        draw(source, tmp_path / "one.png", status=2)
        assert "has numbers of the type" in capsys.readouterr().err
    half = '{"tokens": ["a", "a", "a", "\\ud800"]}'
    for about in ("tokens", "{}", '{"tokens": ["a"]}', "[" * 100_000, half):
        alike = {"attentions_0": np.zeros((2, 3, 4, 4), np.float16)}
        save_file(alike, tmp_path / "alike.safetensors", {"attentions_0": about})
        draw(tmp_path / "alike.safetensors", tmp_path / "one.png", status=2)
    alike = capsys.readouterr().err.splitlines()
    no_json, *others, deep, surrogate = alike
    assert len(others) == 2 and all("not a safetensors file of" in x for x in others)
    assert all("attentions_0: not JSON" in x for x in (no_json, deep))
    assert "half of a surrogate pair" in surrogate
    assert "must end in one of .png, .pdf, .svg" in ending
    assert "must be a file in an existing folder" in folder
    assert "not a safetensors file" in missing and "not a safetensors file" in page
    assert "predict wrote none" in other
