"""The faults can be planted in the code as it is now."""

import shutil

import pytest

from tests.forked import ROOT
from tests.system import planted_faults
from tests.system.planted_faults import FAULTS


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_fault_changes_one_place_and_is_still_code(fault, tmp_path):
    path = tmp_path / fault.file
    path.parent.mkdir(parents=True)
    shutil.copyfile(ROOT / fault.file, path)
    planted_faults.plant(fault, tmp_path)
    text = path.read_text("utf-8")
    assert text != (ROOT / fault.file).read_text("utf-8")
    compile(text, fault.file, "exec")
    assert (ROOT / fault.first).exists()
    with pytest.raises(ValueError, match="0 x"):
        planted_faults.plant(fault._replace(right="no such text"), tmp_path)


def test_a_copy_leaves_out_what_runs_have_left():
    names = ["bert_jax", "data", "runs", ".git", ".venv.all", "README.md"]
    found = planted_faults._left_out(str(ROOT), names)
    assert set(names) - found == {"bert_jax", "README.md"}
    found = planted_faults._left_out(str(ROOT / "bert_jax"), ["data", "__pycache__"])
    assert found == {"__pycache__"}
