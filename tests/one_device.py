"""Runs in the test's process on one of its eight devices."""

import jax
import pytest


def only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides all devices but the first.

    A program for eight takes three times as long to compile. Where no mesh is tested,
    one shows the same.
    """
    (first, *_) = jax.devices()
    monkeypatch.setattr(jax, "devices", lambda *_: [first])
    monkeypatch.setattr(jax, "device_count", lambda *_: 1)
