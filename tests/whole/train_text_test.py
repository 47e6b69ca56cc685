"""A run and its text: the prepared data counts, and changed text is noticed."""

import json
import shutil

import pytest

from bert_jax.workdir import folder as workdirs
from bert_jax.workdir import metrics
from tests.runs import losses, run


def own_text(tmp_path):
    """Documents in which no sentence appears twice, and the fields that name them."""
    text = tmp_path / "text.txt"
    document = "the quick fox {0}\nit jumps {0}\na lazy dog {0}\n\n"
    text.write_text("".join(map(document.format, range(40))))
    fields = [f"--config.corpus.sources=sentences:{text}"]
    return text, [*fields, f"--config.corpus.data_dir={tmp_path}/data"]


PHASES = (
    *("--config.phase2.fraction=0.5", "--config.phase2.max_seq_length=24"),
    *("--config.train.num_steps=4", "--config.train.eval_every=2"),
)


@pytest.fixture(scope="module")
def straight(micro, tmp_path_factory):
    """A run of two phases whose text stays as it is."""
    folder = tmp_path_factory.mktemp("straight")
    _, own = own_text(folder)
    run(micro, folder / "run", *own, *PHASES)
    return folder / "run"


@pytest.mark.slow
def test_text_plays_no_part_once_it_is_prepared(micro, straight, tmp_path, monkeypatch):
    """Nor at the first evaluation, nor where phase 2 begins."""
    text, own = own_text(tmp_path)
    claim = workdirs.claim_folder

    def changing(*args, **kwargs):  # prepared, and nothing is trained yet
        claim(*args, **kwargs)
        text.unlink()

    monkeypatch.setattr(workdirs, "claim_folder", changing)
    out, _ = run(micro, tmp_path / "run", *own, *PHASES)
    assert losses(tmp_path / "run").tolist() == losses(straight).tolist()
    mine, expected = (
        metrics.read_metrics(path, "dev") for path in (tmp_path / "run", straight)
    )
    assert all(line.pop("time") for line in [*mine, *expected])
    assert mine == expected and len(mine) == 2
    assert "of the tokens)\nnot among them: " in out
    prepared = [p for p in (tmp_path / "data").iterdir() if p.name.startswith("pairs")]
    assert len(prepared) == 2


@pytest.mark.slow
def test_text_that_has_changed_is_noticed_and_prediction_does_without(micro, tmp_path):
    workdir, text = tmp_path / "run", tmp_path / "text.txt"
    own_text(tmp_path)
    data = tmp_path / "data"
    own = [f"--config.corpus.sources=sentences:{tmp_path}/*.txt"]
    own += [f"--config.corpus.data_dir={data}", "--config.train.num_steps=2"]
    run(micro, workdir, *own)
    config = (workdir / "config.json").read_bytes()
    with text.open("a") as file:
        file.writelines(f"other words {n}\naltogether {n}\n\n" for n in range(50))
    for mode in ("train", "evaluate"):
        shutil.rmtree(data, ignore_errors=True)
        _, err = run(micro, workdir, *own, f"--mode={mode}", status=2)
        assert "the text has changed since the run started" in err
        assert not list(data.glob("pairs-*"))  # refused before that work
    assert (workdir / "config.json").read_bytes() == config
    text.unlink()
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "the [MASK] fox"}\n')
    out, _ = run(micro, workdir, *own, "--mode=predict", f"--input={source}")
    assert len(json.loads(out)["masks"][0]) == 5
