"""How much of fine-tuning's batches is padding, and what packing would save."""

import json

import numpy as np
import pytest

from bert_jax.errors import UserError
from experiments.benchmarks import finetuning_padding

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


@pytest.mark.parametrize(
    ("sizes", "length", "rows"),
    [((5, 5, 3, 3), 8, 2), ((5, 5, 5), 8, 3), ((1,) * 9, 8, 2), ((8,), 8, 1)],
)
def test_texts_are_packed_the_longest_first(sizes, length, rows):
    assert finetuning_padding.packed_rows(np.array(sizes), length) == rows


def test_flops_of_batches_packed_and_in_parts():
    sizes = np.array([3, 16, 4, 3, 4, 3, 4, 3])
    cost = float  # as if a position cost the same in any row

    def padded(parts):
        return finetuning_padding.padded(sizes, 16, cost, parts)

    assert [padded(parts) for parts in (1, 2, 4)] == [128, 96, 80]
    # 40 tokens: in three rows of 16.
    assert finetuning_padding.packed(sizes, 16, cost) == 48


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--batch=6"], "--batch=6: give a multiple of 4"),
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
