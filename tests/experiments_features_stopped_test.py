"""Feature-based tagging killed and started again, and what it finds on the disk."""

import os
from types import SimpleNamespace

import pytest
from feature_runs import SENTENCES, columns, command_of, results, write_data
from runs import finish, kill, start, wait_until

from experiments import feature_cache, feature_training, features

PROGRAM = ("-m", "experiments.features")


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path)


@pytest.fixture
def command(data, plain):
    return command_of(data, plain)


def test_a_second_start_uses_what_is_there(command, data, capsys, monkeypatch):
    assert features.main(command()) == 0
    first = capsys.readouterr()
    before = results(data / "out")

    def refuse(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr(feature_cache, "_fill", refuse)
    monkeypatch.setattr(feature_training.Taggers, "train", refuse)
    assert features.main(command()) == 0
    second = capsys.readouterr()
    assert second.out == first.out
    assert results(data / "out") == before
    assert "vectors of train: from the cache, " in second.err
    assert "last: trained before, " in second.err
    assert "second_to_last: left out; it needs 2 layers, not 1" in second.err


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_killed_while_computing_vectors(command, data, monkeypatch, batches):
    """The vectors' file is bit for bit that of an undisturbed run."""
    options = command(choices="last", **{"config.evaluate.batch_size": 4})
    assert features.main([*options, f"--output={data / 'whole'}"]) == 0
    monkeypatch.setattr(feature_cache, "SAVE_SECONDS", 0.0)
    note = feature_cache._note
    calls = []

    def dies(array, *rest):
        if len(calls) == batches:
            raise KeyboardInterrupt
        calls.append(rest)
        note(array, *rest)

    monkeypatch.setattr(feature_cache, "_note", dies)
    assert features.main(options) == 130
    monkeypatch.setattr(feature_cache, "_note", note)
    computed = []
    batch = feature_cache._batch
    monkeypatch.setattr(
        feature_cache, "_batch", lambda *a: computed.append(a) or batch(*a)
    )
    assert features.main(options) == 0
    # 20 rows of train and 5 of dev, 4 a batch
    assert len(computed) == 7 - batches
    ours, theirs = (
        {path.name: path.read_bytes() for path in (data / folder / "vectors").iterdir()
         if path.suffix != ".json"}
        for folder in ("out", "whole")
    )  # fmt: skip
    assert ours == theirs and len(ours) == 2
    same = [results(data / folder)["choices"] for folder in ("out", "whole")]
    assert same[0] == same[1]


@pytest.mark.parametrize("step", [1, 4])
def test_killed_in_training(command, data, monkeypatch, step):
    assert features.main([*command(), f"--output={data / 'whole'}"]) == 0
    monkeypatch.setattr(feature_training, "SAVE_SECONDS", 0.0)
    save = feature_training.Taggers._save

    def dies(self, place, state, now, *rest):
        save(self, place, state, now, *rest)
        if now == step:
            raise KeyboardInterrupt

    monkeypatch.setattr(feature_training.Taggers, "_save", dies)
    assert features.main(command()) == 130
    assert not (data / "out" / "results.json").exists()
    monkeypatch.setattr(feature_training.Taggers, "_save", save)
    assert features.main(command()) == 0
    choices = [results(data / folder)["choices"] for folder in ("out", "whole")]
    assert choices[0] == choices[1]
    left = {path.suffix for path in (data / "out" / "choices").iterdir()}
    assert left == {".json"}
    # Killed between the last two lines: the state of gigabytes goes at the next start.
    done = next((data / "out" / "choices").glob("last-*.json"))
    done.with_suffix(".npz").write_bytes(b"")
    assert features.main(command()) == 0
    assert not done.with_suffix(".npz").exists()


def test_killed_as_a_process(command, data):
    options = command(**{"config.train.num_epochs": 200.0, "choices": "last"})
    process = start(*options, program=PROGRAM)
    state = data / "out" / "choices"
    wait_until(lambda: state.exists() and any(state.glob("*.npz")), process)
    kill(process)
    _, err = finish(start(*options, program=PROGRAM))
    assert "goes on after step" in err and "vectors of dev: from the cache" in err
    whole = [*options, f"--output={data / 'whole'}"]
    finish(start(*whole, program=PROGRAM))
    assert results(data / "out")["choices"] == results(data / "whole")["choices"]


def test_other_data_or_settings_are_not_mixed_up(command, data, capsys):
    def names(kind, **options):
        assert features.main(command(choices="last", **options)) == 0
        capsys.readouterr()
        return {path.name for path in (data / "out" / kind).iterdir()}

    first = names("choices")
    smaller = names("choices", size=4)
    assert len(smaller) == 2 and first < smaller
    vectors = names("vectors")
    (data / "dev").write_text(columns(SENTENCES[:4]))
    assert len(names("vectors") - vectors) == 2  # dev's, and its note
    # Other tags are other scores of the same vectors.
    (data / "dev").write_text(columns(SENTENCES[:4]).replace("B-Y", "B-X"))
    before = len(names("choices"))
    assert before == 4
    # So is the share of right tags, which is not these entities' F1.
    plain_tags = {"config.task.scheme": "none"}
    assert len(names("choices", **plain_tags)) == 5
    assert results(data / "out")["score"] == "accuracy"
    path = next((data / "out" / "vectors").glob("train-*.npy"))
    os.truncate(path, path.stat().st_size - 8)
    assert features.main(command(choices="last")) == 0
    assert "damaged; computing it again" in capsys.readouterr().err


def test_no_room_on_the_disk(command, data, capsys, monkeypatch):
    def full(_):
        return SimpleNamespace(f_bavail=1, f_frsize=512)

    monkeypatch.setattr(feature_cache.os, "statvfs", full)
    assert features.main(command()) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "need 0.00 GB, and 0.00 GB are free; take another --output" in line
    assert not list((data / "out" / "vectors").glob("*.part"))


def test_what_was_left_unfinished_of_other_settings(command, data, capsys):
    part = data / "out" / "vectors" / "train-0123456789abcdef.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"")
    assert features.main(command(choices="last")) == 0
    assert f"{part}: unfinished and of other settings; deleted" in (
        capsys.readouterr().err
    )
    assert not part.exists()
