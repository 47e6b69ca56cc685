"""The faults can be planted in the code as it is."""

import shutil

import pytest

from tests.forked import ROOT
from tests.system import planted_faults
from tests.system.planted_faults import FAULTS


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_fault_can_be_planted_once_and_compiles(fault, tmp_path):
    path = tmp_path / fault.file
    path.parent.mkdir(parents=True)
    shutil.copyfile(ROOT / fault.file, path)
    planted_faults.plant(fault, tmp_path)
    compile(path.read_text("utf-8"), fault.file, "exec")
    assert (ROOT / fault.first).exists()
    with pytest.raises(ValueError, match="0 x"):
        planted_faults.plant(fault, tmp_path)
