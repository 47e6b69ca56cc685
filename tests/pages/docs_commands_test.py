"""Every command, flag and field in README and docs/ is one that the program takes.

Commands are read from the pages and parsed by the program's own parsers, which then
stop: nothing is trained, no hardware is needed (./launch.sh tpu and what follows srun
are parsed too), and files such as /models/... need not exist. tests/documented.py lists
the programs that are not ours.
"""

import argparse
import functools
import importlib
import importlib.util
import inspect
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from bert_jax import commands
from bert_jax.config import command_line, configuration, fields, help
from bert_jax.config.configuration import check_config
from bert_jax.families.elmo import fields as elmo
from bert_jax.registry import FAMILIES
from tests import documented
from tests.documented import MODULES, OTHERS, OURS, PAGES, ROOT

COMMANDS = [command for page in PAGES for command in documented.commands(page)]
COMMANDS += [c for path in MODULES for c in documented.of_docstring(path)]
# Words that represent a value, where the value's type or its file matters.
EXAMPLES = {"TABLE": "table5", "N": "1", "X": "1", "FILE": "configs/tiny.py"}
NOT_PARSED = documented.STARTED[1:]  # they take no options
# Ends of files' names, such as train.csv.
NOT_FIELDS = {"py", "json", "jsonl", "csv", "tsv", "txt", "safetensors", "label"}


class _Parsed(BaseException):
    """Stops a command after its options: no handler of errors keeps it."""


def words_of(command):
    """Returns its words, with examples for placeholders, without `...` and the
    variables before the program."""
    words: list[str] = []
    for word in command.words:
        word = re.sub(r"^\[+(?=--)", "", word)  # [--option]
        word = word[: len(word) - max(0, word.count("]") - word.count("["))]
        name, equals, value = word.partition("=")
        if "..." in (word, value) or name.endswith(".FIELD"):
            continue
        if equals and not words and name.isupper():
            continue
        words.append(f"{name}{equals}{EXAMPLES.get(value, value)}" if equals else word)
    return [EXAMPLES.get(word, word) for word in words]


MAINS = ("bert_jax.main", "bert_jax.families.elmo")


@functools.cache
def every_field():
    """A config with the fields of every task."""
    known = fields.FIELDS | fields.TASK | elmo.FIELDS
    for family in FAMILIES.values():
        known = {**family.fields, **known}
    return fields.default_config(known)


def check_fields(overrides: Sequence[str]) -> None:
    """Applies each --config.FIELD=VALUE. Raises UserError if it cannot be."""
    for name, value in configuration.parse_overrides(overrides).items():
        config = every_field().copy_and_resolve_references()
        # Pre-training fields: packing, say, and steps instead of epochs.
        if name.startswith(("corpus.", "train.num_")):
            del config.task.max_seq_length
        configuration.set_field(config, name, value)
        check_config(config)


def check_main(words: Sequence[str], own: dict[str, str]) -> None:
    """Parses a command line of bert_jax.main and loads its config.

    Args:
      own: files that the pages show, by name, and where the test wrote them.
    """
    line = command_line.parse_flags(words)
    path, colon, rest = line.config.partition(":")
    spec = own.get(path.rpartition("/")[2], path) + colon + rest
    if line.help:
        assert help.help_text(spec)
    elif spec:
        configuration.load_config(spec, line.overrides)
    else:
        check_fields(line.overrides)
    named = [configuration.field_of(text) for text in line.overrides]
    if (
        line.mode in command_line.INFERENCE_MODES
        and not spec
        and "init_from" not in named
    ):
        known = fields.FIELDS | fields.TASK
        assert all(known[name].may_differ for name in named)
    if line.mode == "export":
        assert line.output != "-"


def options_of(module: str, words: Sequence[str], monkeypatch):
    """Stops a command at its parser. Returns the options and the rest."""
    found = []
    parse = argparse.ArgumentParser.parse_known_args

    def stop(self, args=None, namespace=None):
        found[:] = parse(self, args, namespace)
        raise _Parsed

    program = pytest.importorskip(module, exc_type=ModuleNotFoundError)
    if hasattr(program, "__path__"):  # experiments.paper
        program = importlib.import_module(f"{module}.__main__")
    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_known_args", stop)
        patch.setattr(sys, "argv", [module, *words])
        with pytest.raises(_Parsed):
            takes = inspect.signature(program.main).parameters
            program.main(*([list(words)] if takes else ()))
    return found


