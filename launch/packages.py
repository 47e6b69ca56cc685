"""What this repository needs of pip, and how Python finds it without being installed.

    packages.py list EXTRA,EXTRA   pyproject.toml's dependencies, a line each
    packages.py link               in this Python's site-packages, the repository's path

An installation "in place" would write into the repository, which may be read-only, and
fails where its path holds what pip or setuptools take for their own: `[1]`, `$x`.
"""

import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def needed(extras: str) -> list[str]:
    """The dependencies, those of the extras (`test,parity`) included.

    Raises:
      SystemExit: there is no such extra.
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
    """From now on this Python finds the repository's modules."""
    place = Path(sysconfig.get_path("purelib"), "bert_jax.pth")
    place.write_text(f"{ROOT}\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "list":
        print("\n".join(needed(sys.argv[2])))
    else:
        link()
