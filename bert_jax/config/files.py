"""Config files.

A config file defines `get_config()`, which returns a ConfigDict, or `extends = "base"`
(a name in configs/ or a path next to the file, with arguments if it takes any) and
`get_config(config)`, which changes the config it is given. Arguments after a colon
(`glue.py:task=mnli,recipe=large`) are passed to `get_config` by name. A custom task
adds fields: `config.task.gamma = 2.0`, or `Field(2.0, "[0, 5]")` with the allowed
values (bert_jax/config/field.py).
"""

import ast
import contextlib
import difflib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextvars import ContextVar
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict

from bert_jax.config import fields
from bert_jax.config.field import Field
from bert_jax.errors import UserError
from bert_jax.registry import IMPORT_PATH

_PACKAGE = Path(__file__).resolve().parents[1]
# In a wheel they are data of the package.
CONFIGS = _PACKAGE / "configs"
if not CONFIGS.is_dir():
    CONFIGS = _PACKAGE.parent / "configs"
# Packages whose code a run's record leaves out: their version is that of the software.
_OURS = {"bert_jax", *sys.stdlib_module_names}
_INSTALLED = {"site-packages", "dist-packages"}
_LOADED: dict[Path, list[Path]] = {}  # by each config file, when it last ran
_loading: ContextVar[list[Path]] = ContextVar("files that the present one has loaded")


def config_name(spec: str) -> str:
    """Returns the config's name, which names the default work directory."""
    path, _, arguments = spec.partition(":")
    parts = [part.partition("=")[2] or part for part in arguments.split(",") if part]
    return "-".join([Path(path).stem, *parts])


def path_of(spec: str) -> Path:
    """Returns the config file of a spec: its path, or configs/NAME.py for NAME. A path
    that starts with configs/ is found from any folder, unless it is there too."""
    path = Path(spec.partition(":")[0])
    name = path.as_posix().removeprefix("configs/").removesuffix(".py")
    packaged = CONFIGS / f"{name}.py"
    return packaged if packaged.is_file() and not path.is_file() else path


def load_file(spec: str) -> ConfigDict:
    """Returns the config of a file, not checked.

    Args:
      spec: `path/to/file.py` or `path/to/file.py:name=value,...`. NAME alone means
        configs/NAME.py.

    Raises:
      UserError: the file is missing or fails.
    """
    path = path_of(spec)
    if not path.is_file():
        there = [*CONFIGS.rglob("*.py"), *path.parent.glob("*.py")]
        named = {file.stem: file for file in there}
        like = difflib.get_close_matches(path.stem, named, 1)
        meant = f"; did you mean {os.path.relpath(named[like[0]])}?" if like else ""
        raise UserError(f"--config={spec}: no file {path}{meant}")
    arguments = {}
    for part in filter(None, spec.partition(":")[2].split(",")):
        key, equals, arguments[key] = part.partition("=")
        if not equals:
            raise UserError(f"--config={spec}: {part!r} is not of the form name=value")
    with _running(path):
        base = _find_extended(path)
        # Loaded first: what a file adds to a registry replaces what its base added.
        args = [] if base is None else [load_file(_find(base, path))]
        module = _execute(path)
        if "get_config" not in module:
            raise UserError(f"{path}: defines no get_config, which returns the config")
        function = module["get_config"]
        taken = inspect.getfullargspec(function)
        parameters = (taken.args + taken.kwonlyargs)[len(args) :]
        unknown = sorted({*arguments} - {*parameters})
        if unknown:
            raise UserError(
                f"--config={spec}: unknown argument {unknown[0]!r}; it takes "
                f"{', '.join(parameters) or 'none'}"
            )
        config = function(*args, **arguments)
        config = args[0] if config is None and args else config
    if not isinstance(config, ConfigDict):
        raise UserError(f"{path}: get_config must return a ConfigDict")
    own = {n: x for n, x in fields.iter_fields(config.unlock()) if isinstance(x, Field)}
    fields.OWN.update(own)
    with config.ignore_type():
        config.update_from_flattened_dict({n: own[n].default for n in own})
    return config


def run_file(path: Path) -> dict[str, Any]:
    """Runs a config file, and returns what it defines.

    Raises:
      UserError: it fails.
    """
    with _running(path):
        return _execute(path)


def _find_extended(path: Path) -> str | None:
    """Returns the file that a config file extends, as it names it, or None.

    Raises:
      UserError: The name is no text in quotes.
    """
    for statement in ast.parse(path.read_bytes(), str(path)).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="extends")], value=value):
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    return value.value
                raise UserError(f"{path}: extends must be a file's name in quotes")
    return None


