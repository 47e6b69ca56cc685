"""Predictions that end early are resumed, and are the same to the byte."""

import fcntl
import json
import shutil
import signal

import numpy as np
import pytest

from bert_jax.tasks import row_files
from tests.runs import finish, run, start

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "it"]
ROWS = 420
SMALL = "--config.predict.batch_size=8"  # windows of 128 rows
WINDOW = 128


def write_rows(path):
    """Texts of many lengths, and a field that a table must quote."""
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        for number in range(ROWS):
            text = " ".join(rng.choice(WORDS, rng.integers(1, 20)))
            note = ["plain", 'a "quote",\nand a line', "tab\tand \u2028"][number % 3]
            row = {"text": f"{text} [MASK]", "note": note, "number": number}
            file.write(json.dumps(row) + "\n")
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("rows") / "in.jsonl")


@pytest.fixture
def ask(micro, plain, tmp_path):
    """Runs predict. Returns its messages."""

    def predict(source, name, *args, status=0, workdir=plain):
        files = (f"--input={source}", f"--output={tmp_path / name}")
        given = ("--mode=predict", *files, SMALL, *args)
        return run(micro, workdir, *given, status=status)[1]

    return predict


@pytest.fixture
def stop_after(monkeypatch):
    """Makes the disk full after so many rows, in the middle of the next one."""
    row_writer = row_files.row_writer

    def stop(rows):
        count = iter(range(rows))

        def make(target, file, columns):
            write = row_writer(target, file, columns)

            def counted(row):
                if next(count, None) is None:
                    file.write('{"text": "half of')
                    raise OSError(28, "No space left on device")
                write(row)

            return counted

        monkeypatch.setattr(row_files, "row_writer", make)

    yield stop


@pytest.fixture(scope="module")
def undisturbed(micro, plain, source):
    """The answers of a command that nothing stopped."""
    target = source.parent / "whole.jsonl"
    files = (f"--input={source}", f"--output={target}")
    run(micro, plain, "--mode=predict", *files, SMALL)
    return target.read_bytes()


