"""The files of examples/, run: their saved files, answers and refusals."""

import functools
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import bert_jax
import examples
from bert_jax.registry import POSITIONS
from bert_jax.workdir import metrics
from tests.runs import ROOT, here, losses, run

LAYERS = ("pre_norm", "rotary")
TRANSFORMS = ("z_loss", "gradient_norms")
NAMES = ("focal", "spans", *LAYERS, *TRANSFORMS)


FIELDS = {
    **{"model.hidden_size": 32, "model.num_attention_heads": 2},
    **{"model.num_hidden_layers": 1, "model.intermediate_size": 64},
    **{"model.max_position_embeddings": 32},
    **{"tokenizer.vocab_size": 64, "corpus.max_seq_length": 32},
    **{"corpus.dev_fraction": 0.2, "masking.max_predictions_per_seq": 6},
    **{"train.num_steps": 12, "train.batch_size": 16, "train.log_every": 1},
    **{"evaluate.batch_size": 16, "optimizer.name": "adamw"},
}
# The layer is the example's: so are its dropout, its norm after the last layer, and the
# names that Muon looks for.
PRE_NORM = {
    **{"model__num_hidden_layers": 2, "model__hidden_dropout_prob": 0.1},
    "optimizer__name": "muon",
}


def path(name: str) -> str:
    return str(ROOT / "examples" / f"{name}.py")


def flags(corpus: Path, data: Path, **fields) -> list[str]:
    """Returns overrides that make an example's run of pre-training small.

    A field's dots are two underscores here.
    """
    own = {name.replace("__", "."): value for name, value in fields.items()}
    places = {
        "corpus.sources": (f"sentences:{corpus}",),
        "corpus.data_dir": str(data),
    }
    return [f"--config.{n}={v}" for n, v in (FIELDS | places | own).items()]


def test_examples_are_tested():
    files = {path.stem for path in (ROOT / "examples").glob("*.py")}
    # Two are scripts. clean_text is for datatrove, which the tests do not have.
    scripts = {"clean_text", "docstrings"}
    tasks = {"multi_task", "answerable", "two_labels"}  # tasks_test.py
    others = {"layerwise", "teacher", "running_mean", "__init__"}
    assert files == {*NAMES} | others | scripts | tasks


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """Returns the finished run of an example, trained once: packed rows with shifted
    positions, and stacked layers where the example is about the layers."""

    @functools.cache
    def train(name):
        folder = tmp_path_factory.mktemp(name)
        fields = {"corpus__packing": True, "corpus__shift_positions": True}
        if name in LAYERS:
            fields |= {"model__scan_layers": True}
        if name == "pre_norm":
            fields |= PRE_NORM
        run(path(name), folder, *flags(corpus, folder / "data", **fields))
        return folder

    return train


@pytest.mark.parametrize("name", NAMES)
def test_example_learns_and_answers(trained, name, one_device):
    workdir = trained(name)
    found = losses(workdir)
    assert len(found) == 12 and found[-1] < found[0]
    dev = metrics.read_metrics(workdir, "dev")[-1]
    names = ("masked_lm_loss", "perplexity", "masked_lm_accuracy", "unigram_loss")
    assert dev["perplexity"] == pytest.approx(np.exp(dev["masked_lm_loss"]))
    assert all(np.isfinite(dev[name]) for name in names)
    assert name != "focal" or "focal_loss" in dev
    model = bert_jax.load(workdir)
    assert len(model.fill_mask("the [MASK] fox")[0]) == 5
    ids = np.array([[2, 7, 9, 3]])
    states = model.apply(ids, ids > 0, 0 * ids)["hidden_states"]
    layers = 2 if name == "pre_norm" else 1
    assert len(states) == 1 + layers and np.isfinite(states[-1]).all()


def test_export_refuses_what_hugging_face_lacks(trained, tmp_path):
    given = (f"--workdir={trained('rotary')}", f"--config={path('rotary')}")
    to = tmp_path / "out"
    _, error = here("--mode=export", *given, f"--output={to}", status=2)
    assert "has no positions rotary of your own, so it cannot be exported" in error
    assert error.count("\n") == 1 and not to.exists()


def test_weights_of_another_model_are_refused(corpus, plain, tmp_path):
    given = flags(corpus, tmp_path / "data", init_from=plain)
    _, error = run(path("pre_norm"), tmp_path / "run", *given, status=2)
    assert "config.model.layer='pre_norm', but" in error and error.count("\n") == 1


def fine_tune(config, source, folder, status=0):
    """Starts from the run `source`. Returns the error."""
    rows = [{"text": f"the {w} fox", "label": w} for w in ("cats", "watch") * 8]
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = (f"--config.task.train_file={data}", "--config.task.dev_file=")
    small = (
        *("--config.task.max_seq_length=16", "--config.train.num_steps=1"),
        "--config.model.hidden_dropout_prob=0.0",
        "--config.model.attention_probs_dropout_prob=0.0",
    )
    first = f"--config.init_from={source}"
    return run(config, folder / "tuned", first, *files, *small, status=status)[1]


def test_positions_are_kept_by_fine_tuning(trained, tmp_path, monkeypatch):
    run = trained("rotary")
    with monkeypatch.context() as patch:  # as in a process that ran no rotary.py
        patch.delitem(POSITIONS, "rotary", raising=False)
        error = fine_tune(path("layerwise"), run, tmp_path, status=2)
    assert "config.model.positions='learnt', but" in error
    page = (ROOT / "docs" / "extending.md").read_text()
    (text,) = re.findall(r"```python\n# tuned.py\n(.*?)```", page, re.S)
    (tmp_path / "tuned.py").write_text(text)
    # Another test may have imported the module, whose import adds the name.
    monkeypatch.delitem(sys.modules, "examples.rotary", raising=False)
    monkeypatch.delattr(examples, "rotary", raising=False)
    fine_tune(tmp_path / "tuned.py", trained("rotary"), tmp_path)
    recorded = json.loads((tmp_path / "tuned" / "config.json").read_text())
    assert recorded["model"]["positions"] == "rotary"
