"""Documentation strings: real English that every Python installation has.

The text is the docstrings of the standard library and of this project's dependencies.
Each module is one document.
"""

import ast
import contextlib
import gc
import inspect
import json
import os
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from bert_jax.data import atomic_folder, workers
from bert_jax.runtime import storage

# The distributions of an install with the extra `pretrain` only, so that a test tool
# does not change the corpus. A distribution that is not installed is left out.
_DISTRIBUTIONS = """
    absl-py aiofiles anyio array_record attrs certifi charset-normalizer click
    cloudpickle dm-tree docstring_parser etils filelock flax fsspec
    googleapis-common-protos grain h11 hf-xet httpcore2 httpx2 huggingface_hub
    humanize idna immutabledict importlib_resources jax jaxlib jaxtyping
    markdown-it-py ml_collections ml_dtypes msgpack numpy opt_einsum optax
    orbax-checkpoint packaging portpicker prometheus_client promise protobuf psutil
    pyarrow Pygments PyYAML requests rich safetensors scipy simple-parsing
    simplejson six tensorboardX tensorflow-datasets tensorflow-metadata tensorstore
    termcolor tokenizers toml tqdm treescope truststore typing_extensions urllib3
    uvloop wadler_lindig wrapt
"""
FORMAT = 1  # raise it when the extraction below changes
_FILES_A_TASK = 64
_NOT_READ = {"test", "tests", "idle_test", "lib2to3", "site-packages"}
# Lines that underline a heading or rule a table.
_RULE = re.compile(r"[-=~+^*#\s]+$")

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def pydocs_versions() -> list[Any]:
    """Returns the versions that decide the extracted text."""
    return [FORMAT, platform.python_version(), sorted(_versions().items())]


def extract_docstrings(data_dir: storage.Path) -> storage.Path:
    """Returns a file of JSON lines with `module` and `text`, made if missing."""
    path = (
        data_dir / f"pydocs-{atomic_folder.folder_fingerprint(pydocs_versions())}.jsonl"
    )
    if path.exists():
        return path
    files = list(_files())
    tasks = [files[i : i + _FILES_A_TASK] for i in range(0, len(files), _FILES_A_TASK)]
    storage.make_folder(data_dir)
    with storage.replace_file(path) as file:
        file.writelines(workers.ordered_map(_read_files, None, tasks))
    return path


def _versions() -> dict[str, str]:
    versions = {}
    for name in _DISTRIBUTIONS.split():
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _files() -> Iterator[tuple[str, str]]:
    """Yields (name for the record, path) of each Python file."""
    library = Path(sysconfig.get_path("stdlib"))
    for folder, folders, names in os.walk(library):
        folders[:] = sorted(set(folders) - _NOT_READ)
        for path in (Path(folder, name) for name in sorted(names)):
            if _is_read(path.relative_to(library)):
                yield path.relative_to(library).as_posix(), str(path)
    for name in _versions():
        for file in sorted(metadata.files(name) or []):
            if _is_read(Path(file)):
                yield file.as_posix(), str(file.locate())


def _is_read(path: Path) -> bool:
    tests = path.name.startswith("test_") or path.name.endswith("_test.py")
    return path.suffix == ".py" and not tests and not _NOT_READ & set(path.parts)


def _read_files(_: None, files: list[tuple[str, str]]) -> str:
    """Returns, in a worker, JSON lines of the files that have docstrings."""
    rows = []
    gc.disable()  # syntax trees have no cycles, collecting doubles the time
    with warnings.catch_warnings(action="ignore"):  # invalid escapes in others' code
        for name, path in files:
            # Templates, and code for other versions of Python, cannot be parsed.
            with contextlib.suppress(SyntaxError, ValueError):
                if text := module_docstrings(ast.parse(Path(path).read_bytes())):
                    rows.append(json.dumps({"module": name, "text": text}) + "\n")
    gc.enable()
    return "".join(rows)


def module_docstrings(tree: ast.Module) -> str:
    """Returns a module's docstrings in source order, without code and rules."""
    return "\n\n".join(filter(None, map(clean_docstring, _docstrings(tree))))


def _docstrings(node: ast.AST) -> Iterator[str]:
    if isinstance(node, _Documented):
        yield ast.get_docstring(node, clean=False) or ""
    # Definitions also occur inside `if` and `try`, never inside expressions.
    for name in ("body", "handlers", "orelse", "finalbody"):
        for child in getattr(node, name, ()):
            yield from _docstrings(child)


def clean_docstring(docstring: str) -> str:
    """Returns a docstring without indentation, doctests (with output) and rules."""
    paragraphs = []
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        lines = []
        for line in paragraph.split("\n"):
            if line.lstrip().startswith(">>>"):
                break  # the rest of the paragraph is code and its output
            if not _RULE.match(line):
                lines.append(line.strip())
        paragraphs.append("\n".join(lines))
    return "\n\n".join(filter(None, paragraphs))
