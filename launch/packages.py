"""Prints the packages for pip and puts the repository on this Python's path.

    packages.py EXTRA,EXTRA

The extra `pretrain` is always among them: the first command of a clone pre-trains.
An editable installation would write into the repository, which may be read-only, and
fails if its path has characters that are special to pip.
"""

import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(extras: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    print(*project["dependencies"], sep="\n")
    for extra in filter(None, ["pretrain", *extras.split(",")]):
        print(*project["optional-dependencies"][extra], sep="\n")
    path = Path(sysconfig.get_path("purelib"), "bert_jax.pth")
    path.write_text(f"{ROOT}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
