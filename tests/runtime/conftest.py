"""A bucket for the tests of this folder."""

import pytest

from bert_jax.runtime import storage
from tests.fake_gcs import serving


@pytest.fixture(scope="module")
def gcs():
    with serving() as fake:
        yield fake


@pytest.fixture
def here(gcs, monkeypatch):
    """The server for this process's own clients."""
    import fsspec

    for name, value in gcs.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(fsspec.config.conf, "gcs", {"token": "anon"})
    storage.check_path("--workdir", "gs://bucket/run")
    fsspec.filesystem("gcs").clear_instance_cache()
    yield gcs
    gcs.refuse = None
    fsspec.filesystem("gcs").clear_instance_cache()
