"""launch/packages.py: what has to be installed is what pyproject.toml says."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_what_is_needed_is_what_pyproject_says():
    def listed(extras):
        script = ROOT / "launch" / "packages.py"
        done = subprocess.run(
            [sys.executable, script, "list", extras], capture_output=True, text=True
        )
        return done.returncode, done.stdout.splitlines(), done.stderr

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert listed("") == (0, project["dependencies"], "")
    both = [*project["dependencies"], *extras["test"], *extras["gcs"]]
    assert listed("test,gcs") == (0, both, "")
    status, _, err = listed("tset")
    assert status == 1 and err.startswith("error: no extra 'tset'; there are gpu, ")
