"""Feature-based tagging killed and started again, and what it finds on the disk."""

import contextlib
import errno
import io
import json
import os
import shutil
import signal
from types import SimpleNamespace

import pytest
from feature_runs import SENTENCES, columns, command_of, opened, results, write_data
from runs import finish, start

from experiments.paper import feature_cache, feature_training, features


@pytest.fixture(scope="module")
def undisturbed(plain, tmp_path_factory):
    """A command that nothing stopped: its arguments, its folder, what it printed."""
    data = write_data(tmp_path_factory.mktemp("undisturbed"))
    command = command_of(data, plain)()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert features.main(command) == 0
    return command, data / "out", out.getvalue()


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path)


@pytest.fixture
def command(data, plain):
    return command_of(data, plain)


def test_a_second_start_uses_what_is_there(undisturbed, capsys, monkeypatch):
    command, folder, printed = undisturbed
    before = results(folder)

    def refuse(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr(feature_cache, "_fill", refuse)
    monkeypatch.setattr(feature_training.Taggers, "train", refuse)
    assert features.main(command) == 0
    second = capsys.readouterr()
    assert second.out == printed
    assert results(folder) == before
    assert "vectors of train: from the cache, " in second.err
    assert "last: trained before, " in second.err
    assert "second_to_last: left out; it needs 2 layers, not 1" in second.err


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_killed_while_computing_vectors(
    undisturbed, command, data, monkeypatch, batches
):
    """The vectors' file is bit for bit that of an undisturbed run."""
    parts = (*opened(command()), ("train", "dev"))
    monkeypatch.setattr(feature_cache, "SAVE_SECONDS", 0.0)
    note = feature_cache._note
    calls = []

    def dies(array, *rest):
        if len(calls) == batches:
            raise KeyboardInterrupt
        calls.append(rest)
        note(array, *rest)

    monkeypatch.setattr(feature_cache, "_note", dies)
    with pytest.raises(KeyboardInterrupt):
        features.vectors(*parts)
    monkeypatch.setattr(feature_cache, "_note", note)
    computed = []
    batch = feature_cache._batch
    monkeypatch.setattr(
        feature_cache, "_batch", lambda *a: computed.append(a) or batch(*a)
    )
    features.vectors(*parts)
    assert len(computed) == 7 - batches
    ours, theirs = (
        {path.name: path.read_bytes() for path in (folder / "vectors").iterdir()
         if path.suffix != ".json"}
        for folder in (data / "out", undisturbed[1])
    )  # fmt: skip
    assert ours == theirs and len(ours) == 2


def test_killed_in_training(undisturbed, command, data, monkeypatch):
    """In the middle of the second epoch."""
    options = command(choices="sum_all")
    monkeypatch.setattr(feature_training, "SAVE_SECONDS", 0.0)
    save = feature_training.Taggers._save

    def dies(self, place, state, now, *rest):
        save(self, place, state, now, *rest)
        if now == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(feature_training.Taggers, "_save", dies)
    assert features.main(options) == 130
    assert not (data / "out" / "results.json").exists()
    monkeypatch.setattr(feature_training.Taggers, "_save", save)
    assert features.main(options) == 0
    assert_same("sum_all", data / "out", undisturbed[1])
    left = {path.suffix for path in (data / "out" / "choices").iterdir()}
    assert left == {".json"}
    # Killed between the last two lines: the state of gigabytes goes at the next start.
    (done,) = (data / "out" / "choices").glob("sum_all-*.json")
    done.with_suffix(".npz").write_bytes(b"")
    assert features.main(options) == 0
    assert not done.with_suffix(".npz").exists()


def assert_same(choice, *folders):
    one, other = (results(folder)["choices"][choice] for folder in folders)
    assert one == other


# The command, which ends itself once it has saved the first epoch.
KILLED = """
import os, signal, sys
from experiments.paper import feature_training
from experiments.paper import features

save = feature_training.Taggers._save

def dies(*given):
    save(*given)
    os.kill(os.getpid(), signal.SIGKILL)

feature_training.Taggers._save = dies
features.main(sys.argv[1:])
"""


def test_killed_as_a_process(undisturbed, command, data, capsys):
    options = command(choices="last")
    finish(start(*options, program=("-c", KILLED)), -signal.SIGKILL)
    assert any((data / "out" / "choices").glob("last-*.npz"))
    assert features.main(options) == 0
    err = capsys.readouterr().err
    assert "goes on after step 3" in err and "vectors of dev: from the cache" in err
    assert_same("last", data / "out", undisturbed[1])


def test_other_data_or_settings_are_not_mixed_up(
    undisturbed, command, data, monkeypatch, capsys
):
    """Which files there are; what is in those of a choice is the other tests'."""
    whole = undisturbed[1]
    (trained,) = (whole / "choices").glob("last-*.json")
    found = json.loads(trained.read_bytes())
    monkeypatch.setattr(feature_training.Taggers, "train", lambda *_: found)
    shutil.copytree(whole / "vectors", data / "out" / "vectors")

    def names(kind, **options):
        assert features.main(command(choices="last", **options)) == 0
        capsys.readouterr()
        return {path.name for path in (data / "out" / kind).iterdir()}

    first = names("choices")
    assert first == {trained.name}
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
    monkeypatch.undo()

    def none_left(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(feature_cache.os, "posix_fallocate", none_left)
    assert features.main(command()) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"error: {data / 'out' / 'vectors'}/train-")


def test_what_was_left_unfinished_of_other_settings(command, data, capsys):
    part = data / "out" / "vectors" / "train-0123456789abcdef.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"")
    assert features.main(command(choices="last")) == 0
    assert f"{part}: unfinished and of other settings; deleted" in (
        capsys.readouterr().err
    )
    assert not part.exists()
