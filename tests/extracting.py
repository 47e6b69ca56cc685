"""Texts, and --mode=extract of them."""

import json

import runs

TEXTS = ["the quick brown fox jumps", "a dog", "seven cats watch it go", "the", ""]
ROWS = [{"text": text} for text in TEXTS]
ROWS[1]["text_b"] = "while seven cats go"


def extract(plain, tmp_path, rows, *flags, name="out.jsonl", status=0):
    source, target = tmp_path / "in.jsonl", tmp_path / name
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, err = runs.here(
        *("--mode=extract", f"--workdir={plain}", f"--input={source}"),
        *(f"--output={target}", *flags),
        status=status,
    )
    if status:
        *notes, error = err.splitlines()
        assert error.startswith("error: "), err
        assert all(", but the run has " in note for note in notes)
        assert not target.exists()
        return error
    assert [path.name for path in tmp_path.iterdir() if path.name[0] == "."] == []
    return target
