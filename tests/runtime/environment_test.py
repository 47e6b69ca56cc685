"""Streams that are closed, other locales, variables that JAX and XLA refuse."""

import json
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


@pytest.mark.slow
def test_the_locale_changes_nothing(micro, plain, tmp_path):
    """Rows, names of files and columns hold what ASCII does not."""
    text = "naïve [MASK] 東京"
    source = tmp_path / "Zeilen ä.jsonl"
    source.write_text(json.dumps({"text": text}) + "\n")
    done = shell(
        f'{PREDICT} --input="$3"',
        *(micro, plain, source),
        PYTHONUTF8="0",
        PYTHONCOERCECLOCALE="0",
        LC_ALL="C",
    )
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout.decode("utf-8"))["text"] == text
    assert text in done.stdout.decode("utf-8")


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_what_is_printed_is_utf_8(encoding):
    program = (
        "from bert_jax.runtime import environment as e; e.prepare(); print('東京')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        timeout=LIMIT,
        check=True,
    )
    assert done.stdout == "東京\n".encode()


def untuned(**variables):
    given = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
    return given | variables


TUNABLES = """
import os, sys
from bert_jax.runtime import environment
environment.prepare()
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


def test_an_error_with_standard_error_closed():
    done = shell("$MAIN --config=nowhere.py 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(micro, plain, tmp_path):
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
    done = shell("$MAIN --config=nowhere.py 2>&1 | true; exit $PIPESTATUS")
    assert done.returncode == 2
