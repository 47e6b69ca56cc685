"""Model folders drawn at random, as `transformers` would have saved them."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
from safetensors.numpy import load_file, save_file

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@pytest.fixture(scope="session")
def golden() -> ModuleType:
    """tests/golden/make_transformers.py, with its output as CASES and ARRAYS."""
    path = GOLDEN / "make_transformers.py"
    spec = importlib.util.spec_from_file_location("make_transformers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.CASES = json.loads((GOLDEN / "transformers.json").read_text())["cases"]
    module.ARRAYS = load_file(GOLDEN / "transformers.safetensors")
    return module


@pytest.fixture(scope="session")
def write_folder(golden):
    """Writes a case of `golden` as a model folder, which is new."""

    def write(folder, case, fields=None, change=None):
        folder.mkdir()
        stored = golden.CASES[case]
        config = {**stored["config"], **(fields or {})}
        tensors = golden.random_tensors(stored["shapes"], seed=0)
        if change is not None:
            tensors = change(tensors) or tensors
        (folder / "config.json").write_text(json.dumps(config))
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        pieces += [chr(ord("a") + n) for n in range(26)]
        pieces += [f"##{chr(ord('a') + n)}" for n in range(config["vocab_size"] - 31)]
        (folder / "vocab.txt").write_text("".join(f"{p}\n" for p in pieces))
        return folder

    return write


@pytest.fixture
def make_folder(write_folder, tmp_path):
    """Writes a folder as `write_folder` does, in any temporary location."""

    def make(case="BertForPreTraining-three_heads", fields=None, change=None):
        folder = tmp_path / f"folder_{len(list(tmp_path.iterdir()))}"
        return write_folder(folder, case, fields, change)

    return make
