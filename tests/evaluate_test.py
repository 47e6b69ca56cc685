"""The scores of a pre-training run on texts that it has not seen."""

import json
import math
import shutil

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.data import loader
from bert_jax.workdir import folder as workdirs
from tests.runs import here

TEXTS = {
    "plain": "The city lies on a river.\nIt has two bridges.\n\nA bridge is old.\n",
    "odd": "The 日本 bridge is 日本.\nA 日本 river.\n\n"
    "It is the 日本.\nThe 日本 city.\n",
}


@pytest.fixture
def texts(tmp_path):
    for name, text in TEXTS.items():
        (tmp_path / f"{name}.txt").write_text(text * 3)
    return [f"sentences:{tmp_path / name}.txt" for name in TEXTS]


def evaluate(workdir, *flags, status=0):
    out, err = here(f"--workdir={workdir}", "--mode=evaluate", *flags, status=status)
    return [json.loads(line) for line in out.splitlines()], err


def test_each_text_is_scored_alone(plain, texts, tmp_path):
    run, data = tmp_path / "run", tmp_path / "data"
    shutil.copytree(plain, run)
    flags = [f"--config.corpus.sources={tuple(texts)!r}"]
    # The run's own text and its prepared data may be gone.
    lines, err = evaluate(run, *flags, f"--config.corpus.data_dir={data}")
    assert [line["split"] for line in lines] == texts
    assert all(f"{line['masked_lm_loss']:.4g}" in err for line in lines)  # the table
    assert f"warning: {texts[1]}: 67.0% [UNK]" in err
    assert "unigram_loss" not in lines[0]
    config = workdirs.recorded_config(run)
    config.corpus.data_dir = str(data)
    model = bert_jax.load(run)
    prepared = loader.RunData(config, model.tokenizer)
    for line, text in zip(lines, texts, strict=True):
        total = count = 0.0
        for batch in prepared.dev(20, source=text):
            logits = model.apply(
                batch["input_ids"], batch["input_mask"], batch["segment_ids"]
            )["masked_lm_logits"]
            rows = np.arange(len(logits))[:, None]
            shown = jax.nn.log_softmax(logits[rows, batch["masked_lm_positions"]])
            taken = np.take_along_axis(shown, batch["masked_lm_ids"][..., None], -1)
            total -= float((taken[..., 0] * batch["masked_lm_weights"]).sum())
            count += float(batch["masked_lm_weights"].sum())
        assert line["masked_lm_loss"] == pytest.approx(total / count, rel=1e-4)
        assert line["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-3)


@pytest.mark.slow
def test_own_and_other_text_are_scored_together(plain, texts):
    (own,), _ = evaluate(plain)
    (alone,), _ = evaluate(plain, f"--config.corpus.sources=('{texts[1]}',)")
    both, _ = evaluate(plain, f"--config.evaluate.splits={('dev', texts[1])!r}")
    assert [line["split"] for line in both] == ["dev", texts[1]]
    assert both == [own, alone]
    flags = ("--config.evaluate.splits=('dev',)", f"--config.corpus.sources={texts[1]}")
    assert evaluate(plain, *flags)[0] == both


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("sentences:NO.txt", ["no file matches"]),
        ("lines", ["'lines' is no split", "config.corpus.sources"]),
        ("", ["config.corpus.sources"]),
    ],
)
def test_a_text_that_is_not_there_is_one_line(plain, source, words):
    _, err = evaluate(plain, f"--config.corpus.sources=('{source}',)", status=2)
    assert all(word in err for word in words)
