"""How a program reads its arguments, and how it ends: a status, or a line of error."""

import argparse
import functools
import importlib.util
import re
import signal
import sys
from collections.abc import Callable, Collection, Container, Sequence
from pathlib import Path
from typing import Any, NoReturn

from absl import logging as absl_logging

from bert_jax.config import configuration
from bert_jax.errors import Interrupted, UserError, escape_controls
from bert_jax.runtime import environment, failures


class _Help(
    argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter
):
    """A formatter that keeps a description as it is and prints an option's default."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, "", [], False, 0):
            return action.help
        return super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line, as the rest of the project does.

    Args:
      prog: Words after `python -m`: a module's name, or `bert_jax NAME`.
      description: Docstring of the module. Its examples are first in --help.
    """

    def __init__(self, prog: str, description: str | None) -> None:
        # In the docstring a backslash joins a command's lines. Here they are apart.
        parted = re.sub(r"(\S) {2,}(?=\S)", "\\1 \\\\\n        ", description or "")
        super().__init__(
            f"python -m {prog}",
            description=parted,
            formatter_class=_Help,
            allow_abbrev=False,
        )

    def add_run_options(self, output: str) -> None:
        """Adds --output, whose default is given, and --plan."""
        self.add_argument("--output", default=output, type=Path, help="a folder")
        self.add_argument("--plan", action="store_true", help="show it, run nothing")

    # Untyped: argparse's own has three overloads.
    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def, override]
        found, rest = super().parse_known_args(args, namespace)
        output = str(getattr(found, "output", None))
        if output.partition("/")[0].endswith(":"):  # a folder of this name, to Path
            raise UserError(f"--output={output}: a bucket; name a local place")
        return found, rest

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see --help")


def several(kind: type, of: Collection[Any] = (), empty: bool = False) -> Any:
    """Returns the type of an option that takes values between commas, at least one.

    Args:
      of: Values that exist. Empty means any.
      empty: Whether the option may have none.
    """

    def values(text: str) -> list[Any]:
        found = [kind(part) for part in text.split(",") if part]
        if not (found or empty) or len(set(found)) < len(found):
            raise argparse.ArgumentTypeError(
                f"{text!r} names {'a value twice' if found else 'none'}; write A,B,..."
            )
        if of and (wrong := [value for value in found if value not in of]):
            raise argparse.ArgumentTypeError(
                f"{wrong[0]!r} is none of {', '.join(map(str, of))}"
            )
        return found

    values.__name__ = f"list of {kind.__name__}"
    return values


def check_counts(options: argparse.Namespace, *names: str) -> None:
    """Raises UserError where an option is not from 1 to 10,000.

    More repetitions would fill the memory before the work begins.
    """
    for name in names:
        if not 1 <= (value := getattr(options, name)) <= 10_000:
            raise UserError(f"--{name}={value}: must be from 1 to 10,000")


def require(module: str, extra: str, what: str) -> None:
    """Raises UserError where a module of an extra is not installed.

    Args:
      what: Text that names the user of the module and its name: "the plots need
        matplotlib".
    """
    if importlib.util.find_spec(module) is None:
        raise UserError(f"{what}: pip install '.[{extra}]'")


def with_fields(
    parser: Parser, argv: Sequence[str], taken: Container[str] = ()
) -> tuple[argparse.Namespace, list[str]]:
    """Reads the options, and --config.FIELD=VALUE.

    Args:
      taken: Fields that the program sets itself.

    Raises:
      UserError: An option does not exist, or a field is one of `taken`.
    """
    options, fields = parser.parse_known_args(argv)
    for text in fields:
        if not text.startswith("--config.") or "=" not in text:
            raise UserError(f"{text}: no such option; --config.FIELD=VALUE is passed")
        if (name := configuration.field_of(text)) in taken:
            raise UserError(f"{text}: {name} is set here; see --help")
    return options, fields


def command(main: Callable[[Sequence[str]], int]) -> Callable[[Sequence[str]], int]:
    """Returns a command's `main`, whose errors that the user can fix become a line.

    Raises (when it is called):
      Exception: The user did not cause it.
    """

    @functools.wraps(main)
    def run(argv: Sequence[str]) -> int:
        try:
            return main(argv)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            return 130
        except Interrupted as interrupted:
            return 128 + interrupted.signal_number
        except BrokenPipeError:  # nobody reads standard output
            return 128 + signal.SIGPIPE
        except Exception as error:  # raised again if not the user's
            found, text = failures.describe_failure(error)
            if found is None:
                raise
            print(
                f"error: {escape_controls(' '.join(text.splitlines()))}",
                file=sys.stderr,
            )
            return found

    return run


def start(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Ends this process with the status of a command's `main`."""
    sys.exit(main(sys.argv[1:]))


def compute() -> None:
    """Sets up JAX and logging for a command that computes in its own process."""
    absl_logging.set_verbosity(absl_logging.FATAL)  # Orbax's messages are noise
    environment.keep_programs()
