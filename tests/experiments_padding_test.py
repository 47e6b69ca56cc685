"""How much of fine-tuning's batches is padding, and what packing would save."""

import json

import numpy as np
import pytest

from bert_jax.errors import UserError
from experiments.speed import finetuning_padding

SST2 = "sentence\tlabel\n" + 40 * "one\t0\ntwo words here\t1\n"


def test_what_padding_costs_in_fine_tuning(tmp_path, capsys):
    """Of each batch half the rows have 3 tokens and half 5; all are padded to 8."""
    (tmp_path / "train.tsv").write_text(SST2)
    (tmp_path / "dev.tsv").write_text(SST2)
    vocab = tmp_path / "vocab.txt"
    pieces = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "words")
    vocab.write_text("\n".join((*pieces, "here")))
    output = tmp_path / "found.json"
    finetuning_padding.main(
        [
            *(f"--vocab={vocab}", "--size=tiny", "--batch=16", f"--output={output}"),
            *("--data", f"sst2={tmp_path}"),
        ]
    )
    (found,) = json.loads(output.read_text())["tasks"]
    assert found["texts"] == 80 and found["tokens"] == 4 and found["padded"] == 8
    assert found["padding"] == 0.5
    # Attention's part is quadratic, so a little more than the tokens'.
    assert 2 < found["none"] < 2.1
    assert "50%" in capsys.readouterr().out


def test_what_a_batch_costs_in_shared_rows():
    sizes = np.array([3, 16, 4, 3, 4, 3, 4, 3])
    found = [
        finetuning_padding.batch_cost(sizes, 16, texts, float)  # a position costs 1
        for texts in (1, 2, 4)
    ]
    # The longest row has 16, 19 and 25 tokens.
    assert found == [8 * 16, 4 * 24, 2 * 32]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--batch=12"], "--batch=12: give a multiple of 8"),
        (["--data", "sst2"], "--data sst2: write TASK=FOLDER"),
        (["--data", "mnli=FILE"], r"train\.tsv:1: 2 columns; give four"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, changes, message):
    (tmp_path / "train.tsv").write_text(SST2)
    changes = [one.replace("FILE", f"{tmp_path}/train.tsv") for one in changes]
    given = ["--vocab=vocab.txt", "--data", f"sst2={tmp_path}", *changes]
    with pytest.raises(UserError, match=message):
        finetuning_padding.main(given)
