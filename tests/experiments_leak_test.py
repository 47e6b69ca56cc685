"""Which language models see the answer (section 3.1)."""

import numpy as np
import pytest

from experiments.claims import leak

BLIND = ("left to right", "masked LM", "joined at the end")
SEEING = ("both sides, no masks", "joined after each layer")


@pytest.fixture
def rows(monkeypatch):
    """Tokens drawn at random: nothing but the answer itself helps to guess one."""
    monkeypatch.setattr(leak, "LENGTH", 16)
    return np.random.default_rng(0).integers(5, 45, (480, leak.LENGTH), np.int32)


@pytest.mark.parametrize("name", [BLIND[1], *SEEING])
def test_guess_depends_on_its_own_token_or_not(name, rows):
    """At random parameters already, and it stays so: no training can bring it back."""
    model = leak.models(mask=4)[name]
    change = leak.change(model, leak.initial(model), rows[:2])
    assert change == 0 if name in BLIND else change > 1e-3


def test_model_that_sees_the_answer_learns_to_copy_it(rows, monkeypatch):
    monkeypatch.setattr(leak, "PIECES", 48)
    models = leak.models(mask=4)
    best = np.log(40)  # nats: of an honest guess
    seeing = models["both sides, no masks"]
    found, change = leak.train(seeing, rows[:400], rows[400:], 120)
    losses = list(found.values())
    assert losses[0] > best and losses[-1] < 0.5 and change > 1
    found, change = leak.train(models["left to right"], rows[:400], rows[400:], 30)
    assert min(found.values()) > best - 0.02 and change == 0


def test_table_of_a_text(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(leak, "PIECES", 60)
    path = tmp_path / "text.txt"
    rng, words = np.random.default_rng(0), ("the", "cat", "sat", "on", "dogs")
    path.write_text("\n".join(" ".join(rng.choice(words, 9)) for _ in range(400)))
    only = {"left to right": leak.models(4)["left to right"]}
    monkeypatch.setattr(leak, "models", lambda mask: only)
    assert leak.main([f"--text=text:{path}", "--steps=6"]) == 0
    out, err = capfd.readouterr()
    assert err.splitlines() == ["left to right: training, 1 of 1"]
    assert "pieces of text:" in out and "by counts alone" in out
    (row,) = (line.split() for line in out.splitlines() if line.startswith("left to"))
    assert len(row) == 3 + 7 + 1 and row[-1] == "0"  # the name, 7 losses, the change