# Main, which is killed in the middle of a row of the third window.
_KILLED = """
import os, signal, sys
from bert_jax import main
from bert_jax.tasks import row_files

make = row_files.row_writer

def stop(target, file, columns):
    write = make(target, file, columns)

    def counted(row):
        if row["number"] == 300:
            file.write('"half of' + target.endswith("csv") * "\\n")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        write(row)

    return counted

row_files.row_writer = stop
sys.exit(main.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "ending",
    [*(pytest.param(x, marks=pytest.mark.slow) for x in ("csv", "tsv")), "jsonl"],
)
def test_killed_predict_resumes(micro, plain, source, ask, tmp_path, ending):
    """Rows that are appended to the input in between are answered, too."""
    target, longer = tmp_path / f"out.{ending}", tmp_path / "in.jsonl"
    rows = source.read_text().splitlines(keepends=True)
    longer.write_text("".join(rows[:350]))
    target.write_text("of before")
    args = (f"--config={micro}", f"--workdir={plain}", "--mode=predict", SMALL)
    files = (f"--input={longer}", f"--output={target}")
    killed = start(*args, *files, program=("-c", _KILLED))
    finish(killed, -signal.SIGKILL)
    assert target.read_text() == "of before"
    longer.write_text("".join(rows))
    said = ask(longer, target.name)
    assert f"{target}.part: 300 rows are answered; resuming\n" in said
    assert f"{longer}: {ROWS} rows answered\n" in said
    ask(source, f"whole.{ending}")
    assert target.read_bytes() == (tmp_path / f"whole.{ending}").read_bytes()
    assert sorted(x.name for x in tmp_path.glob("out*")) == [target.name]


@pytest.mark.slow
def test_part_that_is_cut_off_is_completed(
    source, ask, stop_after, tmp_path, undisturbed
):
    """As after a power failure, which may lose the latest writes."""
    stop_after(3 * WINDOW)
    said = ask(source, "out.jsonl", status=2)
    assert "out.jsonl.part: 384 rows are answered; the same command resumes" in said
    path = tmp_path / "out.jsonl.part"
    content = path.read_bytes()
    path.write_bytes(content[: content.rindex(b'"number": 380')])
    stop_after(1000)
    assert ".part: 380 rows are answered; resuming" in ask(source, "out.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == undisturbed


@pytest.mark.slow
def test_part_of_other_work_is_refused(
    source, plain, ask, stop_after, tmp_path, undisturbed
):
    stop_after(WINDOW)
    ask(source, "out.jsonl", status=2)
    stop_after(1000)
    part = tmp_path / "out.jsonl.part"
    rows = source.read_text().splitlines(keepends=True)
    other = tmp_path / "other.jsonl"
    other.write_text("".join([rows[1], rows[0], *rows[2:]]))
    said = ask(other, "out.jsonl", status=2)
    assert said.splitlines()[-1] == (
        f"error: {part}: holds 128 rows of other work, which differs in the input; "
        "delete it to start again, or name another --output"
    )
    said = ask(source, "out.jsonl", "--config.predict.top_k=2", status=2)
    why = "holds 128 rows of other work, which differs in config.predict.top_k; delete"
    assert f"error: {part}: {why}" in said
    weights = tmp_path / "weights"
    shutil.copytree(plain, weights)
    shutil.rmtree(weights / "checkpoints" / "20")  # those of an earlier step are left
    said = ask(source, "out.jsonl", status=2, workdir=weights)
    assert "rows of other work, which differs in the weights; delete" in said
    assert part.read_text().count("\n") == WINDOW  # and are there still
    source_of_part = source.read_text()
    source.write_text("".join(rows[:100]))
    said = ask(source, "out.jsonl", status=2)
    assert "error: --input: has 28 rows fewer than OUTPUT.part; delete that to" in said
    source.write_text(source_of_part)
    ask(source, "out.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == undisturbed


@pytest.mark.slow
def test_rows_that_follow_may_change(source, ask, tmp_path, undisturbed):
    """A wrong row is found late, corrected, and the rows before it are not lost."""
    rows = source.read_text().splitlines(keepends=True)
    wrong = tmp_path / "rows.jsonl"
    wrong.write_text("".join([*rows[:300], '{"txt": "a"}\n', *rows[301:]]))
    said = ask(wrong, "out.jsonl", status=2)
    assert f"error: {wrong}:301: " in said
    assert ".part: 128 rows are answered; the same command resumes" in said
    wrong.write_text("".join(rows))
    assert ".part: 128 rows are answered; resuming" in ask(wrong, "out.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == undisturbed


def test_part_without_answers_leaves_nothing(ask, tmp_path):
    (tmp_path / "in.jsonl").write_text("{}\n")
    ask(tmp_path / "in.jsonl", "out.jsonl", status=2)
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.slow
def test_ending_is_that_of_the_name(source, ask, stop_after, tmp_path):
    """Not of the file that a link of this name leads to."""
    (tmp_path / "answers").touch()
    (tmp_path / "out.csv").symlink_to(tmp_path / "answers")
    stop_after(WINDOW)
    ask(source, "out.csv", status=2)
    stop_after(1000)
    assert f".part: {WINDOW} rows are answered; resuming" in ask(source, "out.csv")
    ask(source, "whole.csv")
    whole = (tmp_path / "whole.csv").read_bytes()
    assert (tmp_path / "answers").read_bytes() == whole


def test_part_of_another_program_is_not_overwritten(source, ask, tmp_path):
    part = tmp_path / "out.jsonl.part"
    part.write_text("half a download")
    said = ask(source, "out.jsonl", status=2)
    assert f"error: {part}: not a part that --mode=predict left; move it away" in said
    assert part.read_text() == "half a download"


def test_damaged_record_of_a_part_is_one_line(source, ask, tmp_path):
    part = tmp_path / "out.jsonl.part"
    part.write_text('{"text": "a"}\n')
    part.with_name("out.jsonl.part.json").write_text('{"the inp')
    said = ask(source, "out.jsonl", status=2)
    assert said.count("\n") == 1 and f"error: {part}.json: not JSON" in said
    assert part.read_text() == '{"text": "a"}\n'


def test_part_is_written_by_one_process(source, ask, tmp_path):
    with (tmp_path / "out.jsonl.part").open("w") as part:
        fcntl.flock(part, fcntl.LOCK_EX)  # as another process would
        said = ask(source, "out.jsonl", status=2)
    assert "out.jsonl.part: another process writes it; wait for its end" in said