def check_program(module: str, words: Sequence[str], monkeypatch) -> None:
    """Parses a program's options, and the config's fields among them."""
    if not words or module in NOT_PARSED:  # only named
        assert importlib.util.find_spec(module)
        return
    if module == "experiments.pages.config_page":
        raise AssertionError("it takes no options")
    if words == ["--help"]:
        return
    options, rest = options_of(module, words, monkeypatch)
    if module == "bert_jax.commands.cross_validate":
        _, _, *given = rest
        known = [text for text in given if not text.startswith(("recipe=", "model="))]
        check_fields([f"--config.{text}" for text in known])
        return
    for text in getattr(options, "grid", None) or ():
        field, _, values = text.partition("=")
        if options.trials:
            values = values.replace("..", ",")  # the ends of a range
        check_fields([f"--config.{field}={value}" for value in values.split(",")])
    own = ("--config.", "--finetuning.")
    unknown = [word for word in rest if not word.startswith(own)]
    assert not unknown, f"{unknown}: no such option"
    check_fields([word.replace(own[1], own[0], 1) for word in rest])


def check_launch(words: Sequence[str], own: dict[str, str]) -> None:
    """The command line of ./launch.sh."""
    first, *rest = words or ["--config=configs/tiny.py"]
    if first == "tpu":
        assert "--" in rest, rest
        rest = rest[rest.index("--") + 1 :]
    elif first == "local":
        assert rest[0].isdecimal() and "--" in rest, rest
        rest = rest[rest.index("--") + 1 :]
    elif first == "test":
        paths = [word for word in rest if not word.startswith("-")]
        assert all((ROOT / path).exists() for path in paths)
        assert {*rest} - {*paths} <= {"--all"}
        return
    else:
        assert first.startswith("--config"), first
        rest = words
    if rest:
        check_main(rest, own)


def read(path: str) -> str:
    return Path(path).read_text("utf-8")


@pytest.fixture(scope="module")
def shown_files(tmp_path_factory):
    """The config files that README and docs show, by name."""
    folder, found = tmp_path_factory.mktemp("shown"), {}
    for page in PAGES:
        for name, text in documented.files(page).items():
            (folder / name).write_text(text)
            found[name] = str(folder / name)
    return found


@pytest.fixture
def own_files(shown_files, monkeypatch):
    """Those files. Their registry entries go with the test."""
    monkeypatch.chdir(ROOT)
    return shown_files


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.where)
def test_command_is_one_that_the_program_takes(command, own_files, monkeypatch):
    program, *words = words_of(command)
    if program in OTHERS:
        return
    assert program in OURS, f"{program}: is it one of documented.OTHERS?"
    if program == "./launch.sh":
        check_launch(words, own_files)
    elif program == "python" and words[0].startswith("examples/"):
        assert (ROOT / words[0]).is_file()  # datatrove is not here to parse the rest
    elif program == "python":
        flag, module, *rest = words
        assert flag == "-m"
        if module == "bert_jax":
            assert rest[0] in commands.NAMES
            module = f"bert_jax.commands.{rest.pop(0).replace('-', '_')}"
        if module in MAINS and rest:
            check_main(rest, own_files)
        elif module not in MAINS:
            check_program(module, rest, monkeypatch)
    else:
        check_pip(words)


def check_pip(words: Sequence[str]) -> None:
    """The extras that are named are in pyproject.toml."""
    assert words[0] in ("install", "download")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for word in words[1:]:
        if named := re.fullmatch(r"\.\[([\w,]+)\]", word):
            assert {*named[1].split(",")} <= {*project["optional-dependencies"]}, word


def test_files_that_pages_show_load(own_files):
    configs = [path for path in own_files.values() if "extends" in read(path)]
    assert len(configs) >= 6
    for path in configs:
        configuration.load_config(path, [])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_field_in_the_text_exists(page):
    elmo.register()
    known = {name for name, _ in fields.iter_fields(every_field())}
    tops = {name.partition(".")[0] for name in known if "." in name}
    given = re.compile(rf"(?:--config\.)?((?:{'|'.join(tops)})\.(\w+))(=[^=]+)?")
    for _, span in documented.inline(page.read_text("utf-8")):
        for name in re.findall(r"--(?:config|finetuning)\.([\w.]+)", span):
            assert name in known or name.startswith("FIELD"), span
        field = given.fullmatch(span)
        if not field or field[2] in NOT_FIELDS:
            continue
        assert field[1] in known, span
        if field[3] and not re.search(r"[A-Z]$|\.\.\.", field[3]):
            check_fields([f"--config.{field[1]}{field[3]}"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_path_in_the_text_exists(page):
    places = re.compile(r"(?:bert_jax|configs|docs|experiments|launch|tests)/[\w./-]*")
    for _, span in documented.inline(page.read_text("utf-8")):
        if found := places.fullmatch(span.partition(":")[0]):
            assert (ROOT / found[0]).exists(), span
