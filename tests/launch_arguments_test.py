"""Wrong arguments of launch.sh, before it does anything; and odd answers."""

import os
import subprocess
from pathlib import Path

import pytest

from launch import tpu
from launch.commands import State

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tpu", "a", "b"), "no -- before the arguments of the command to start"),
        (("local", "2"), "local: no -- before the arguments; write ./launch.sh local"),
        (("local", "²", "--"), "local: ²: no such number; write"),
        (("local", "2x", "--"), "local: 2x: no such number; write"),
        (("local", "0", "--"), "local: 0: no such number; write"),
        (("local", "9" * 99, "--"), f"local: {'9' * 80}: no such number; write"),
        (("local", "--devices=0", "2", "--"), "local: --devices=0: no such number"),
        (("local", "--device=2", "2", "--"), "local: --device=2: no such number"),
        (("local", "2", "3", "--"), "local: N once and --devices=D at most once"),
        (("local", "--", "2"), "local: N once and --devices=D at most once"),
        (("local", "--devices=1", "2", "--devices=1", "--"), "local: N once"),
    ],
)
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_wrong_arguments_before_it_installs(tmp_path, arguments, said, locale):
    venv = tmp_path / "venv"
    done = subprocess.run(
        [ROOT / "launch.sh", *arguments],
        env={**os.environ, "BERT_JAX_VENV": str(venv), "LC_ALL": locale},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"error: {said}") and done.stderr.count("\n") == 1
    assert not venv.exists()


@pytest.mark.parametrize("name", ["a/b", "n" * 300, "", "..", "é", "a b", "a\nb"])
def test_names_that_no_slice_has(name, capsys, tmp_path):
    for words in ((name, "us-east5-a"), ("my-slice", name)):
        assert tpu.main(tmp_path, [*words, "--dry-run", "--", "--x"]) == 2
        out, err = capsys.readouterr()
        what = "NAME" if words[0] == name else "ZONE"
        assert err.startswith(f"error: {what} is ") and err.count("\n") == 1
        assert not out and len(err) < 260


@pytest.mark.parametrize("word", ["9" * 5000, "a\nb", "--x\ny", "--" + "x" * 5000])
def test_what_was_given_is_shown_on_one_short_line(word, capsys, tmp_path):
    assert tpu.main(tmp_path, [word, "a", "b", "--", "--x"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1 and len(err) < 260


def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tpu.tempfile, "tempdir", str(tmp_path / "file"))
    assert tpu.main(tmp_path, ["a", "b", "--", "--x"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {tmp_path / 'file'}/bert_jax_tpu_")
    assert err.endswith(": Not a directory\n")


def test_answers_that_are_no_state():
    for line in ("", "bert_jax-state", "bert_jax-state x", "bert_jax-state x y"):
        assert State.parse(line) is None
    assert State.parse("bert_jax-state ended 7 3") == State("ended", 7, 3)
