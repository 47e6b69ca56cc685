"""A second start finds its programs compiled, and computes what the first did."""

import pytest

from tests import runs


def finished(micro, workdir, cache):
    """Trains four steps, and returns what a run says."""
    process = runs.start(
        f"--config={micro}",
        f"--workdir={workdir}",
        "--config.train.num_steps=4",
        XDG_CACHE_HOME=str(cache),
        JAX_COMPILATION_CACHE_DIR="",
        JAX_LOG_COMPILES="true",  # tells of hits
    )
    return runs.finish(process)[1]


@pytest.mark.slow
def test_second_run_takes_what_the_first_compiled(micro, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    finished(micro, first, tmp_path / "cache")
    err = finished(micro, second, tmp_path / "cache")
    assert "cache hit for 'jit_train_step'" in err
    assert "cache miss for 'jit_train_step'" not in err.lower()
    assert runs.losses(second).tolist() == runs.losses(first).tolist()
