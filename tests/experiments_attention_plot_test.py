"""A picture of one head of a model."""

import numpy as np
import pytest

import bert_jax
from experiments.insight import attention_plot

TEXT = "the $x^2$ <b> fox"


def test_map_is_that_head(plain, tmp_path):
    """Its values are those that `bert_jax.load` gives."""
    pytest.importorskip("matplotlib", reason="needs the report extra (matplotlib)")
    given = [f"--weights={plain}", f"--text={TEXT}", "--layer=0", "--head=1"]
    assert attention_plot.main([*given, f"--output={tmp_path / 'one.pdf'}"]) == 0
    assert (tmp_path / "one.pdf").read_bytes().startswith(b"%PDF")
    options = [f"--output={tmp_path / 'one.pdf'}", *given]
    model = bert_jax.load(plain)
    read = model.encode([TEXT])
    ids = read["input_ids"], read["input_mask"], read["segment_ids"]
    wanted = model.apply(*ids, attentions=True)["attentions"][0][0, 1]
    tokens, heads = attention_plot.read(attention_plot.parse(options))
    assert tokens == read["tokens"][0] and [*heads] == ["layer 0, head 1"]
    np.testing.assert_array_equal(heads["layer 0, head 1"], wanted)
