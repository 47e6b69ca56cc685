"""The files of examples/, run: their saved files, answers and refusals."""

import ast
import json
import re

import numpy as np
import pytest
from runs import here, losses, run

import bert_jax
from bert_jax.workdir import metrics
from tests.examples import toys
from tests.forked import ROOT

NAMES = ("focal", "spans", "pre_norm", "rotary", "replaced")


def test_all_files_are_tested_and_short():
    files = {path.stem for path in (ROOT / "examples").glob("*.py")}
    # Two are scripts. clean_text is for datatrove, which the tests do not have.
    scripts = {"clean_text", "search_texts"}
    assert files == {*NAMES, "layerwise", "__init__"} | scripts
    for path in (ROOT / "examples").glob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text()))
        assert sum(isinstance(node, ast.stmt) for node in nodes) <= 85, path


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_resumes_and_answers(name, corpus, tmp_path):
    """Packed rows with shifted positions, stacked layers and micro-batches."""
    fields = {"corpus__packing": True, "corpus__shift_positions": True}
    fields |= {"model__scan_layers": True, "train__micro_batches": 2}
    given = toys.flags(corpus, tmp_path / "data", **fields)
    run(toys.path(name), tmp_path / "run", *given, "--config.train.num_steps=8")
    longer = ("--config.train.num_steps=12", "--config.train.extend=True")
    run(toys.path(name), tmp_path / "run", *given, *longer)
    found = losses(tmp_path / "run")
    assert len(found) == 12 and found[-1] < found[0]
    dev = metrics.read(tmp_path / "run", "dev")[-1]
    names = ("masked_lm_loss", "perplexity", "masked_lm_accuracy", "unigram_loss")
    assert dev["perplexity"] == pytest.approx(np.exp(dev["masked_lm_loss"]))
    assert all(np.isfinite(dev[name]) for name in names)
    own = {"focal": "focal_loss", "replaced": "replaced_loss"}.get(name)
    assert own is None or own in dev
    (tmp_path / "rows.jsonl").write_text('{"text": "the [MASK] fox"}\n')
    asked = (f"--workdir={tmp_path / 'run'}", f"--input={tmp_path / 'rows.jsonl'}")
    out, _ = here("--mode=predict", *asked)
    assert len(json.loads(out)["masks"][0]) == 5
    ids = np.array([[2, 7, 9, 3]])
    model = bert_jax.load(tmp_path / "run")
    states = model.apply(ids, ids > 0, 0 * ids)["hidden_states"]
    assert len(states) == 3 and np.isfinite(states[-1]).all()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("pre_norm", "has no layer pre_norm of your own, so it cannot be exported"),
        ("rotary", "has no positions rotary of your own, so it cannot be exported"),
    ],
)
def test_what_hugging_face_does_not_have_is_not_exported(name, part, corpus, tmp_path):
    given = toys.flags(corpus, tmp_path / "data", train__num_steps=1)
    run(toys.path(name), tmp_path / "run", *given)
    to = f"--output={tmp_path / 'out'}"
    _, error = here("--mode=export", f"--workdir={tmp_path / 'run'}", to, status=2)
    assert part in error and error.count("\n") == 1 and not (tmp_path / "out").exists()


def test_a_head_is_left_out_of_an_export(corpus, tmp_path):
    """ELECTRA's encoder is the part that is fine-tuned later."""
    given = toys.flags(corpus, tmp_path / "data", train__num_steps=1)
    run(toys.path("replaced"), tmp_path / "run", *given)
    to = f"--output={tmp_path / 'out'}"
    _, error = here("--mode=export", f"--workdir={tmp_path / 'run'}", to)
    assert "exported without generator, generator_input" in error
    assert not bert_jax.load(tmp_path / "out").heads


@pytest.mark.parametrize("name", ["pre_norm", "rotary"])
def test_weights_of_another_model_are_refused(name, corpus, plain, tmp_path):
    given = toys.flags(
        *(corpus, tmp_path / "data"),
        **{"init_from": plain, "model__num_hidden_layers": 1},
    )
    _, error = run(toys.path(name), tmp_path / "run", *given, status=2)
    field = "layer" if name == "pre_norm" else "positions"
    assert f"config.model.{field}='{name}', but" in error and error.count("\n") == 1


def fine_tune(config, folder, status=0):
    """Starts from the run in `folder`. Returns the error."""
    rows = [{"text": f"the {w} fox", "label": w} for w in ("cats", "watch") * 8]
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = [f"--config.task.{name}_file={data}" for name in ("train", "dev")]
    more = ("--config.task.max_seq_length=16", "--config.train.num_steps=1")
    source = f"--config.init_from={folder / 'run'}"
    return run(config, folder / "tuned", source, *files, *more, status=status)[1]


def test_fine_tuning_takes_the_discriminator(corpus, tmp_path):
    given = toys.flags(corpus, tmp_path / "data", train__num_steps=1)
    run(toys.path("replaced"), tmp_path / "run", *given)
    fine_tune(toys.path("layerwise"), tmp_path)
    report = json.loads((tmp_path / "tuned" / "init_from.json").read_text())
    parts = {name.partition("/")[0] for name in report["taken"]}
    assert parts == {"bert"} and "generator" in report["left_over"]


def test_fine_tuning_keeps_the_positions(corpus, tmp_path):
    given = toys.flags(corpus, tmp_path / "data", train__num_steps=1)
    run(toys.path("rotary"), tmp_path / "run", *given)
    error = fine_tune(toys.path("layerwise"), tmp_path, status=2)
    assert "config.model.positions='learnt', but" in error
    page = (ROOT / "docs" / "extending.md").read_text()
    (text,) = re.findall(r"```python\n# tuned.py\n(.*?)```", page, re.S)
    (tmp_path / "tuned.py").write_text(text)
    fine_tune(tmp_path / "tuned.py", tmp_path)
    recorded = json.loads((tmp_path / "tuned" / "config.json").read_text())
    assert recorded["model"]["positions"] == "rotary"


def test_counted_words_need_berts_masked_lm(corpus, tmp_path):
    fields = {"task__word_initializer": "counted", "model__hidden_size": 8}
    given = toys.flags(corpus, tmp_path / "data", **fields)
    _, error = run(toys.path("replaced"), tmp_path / "run", *given, status=2)
    line = error.splitlines()[-1]
    assert "config.task.word_initializer=counted" in line and "no masked LM" in line
