"""Which language models see the answer (section 3.1)."""

import re

import numpy as np
import pytest

from experiments.claims import leak

BLIND = ("left to right", "masked LM")


@pytest.fixture
def rows(monkeypatch):
    """Tokens drawn at random: nothing but the answer itself helps to guess one."""
    monkeypatch.setattr(leak, "LENGTH", 16)
    return np.random.default_rng(0).integers(5, 45, (480, leak.LENGTH), np.int32)


@pytest.mark.parametrize("name", [*BLIND, "joined after each layer"])
def test_guess_depends_on_its_own_token_or_not(name, rows):
    """At random parameters already, and it stays so: no training can bring it back."""
    model = leak.models(mask=4)[name]
    change = leak.change(model, leak.initial(model), rows[:2])
    assert change == 0 if name in BLIND else change > 1e-3


def test_model_that_sees_the_answer_learns_to_copy_it(tmp_path, capfd, monkeypatch):
    """In a text of words drawn at random."""
    monkeypatch.setattr(leak, "LENGTH", 16)
    monkeypatch.setattr(leak, "PIECES", 60)
    path = tmp_path / "text.txt"
    rng, words = np.random.default_rng(0), ("the", "cat", "sat", "on", "dogs")
    path.write_text("\n".join(" ".join(rng.choice(words, 9)) for _ in range(400)))
    name = "both sides, no masks"
    only = {name: leak.models(4)[name]}
    monkeypatch.setattr(leak, "models", lambda mask: only)
    assert leak.main([f"--text=text:{path}", "--steps=120"]) == 0
    out, err = capfd.readouterr()
    assert err.splitlines() == [f"{name}: training, 1 of 1"]
    honest = float(re.search(r"([\d.]+) by counts alone", out)[1])
    (row,) = (line for line in out.splitlines() if line.startswith(name))
    first, *_, last, change = map(float, row.removeprefix(name).split())
    assert first > honest and last < honest / 3 and change > 1
