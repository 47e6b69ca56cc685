"""Feature-based tagging killed and started again, and what it finds on the disk."""

import contextlib
import errno
import io
import os
from types import SimpleNamespace

import pytest
import stand_ins
from feature_runs import (
    SENTENCES,
    columns,
    command_of,
    fork_runs,
    read,
    results,
    vectors,
    write_data,
)

from experiments.lib import execution
from experiments.paper import feature_cache, features


@pytest.fixture(scope="module")
def undisturbed(plain, tmp_path_factory):
    """A command that nothing stopped: its arguments, its folder, what it printed."""
    data = write_data(tmp_path_factory.mktemp("undisturbed"))
    command = command_of(data, plain)()
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.MonkeyPatch.context() as patch:
        fork_runs(patch)
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
    stand_ins.put(monkeypatch, forked=refuse)
    monkeypatch.setattr(execution, "MAIN", ("forked",))
    assert features.main(command) == 0
    second = capsys.readouterr()
    assert second.out == printed
    assert results(folder) == before
    assert "all 3 runs are done" in second.err
    assert "second_to_last: left out; it needs 2 layers, not 1" in second.err
    assert features.main([*command, "--plan"]) == 0
    assert capsys.readouterr().out.count("done") == 4  # and the line below


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_killed_while_computing_vectors(
    undisturbed, command, data, monkeypatch, batches
):
    """The vectors' file is bit for bit that of an undisturbed run."""
    parts = read(command())
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
        vectors(parts)
    monkeypatch.setattr(feature_cache, "_note", note)
    computed = []
    batch = feature_cache._batch
    monkeypatch.setattr(
        feature_cache, "_batch", lambda *a: computed.append(a) or batch(*a)
    )
    vectors(parts)
    assert len(computed) == 7 - batches
    ours, theirs = (
        {path.name: path.read_bytes() for path in (folder / "vectors").iterdir()
         if path.suffix != ".json"}
        for folder in (data / "out", undisturbed[1])
    )  # fmt: skip
    assert ours == theirs and len(ours) == 2


# A run, which ends itself once it has saved the first epoch.
KILLED = """
import os, signal, sys
from bert_jax import main
from bert_jax.training.session import Session

save = Session.save

def dies(self):
    save(self)
    self._checkpoints.wait()
    os.kill(os.getpid(), signal.SIGKILL)

Session.save = dies
main.main(sys.argv[1:])
"""


@pytest.mark.parametrize("choice", ["last", "sum_all"])
def test_a_run_is_killed(undisturbed, command, data, monkeypatch, capsys, choice):
    options = command(choices=choice)
    fork_runs(monkeypatch, ("-c", KILLED))
    assert features.main(options) == 2
    assert "ended by signal 9" in capsys.readouterr().err
    assert not (data / "out" / "results.json").exists()
    monkeypatch.undo()
    fork_runs(monkeypatch)
    assert features.main([*options, "--verbose"]) == 0
    err = capsys.readouterr().err
    assert "resuming at step 3" in err and "vectors of dev: from the cache" in err
    one, other = (results(x)["choices"][choice] for x in (data / "out", undisturbed[1]))
    assert one == other


def test_other_data_or_settings_are_not_mixed_up(command, data):
    """Which runs and files of vectors there would be."""

    def names(**more):
        options, fields = features.parse(command(choices="last", **more))
        kept = features.read(options, fields)
        (run,) = features.plan(options, fields, kept).values()
        return run.folder.name, {split: x.name for split, x in kept.paths.items()}

    first, vectors_of = names()
    assert names() == (first, vectors_of)
    for more in ({"size": 4}, {"seeds": 3}, {"config.optimizer.learning_rate": 0.1}):
        other, same = names(**more)
        assert other != first and same == vectors_of
    (data / "dev").write_text(columns(SENTENCES[:4]))
    fewer, of_fewer = names()
    assert fewer != first and of_fewer["train"] == vectors_of["train"]
    assert of_fewer["dev"] != vectors_of["dev"]
    # Other tags are other scores of the same vectors.
    (data / "dev").write_text(columns(SENTENCES[:4]).replace("B-Y", "B-X"))
    other, same = names()
    assert other not in (first, fewer) and same == of_fewer
    # So is the share of right tags, which is not these entities' F1.
    assert names(**{"config.task.scheme": "none"})[0] != other


def test_a_damaged_file_is_computed_again(command, capsys):
    kept = read(command())
    whole = vectors(kept)
    path = kept.paths["train"]
    os.truncate(path, path.stat().st_size - 8)
    assert (vectors(kept)["train"] == whole["train"]).all()
    assert "damaged; computing it again" in capsys.readouterr().err


def test_no_room_on_the_disk(command, data, capsys, monkeypatch):
    def full(_):
        return SimpleNamespace(free=512)

    monkeypatch.setattr(feature_cache.shutil, "disk_usage", full)
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
    vectors(read(command()))
    assert f"{part}: unfinished and of other settings; deleted" in (
        capsys.readouterr().err
    )
    assert not part.exists()
