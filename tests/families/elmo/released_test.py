"""ELMo's released files: written here, read, mixed as NumPy does, and damaged."""

import json
import re

import numpy as np
import pytest

from bert_jax.families.elmo import characters
from bert_jax.families.elmo import loading as elmo
from bert_jax.families.elmo import released as weights
from tests.close import assert_close
from tests.families.elmo import elmo_numpy
from tests.micro import error_line

h5py = pytest.importorskip("h5py", reason="needs the elmo extra")

OPTIONS = {
    "lstm": {
        "cell_clip": 3,
        "use_skip_connections": True,
        "n_layers": 2,
        "proj_clip": 3,
        "projection_dim": 6,
        "dim": 9,
    },
    "char_cnn": {
        "embedding": {"dim": 4},
        "filters": [[1, 3], [2, 4], [3, 5]],
        "n_highway": 2,
        "n_characters": 262,
        "max_characters_per_token": 50,
        "activation": "relu",
    },
}


def random_weights():
    """The names and shapes of the released file, for these options."""
    wide, rng = 12, np.random.default_rng(0)
    shapes = {"char_embed": (261, 4)}
    for i, (width, number) in enumerate(OPTIONS["char_cnn"]["filters"]):
        shapes |= {f"CNN/W_cnn_{i}": (1, width, 4, number), f"CNN/b_cnn_{i}": (number,)}
    for i in range(2):
        for name in ("carry", "transform"):
            shapes[f"CNN_high_{i}/W_{name}"] = (wide, wide)
            shapes[f"CNN_high_{i}/b_{name}"] = (wide,)
    shapes |= {"CNN_proj/W_proj": (wide, 6), "CNN_proj/b_proj": (6,)}
    for direction in range(2):
        for i in range(2):
            root = f"RNN_{direction}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            shapes |= {f"{root}/W_0": (12, 36), f"{root}/B": (36,)}
            shapes[f"{root}/W_P_0"] = (9, 6)
    return {k: rng.normal(size=s).astype(np.float32) * 0.5 for k, s in shapes.items()}


@pytest.fixture
def released(tmp_path):
    arrays = random_weights()
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        for name, value in arrays.items():
            file[name] = value
    (tmp_path / "options.json").write_text(json.dumps(OPTIONS))
    return tmp_path, arrays


SENTENCES = [["The", "cat", "sat", "."], [], ["x" * 10_000, "é" * 30, "한국", ""]]


@pytest.mark.slow
def test_mix_is_that_of_a_numpy_transcription(released):
    folder, arrays = released
    model = elmo.load(folder)
    chosen = [0.2, -0.7, 1.1]
    found = model.mix(SENTENCES, chosen, 1.3)
    share = np.exp(chosen) / np.exp(chosen).sum()
    for sentence, vectors in zip(SENTENCES, found, strict=True):
        ids = characters.encode_words(["<S>", *sentence, "</S>"])
        layers = elmo_numpy.layers(ids, arrays, OPTIONS)[:, 1:-1]
        expected = 1.3 * np.einsum("l,lwd->wd", share, layers)
        assert vectors.shape == (len(sentence), 12)
        assert_close(vectors, expected)
    assert model.cut == 2  # words of more than 48 bytes
    even = model.mix(SENTENCES)[0]
    assert_close(even, model.encode(SENTENCES)[0].mean(0))


def test_config_json_beside_them_is_another_programs(released):
    place, _ = released
    config = elmo.load(place).config
    (place / "config.json").write_text('{"model": {"type": "biattentive"}}')  # AllenNLP
    assert elmo.load(place).config == config


@pytest.mark.slow
def test_sentence_does_not_depend_on_the_others(released):
    model = elmo.load(released[0])
    rng = np.random.default_rng(1)
    many = [["w" * n for n in rng.integers(1, 9, size)] for size in range(40)]
    together = model.encode(many)
    for i in (0, 3, 33):
        assert_close(model.encode([many[i]])[0], together[i])
    assert model.encode([]) == []


def test_weights_that_are_written_are_read_again(released, tmp_path):
    folder, arrays = released
    config, params = weights.read(folder)
    again = tmp_path / "again"
    again.mkdir()
    weights.write(again, config, params, batch_size=3)
    with h5py.File(again / "weights.hdf5") as file:
        names: list[str] = []
        file.visititems(lambda n, x: names.append(n) if hasattr(x, "shape") else None)
        assert sorted(names) == sorted(arrays)
        for name, value in arrays.items():
            np.testing.assert_array_equal(file[name][...], value)
    options = json.loads((again / "options.json").read_text())
    for group in ("lstm", "char_cnn"):
        assert options[group] == OPTIONS[group]
    assert weights.read(again)[0] == config


OTHER = json.dumps({**OPTIONS, "lstm": {**OPTIONS["lstm"], "dim": 10}})


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("options.json", OTHER, r"W_0 is float32 \(12, 36\).* asks for \(12, 40\)"),
        ("options.json", '{"lstm": {}}', "a model of whole words"),
        ("options.json", None, r"options\.json: cannot be read"),
        ("weights.hdf5", "no HDF5", "not an HDF5 file"),
        ("weights.hdf5", None, r"has no weights\.hdf5"),
    ],
)
def test_file_that_is_wrong_or_missing(released, name, content, said):
    folder, _ = released
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    assert re.search(said, error_line(elmo.load, folder))
