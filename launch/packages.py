"""Lists the dependencies for pip, and puts the repository on Python's path.

    packages.py list EXTRA,EXTRA   pyproject.toml's dependencies, one per line
    packages.py link               adds the repository to this Python's site-packages

An editable installation would write into the repository, which may be read-only, and
fails if its path has characters special to pip or setuptools: `[1]`, `$x`.
"""

import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def needed(extras: str) -> list[str]:
    """The dependencies, those of the extras (`test,parity`) included.

    Raises:
      SystemExit: an extra does not exist.
    """
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    found = list(project["dependencies"])
    optional = project["optional-dependencies"]
    for extra in filter(None, extras.split(",")):
        if extra not in optional:
            sys.exit(f"error: no extra {extra!r}; there are {', '.join(optional)}")
        found += optional[extra]
    return found


def link() -> None:
    """Makes this Python find the repository's modules from now on."""
    place = Path(sysconfig.get_path("purelib"), "bert_jax.pth")
    place.write_text(f"{ROOT}\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "list":
        print("\n".join(needed(sys.argv[2])))
    else:
        link()
