"""bert_jax/ROOM/MODULE.py is tested in tests/ROOM/MODULE_test.py.

Parts of a module may be in MODULE_SUBJECT_test.py, where one file would be too long or
needs another set-up. tests/whole/ has whole runs.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Modules without a file of their own: whole runs, peers or their neighbours' tests have
# them. A new module needs a file, and a line leaves when its module gets one.
NONE = {
    "": "__main__ describe errors export family types",
    "commands": "command_line plots report",
    "config": "command_line common_fields field recipes task_fields",
    "convert": "parameters tensors",
    "data": "atomic_folder writing",
    "estimator": "training",
    "families/albert": "fields layout model",
    "families/deberta_v3": "fields layout replaced",
    "families/distilbert": "layout model",
    "families/electra": "fields layout model",
    "families/elmo": "__main__ batches config extractor fields loading optimizer",
    "families/gpt": "fields",
    "families/modernbert": "fields rotary",
    "families/mpnet": "layout model",
    "models": "architectures config fused initial lstm positions stacking",
    "models/kernels": "choose on_mesh",
    "runtime": "failures terminal untrusted",
    "serving": "metrics",
    "tasks": "definition fill_mask sequences",
    "tasks/embeddings": "data losses",
    "tokenization": "tokenizer_json",
    "training": "profiling seeds setup",
}


def files(folder, ending):
    """Files of each room without their ending, packages' `__init__` left out."""
    root, rooms = ROOT / folder, {}
    for path in sorted(root.rglob(f"*{ending}")):
        if path.name != "__init__.py":
            room = path.parent.relative_to(root).as_posix()
            rooms.setdefault("" if room == "." else room, []).append(
                path.name.removesuffix(ending)
            )
    return rooms


def test_module_has_its_test_file():
    tests, missing = files("tests", "_test.py"), {}
    for room, names in files("bert_jax", ".py").items():
        own = tests.get(room, ())
        missing[room] = " ".join(name for name in names if name not in own)
    assert {room: names for room, names in missing.items() if names} == NONE


def test_test_file_names_its_module():
    tests = files("tests", "_test.py")
    assert [
        f"{room}/{name}"
        for room, names in files("bert_jax", ".py").items()
        for name in tests.get(room, ())
        if not any(f"{name}_".startswith(f"{module}_") for module in names)
    ] == []
