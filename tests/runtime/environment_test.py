"""Streams that are closed, other locales, variables that JAX and XLA refuse."""

import json
import os
import platform
import subprocess
import sys

import pytest
from runs import LIMIT, ROOT, anew

from bert_jax import main
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


def one_line(done, *words, status=2):
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == status and line.startswith("error: "), line
    assert all(word in line for word in words), line


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
        timeout=60,
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
        timeout=60,
        check=True,
    )
    expected = own.get("GLIBC_TUNABLES", environment.MALLOC)
    assert done.stdout == f"{expected} one two three\n"


def test_a_debugger_keeps_the_program():
    done = subprocess.run(
        [sys.executable, "-m", "pdb", "-m", "bert_jax.main", "--config=nowhere.py"],
        cwd=ROOT,
        env=untuned(),
        input="continue\nquit\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "nowhere.py" in done.stderr
    assert done.stdout.count('-> """python -m bert_jax.main') == 1, done.stdout


def test_launch_sets_the_same():
    text = (ROOT / "launch.sh").read_text()
    assert f"${{GLIBC_TUNABLES:-{environment.MALLOC}}}" in text


@pytest.mark.slow
def test_predict_with_standard_input_closed(micro, plain):
    done = shell(f"{PREDICT} <&-", micro, plain)
    one_line(done, "standard input is closed", "--input=FILE")


PRINTS = """
import sys
from bert_jax.runtime import environment
environment.prepare()
with open(sys.argv[1], "w") as file:
    print("out")
    print("err", file=sys.stderr)
    file.write("in a file")
    sys.stdout.flush()
"""


@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_is_no_place_for_a_file(tmp_path, streams):
    """What is opened first would become standard output, and be printed into."""
    path = tmp_path / "file"
    done = shell(f'"$1" -c "$2" "$3" {streams}', sys.executable, PRINTS, path)
    assert done.returncode == 0
    assert path.read_text() == "in a file"
    assert done.stdout == (b"" if streams == ">&-" else b"out\n")
    assert done.stderr == (b"" if streams == "2>&-" else b"err\n")


@pytest.mark.slow
def test_a_run_without_any_stream(micro, plain, tmp_path):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"text": "the [MASK]"}\n')
    before = {path: path.stat().st_mtime_ns for path in plain.rglob("*")}
    done = shell(
        f'{PREDICT} --input="$3" --output="$4" <&- >&- 2>&-',
        *(micro, plain, source, target),
    )
    assert (done.returncode, done.stdout) == (0, b""), done.stderr.decode()
    assert json.loads(target.read_text())["masks"]
    assert before == {path: path.stat().st_mtime_ns for path in plain.rglob("*")}


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


@pytest.mark.slow
def test_a_pipe_with_a_name_whose_reader_has_gone(micro, plain, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "in.jsonl").write_text('{"text": "the [MASK]"}\n' * 300)
    done = shell(
        'head -1 "$4" >/dev/null & ' + PREDICT + ' --input="$3" --output="$4"',
        *(micro, plain, tmp_path / "in.jsonl", tmp_path / "fifo"),
    )
    one_line(done, str(tmp_path / "fifo"), "Broken pipe")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("JAX_PLATFORMS", "rocm", ["JAX_PLATFORMS=rocm"]),
        ("JAX_PLATFORMS", "abacus", ["JAX_PLATFORMS=abacus", "known backends"]),
        ("JAX_ENABLE_X64", "maybe", ["JAX_ENABLE_X64", "maybe"]),
        ("JAX_DEFAULT_MATMUL_PRECISION", "foo", ["jax_default_matmul", '"foo"']),
        ("XLA_FLAGS", "--xla_no_such_flag=1", ["XLA_FLAGS", "--xla_no_such_flag=1"]),
        ("XLA_FLAGS", "--xla_backend_optimization_level=x", ["XLA_FLAGS", "level"]),
        ("XLA_FLAGS", "no_such_file", ["XLA_FLAGS=no_such_file", "not open"]),
    ],
)
def test_variables_that_jax_and_xla_refuse(micro, tmp_path, name, value, words):
    done = shell(
        '$MAIN --config="$1" --workdir="$2"', micro, tmp_path / "run", **{name: value}
    )
    one_line(done, *words)
    assert not (tmp_path / "run").exists()


def test_flags_of_xla_are_looked_at_once(monkeypatch, capfd):
    monkeypatch.setenv("XLA_FLAGS", "--xla_other_flag=2")
    for _ in range(2):
        assert main.main(["--config=configs/tiny.py", "--mode=describe"]) == 2
        assert "error: XLA_FLAGS=--xla_other_flag=2: Unknown" in capfd.readouterr().err
