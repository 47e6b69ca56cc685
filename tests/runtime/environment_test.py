"""Memory of the process, and a reader that is gone."""

import os
import platform
import subprocess
import sys

import pytest
from runs import LIMIT, ROOT, anew

from bert_jax.runtime import environment


def shell(text, *arguments, **variables):
    """Runs bash: `$MAIN` is the program, `$1` and so on the arguments."""
    program = f"MAIN='{sys.executable} -m bert_jax.main'\n{text}"
    return subprocess.run(
        ["bash", "-c", program, "bash", *map(str, arguments)],
        cwd=ROOT,
        env=anew(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )


PREDICT = '$MAIN --mode=predict --config="$1" --workdir="$2"'


def untuned(**variables):
    given = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
    return given | variables


TUNABLES = """
import os, sys
from bert_jax.runtime import environment
environment.prepare_memory()
print(os.environ["GLIBC_TUNABLES"], *sys.argv[1:])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's variable")
@pytest.mark.parametrize("own", [{}, {"GLIBC_TUNABLES": "glibc.malloc.check=0"}])
def test_huge_pages_unless_the_user_says_otherwise(own):
    done = subprocess.run(
        [sys.executable, "-c", TUNABLES, "one", "two three"],
        cwd=ROOT,
        env=untuned(**own),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    expected = own.get("GLIBC_TUNABLES", environment.MALLOC)
    assert done.stdout == f"{expected} one two three\n"


@pytest.mark.slow
def test_closed_pipe_is_no_error(micro, plain, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "the [MASK]"}\n' * 300)  # more than a pipe holds
    done = shell(
        f'{PREDICT} <"$3" | head -1; exit ${{PIPESTATUS[0]}}',
        *(micro, plain, source),
    )
    assert done.returncode == 141 and done.stderr == b""
    assert len(done.stdout.splitlines()) == 1
    done = shell('$MAIN --mode=describe --config="$1" | true; exit $PIPESTATUS', micro)
    assert done.returncode in (0, 141) and done.stderr == b""