def _execute(path: Path) -> dict[str, Any]:
    folder = str(path.resolve().parent)
    if folder not in sys.path and not path.resolve().is_relative_to(CONFIGS):
        sys.path.append(folder)  # modules beside the file
    # Dataclasses look for their module, whose name hides no module here.
    module = ModuleType(f"config {path.stem}")
    sys.modules[module.__name__], module.__file__ = module, str(path)
    # Not `import`: its cache misses an edit of the same size in the same second.
    exec(compile(path.read_bytes(), path, "exec"), vars(module))
    return vars(module)


@contextlib.contextmanager
def _running(path: Path) -> Iterator[None]:
    """Keeps the files that a config file loads in this context, for `read_code`.

    Raises:
      UserError: the file's code fails.
    """
    _loading.get([]).append(path.resolve())
    loaded: list[Path] = []
    token = _loading.set(loaded)
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    # The file is the user's code: it may raise anything, SystemExit too.
    except BaseException as error:
        raise _config_error(path, error) from error
    finally:
        _loading.reset(token)
        _LOADED[path.resolve()] = loaded


def read_code(spec: str) -> dict[str, bytes]:
    """Returns what a config file, which has run, consists of: its text, that of the
    files that it extends or loads, and of the modules that these import, directly or
    not.

    Modules that are installed, Python's and this software's are left out. An import
    counts where it is a statement, also in a function, or a registry's MODULE:NAME.

    Returns:
      Each file's content, by a path that does not depend on the machine.
    """
    top = path_of(spec).resolve()
    left, found = [(top, "")], dict[Path, tuple[str, bytes]]()
    while left:
        path, module = left.pop(0)
        if path in found or _INSTALLED & {*path.parts}:
            continue
        is_package = path.stem == "__init__"
        if module:
            name = f"{module.replace('.', '/')}{'/__init__' * is_package}.py"
        elif path.is_relative_to(CONFIGS):
            name = f"configs/{path.relative_to(CONFIGS).as_posix()}"
        else:
            name = Path(os.path.relpath(path, top.parent)).as_posix()
        content = path.read_bytes()
        found[path] = (name.replace("../", "up/"), content)
        if not module:
            left += [(loaded, "") for loaded in _LOADED.get(path, ())]
        package = module if is_package else module.rpartition(".")[0]
        for imported in _find_imports(content, package):
            origin = getattr(_module(imported), "origin", None) or ""
            if origin.endswith(".py"):
                left.append((Path(origin).resolve(), imported))
    return dict(sorted(found.values()))


def _find_imports(content: bytes, package: str) -> Iterator[str]:
    """Yields the modules that a text may import, each after the packages that it is
    in."""
    for node in ast.walk(ast.parse(content)):
        names: list[str] = []
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom():
                base = "." * node.level + (node.module or "")
                base = importlib.util.resolve_name(base, package)
                names = [f"{base}.{alias.name}" for alias in node.names]
            case ast.Constant(value=str() as text):
                names = [x[1] for x in [IMPORT_PATH.fullmatch(text)] if x]
        for name in names:
            parts = name.split(".")
            if parts[0] not in _OURS:
                yield from (".".join(parts[:n]) for n in range(1, len(parts) + 1))


def _module(name: str) -> ModuleSpec | None:
    """Finds a module, which may not exist. Imports nothing."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__spec__", None)
    parent = name.rpartition(".")[0]
    if not parent:
        return importlib.util.find_spec(name)
    package = _module(parent)
    where = package and package.submodule_search_locations
    return PathFinder.find_spec(name, where) if where else None


def _find(base: str, path: Path) -> str:
    """Returns the spec that `extends` names: a file next to `path` or in configs/."""
    name, colon, arguments = base.partition(":")
    file = Path(name if name.endswith(".py") else f"{name}.py")
    for folder in (path.parent, CONFIGS):
        found = folder / file
        if found.is_file() and found.resolve() != path.resolve():
            return f"{found}{colon}{arguments}"
    raise UserError(f"{path}: extends={name!r}: no such file beside it or in configs/")


def _config_error(path: Path, error: BaseException) -> UserError:
    """Returns the error for a config file whose code raised one."""
    if isinstance(error, SyntaxError):
        file = os.path.relpath(error.filename or path)
        said = f"{type(error).__name__}: {error.msg}"  # or an IndentationError
        return UserError(f"{file}:{error.lineno or 1}: {said}")
    frames, here = traceback.extract_tb(error.__traceback__), path.resolve()
    lines = [f.lineno for f in frames if Path(f.filename).resolve() == here] or [1]
    # A ConfigDict lists all its fields before it names the one that is meant.
    text = re.sub('Other fields present: .*}"?', "", str(error).replace("\\n", " "))
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return UserError(f"{path}:{lines[-1]}: {kind}{' '.join(text.split())}")
