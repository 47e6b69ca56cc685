"""A second start finds its programs compiled, and computes what the first did."""

import pytest
import runs

from bert_jax.workdir import metrics


def start(micro, workdir, cache):
    return runs.start(
        f"--config={micro}",
        f"--workdir={workdir}",
        XDG_CACHE_HOME=str(cache),
        JAX_COMPILATION_CACHE_DIR="",
        JAX_LOG_COMPILES="true",  # tells of hits
    )


@pytest.mark.slow
def test_killed_and_resumed_with_what_was_compiled(micro, plain, tmp_path):
    workdir, cache = tmp_path / "run", tmp_path / "cache"
    process = start(micro, workdir, cache)
    runs.wait_for_lines(workdir, 13, process)
    runs.kill(process)
    _, err = runs.finish(start(micro, workdir, cache))
    assert "cache hit for 'jit_train_step'" in err
    assert "cache miss for 'jit_train_step'" not in err.lower()
    assert runs.losses(workdir).tolist() == runs.losses(plain).tolist()
    assert len(runs.losses(workdir)) == 20
    (ours,), (theirs,) = (
        metrics.read_metrics(workdir, "dev"),
        metrics.read_metrics(plain, "dev"),
    )
    assert ours | {"time": 0} == theirs | {"time": 0}
