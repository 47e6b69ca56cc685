"""The report on a prepared folder against the folder itself, and its warnings."""

import json

import numpy as np
import pytest

from bert_jax.data import prepare
from tests.data.preparing import made, make_config, read, write_corpus


@pytest.mark.slow
def test_report_has_the_figures_of_the_folder(tmp_path):
    write_corpus(tmp_path / "corpus.txt", documents=60)
    path = tmp_path / "corpus.txt"
    path.write_text(path.read_text().replace("\n\n", "\nAll rights reserved.\n\n"))
    config = make_config(tmp_path, **{"tokenizer.vocab_size": 20})
    folder = made(config)
    text = prepare.report_text(prepare.open_folder(folder))
    rows = read(folder, "train")
    tokens = np.concatenate([tokens for a, b, _ in rows for tokens in (a, b)])
    assert f"a pair of train: {len(tokens) / len(rows):.1f} tokens" in text
    assert f"[UNK]: {(tokens == 1).mean():.3%} of train's tokens" in text
    totals = json.loads((folder / "preparation.json").read_text())["totals"]
    assert f"{len(rows):,} pairs" in text and totals["dev"]["left_out"] > 0
    assert f"not among them: {totals['dev']['left_out']:,} (" in text
