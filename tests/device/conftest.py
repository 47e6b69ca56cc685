"""Tests of a GPU or TPU, which a machine without one skips:

JAX_PLATFORMS=cuda,cpu ./launch.sh test tests/device

The processor computes the reference values.
"""

import os

import jax
import pytest

# The runs that a test starts share the device with it: nobody takes most of its memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


@pytest.fixture(scope="session", autouse=True)
def device() -> str:
    """The platform's name."""
    platform = jax.default_backend()
    if platform == "cpu":
        pytest.skip("no GPU or TPU: JAX_PLATFORMS=cuda,cpu where there is one")
    return platform


@pytest.fixture(scope="session")
def processor() -> jax.Device:
    return jax.devices("cpu")[0]
