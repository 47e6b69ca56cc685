"""notebooks/bert.ipynb: each cell runs, on a smaller model, with its outputs."""

import json
import re
import string
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax import tokenization
from bert_jax.convert import export, layout
from bert_jax.models.architectures import BertWithHeads
from bert_jax.models.heads import init_model
from bert_jax.workdir import metrics
from tests.micro import initial_params, small_config
from tests.runs import ROOT

CELLS = json.loads((ROOT / "notebooks" / "bert.ipynb").read_text("utf-8"))["cells"]
CODE = {c["id"]: "".join(c["source"]) for c in CELLS if c["cell_type"] == "code"}


@pytest.fixture
def model(tmp_path):
    """A folder with weights of two small layers, which have not learned anything."""
    letters = [f"{mark}{x}" for mark in ("", "##") for x in string.ascii_lowercase]
    words = re.findall(r"[a-z]{2,}|[^\w\s]", " ".join(CODE.values()).lower())
    pieces = [*tokenization.SPECIAL_TOKENS, *letters, *sorted(set(words))]
    config = small_config(vocab_size=len(pieces))
    heads = BertWithHeads(config, heads=("masked_lm", "next_sentence"))
    params = initial_params(partial(init_model, heads))
    found = layout.Weights(config, jax.device_get(params), "BertForPreTraining")
    tokenizer = tokenization.build_tokenizer(pieces, lowercase=True)
    export.export_folder(found, tokenizer, tmp_path / "model", {})
    return tmp_path / "model"


def given(model):
    """The cells' code for this model, trained for one epoch.

    All batches have one length, so fewer programs are compiled.
    """
    code = dict(CODE)
    changes = {
        "open": ('"mini"', repr(str(model))),
        "train": ('num_epochs": 5.0', 'num_epochs": 1.0, "task.pad_to_max": True'),
        "entities": ('num_epochs": 4.0', 'num_epochs": 1.0, "task.pad_to_max": True'),
    }
    for cell, (old, new) in changes.items():
        assert code[cell].count(old) == 1
        code[cell] = code[cell].replace(old, new)
    return code


@pytest.fixture
def executed(model, monkeypatch, tmp_path, one_device):
    """The variables after the last cell, in one namespace as in a notebook."""
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="needs the notebook extra")
    pyplot.switch_backend("agg")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # and back at the end
    namespace = {"__name__": "notebook"}
    try:
        for name, source in given(model).items():
            exec(compile(source, f"cell {name}", "exec"), namespace)
        yield namespace
    finally:
        pyplot.close("all")
        if "work" in namespace:
            namespace["work"].cleanup()


@pytest.mark.slow
def test_cells_run(executed):
    found = executed
    assert list(found["guesses"]) == found["BLANKS"]
    for row in found["guesses"].values():
        chances = [guess["probability"] for guess in row]
        assert len(row) == 5 and chances == sorted(chances, reverse=True)

    for attention in found["attentions"]:
        np.testing.assert_allclose(attention.sum(-1), 1, atol=1e-5)
        assert attention.shape[-1] == len(found["tokens"])

    sentences = {s: {r["text"] for r in rows} for s, rows in found["rows"].items()}
    assert not sentences["train"] & sentences["dev"]
    assert min(map(len, sentences.values())) > 200
    (run,) = metrics.read_metrics(Path(found["work"].name) / "topics", "dev")[-1:]
    assert found["accuracy"] == pytest.approx(run["accuracy"], abs=1e-6)
    assert found["table"].sum() == len(found["rows"]["dev"])
    wrong = found["table"].sum() - np.trace(found["table"])
    assert len(found["mistakes"]) == wrong > 0
    assert all(predicted != true for _, predicted, true, _ in found["mistakes"])
    assert len(found["marked"]) > 500
    for row in found["marked"]:
        code = [row["text"][x["start"] : x["end"]] for x in row["entities"]]
        assert all(code) and "`" not in row["text"]
    assert found["tagged"].scores["dev"].keys() >= {"f1", "precision", "recall"}
    assert len(found["plt"].get_fignums()) == 2  # agg keeps the figures that it shows


def test_its_outputs_are_there():
    outputs = {}
    for number, cell in enumerate((c for c in CELLS if c["cell_type"] == "code"), 1):
        assert cell["execution_count"] == number, "run it from the top"
        outputs[cell["id"]] = cell["outputs"]
    assert not outputs.pop("install") and all(outputs.values())
    kinds = {x["output_type"] for some in outputs.values() for x in some}
    assert kinds == {"stream", "display_data"}  # no error
    for name in ("attention", "confusion"):
        assert any("image/png" in x.get("data", {}) for x in outputs[name])
