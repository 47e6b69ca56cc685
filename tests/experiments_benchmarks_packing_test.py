"""The benchmark of packed rows: a small run, and what its figures are of."""

import json

import pytest

from bert_jax.errors import UserError
from experiments.speed import packing

LENGTH = 32


@pytest.mark.parametrize(
    "wrong", ["--size=0/64", "--size=tiny", "--batch=0", "--rounds=0", "--turn=-1"]
)
def test_wrong_options_fail_before_anything_runs(wrong):
    given = ["--sources=jsonl:none", "--vocabulary=none", wrong]
    with pytest.raises(UserError, match=wrong.partition("=")[0]):
        packing.parse(given)


def test_packed_rows_beside_padded_ones(corpus, tmp_path, capsys):
    words = sorted({*corpus.read_text("utf-8").lower().replace(".", " ").split(), "."})
    vocabulary = tmp_path / "vocab.txt"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary.write_text("\n".join([*special, *words]) + "\n", "utf-8")
    output = tmp_path / "found.json"
    packing.main(
        [
            *(f"--sources=sentences:{corpus}", f"--vocabulary={vocabulary}"),
            *("--size=1/64", f"--length={LENGTH}", "--batch=8", "--rounds=1"),
            *("--turn=0.01", f"--output={output}"),
        ]
    )
    printed = capsys.readouterr()
    found = json.loads(output.read_text())
    padded, packed = (found["sides"][name] for name in ("padded", "packed"))
    assert padded["pairs"] == pytest.approx(padded["rows"])
    pairs = packed["pairs"] / packed["rows"]
    assert 1 < pairs <= 4
    # The batches taken are a sample of all rows.
    assert packed["fill"] / padded["fill"] == pytest.approx(pairs, rel=0.2)
    for side in (padded, packed):
        filled = side["tokens"] / (side["rows"] * LENGTH)
        assert filled == pytest.approx(side["fill"], rel=0.2) and side["fill"] < 1
    assert f"{packed['fill']:.1%} of the positions" in printed.err
    more = packed["pairs"] / padded["pairs"]
    assert found["times_as_many_pairs"] == pytest.approx({"median": more, "best": more})
    assert f"packed rows train {more:.2f} times as many pairs a second" in printed.out
