"""Which language models see the answer (section 3.1)."""

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
