"""Command lines, outputs, names, config programs and surroundings that are wrong."""

import os
from pathlib import Path

from tests.system import malformed_values as values
from tests.system.cases import OUTPUTS, Case, Draw, begin

_FLAGS = ("config", "workdir", "mode", "input", "output")
_WRONG = """
--config..seed=1 --config.=1 --config.train=1 --config.seed.x=1 --config.seed train --=
-- - --mode --mode= --mode=Train --configs.seed=1 --config= --config=nowhere.py
--config=in --config=in/micro.py:x=1 --config.train.__class__=1 --config.keys=1
--undefok=workdri --workdri=x --flagfile=nowhere --flagfile=in --help -h --helpfull
--version --seed=1 --config.seed=1=2 --config[seed]=1 -c ---x=1
"""
_NO_UTF8 = os.fsdecode(b"\xff\xfe")
_NAMES = (
    *(f"a{_NO_UTF8}b", "a b", "a\nb", "日本", "a" * 200, "[1]", "$x", "~", "*", "{x}"),
    *("-a", "a=b", "a:b", "a,b", "%s", "\\", "'", "\x1b[2J", "\u202e", "a."),
)


def untouched(draw: Draw) -> Case:
    """Nothing is wrong."""
    case = begin(draw, "nothing wrong")
    case.told, case.accepted = f"{case.task}, {case.stage}, {case.mode}", True
    return case


def unknown_flag(draw: Draw) -> Case:
    """Flags that there are not, and flags as nobody can mean them."""
    case = begin(draw, "command line")
    name = draw.rng.choice(_FLAGS)
    wrong = values.mistyped(name, draw.rng)
    forms = [
        *(
            f"--{wrong}=x",
            f"-{wrong}=x",
            f"--{wrong}",
            f"--no{name}",
            f"--mode={wrong}",
        ),
        *(f"--config-{name}=1", f"--{name.upper()}=x", f"--config.{name}=x"),
        *(f"--config.seed={name}", "--config=in/micro.py:x", "", " ", "\ud800", "--\n"),
        *_WRONG.split(),
    ]
    flag = draw.rng.choice(forms)
    case.flags.insert(draw.rng.randrange(len(case.flags) + 1), flag)
    if draw.rng.random() < 0.05:
        case.flags.insert(0, f"--undefok={wrong}")
    case.told, case.refused = repr(flag), True
    if flag == "--":  # what follows it would be no flag
        case.flags.remove(flag)
        case.flags.append(flag)
        case.told, case.refused = "'--' at the end", False
    return case


def repeated_flag(draw: Draw) -> Case:
    """A flag that stands twice, or has no value, or an endless one."""
    case = begin(draw, "repeated flag")
    flag = draw.rng.choice(case.flags)
    name = flag.partition("=")[0]
    how = draw.rng.choice(["twice", "other", "empty", "long", "no value"])
    other = {
        "twice": flag,
        "other": f"{name}=other",
        "empty": f"{name}=",
        "no value": name,
    }
    case.flags.append(other.get(how, f"{name}={values.LONG}"))
    if name == "--output":
        case.output = case.flags[-1].partition("=")[2]
    # Two configs are one too many; an input that is not there cannot be read.
    case.refused = name == "--config" or (name == "--input" and how != "twice")
    case.refused |= (
        name == "--workdir"
        and how in ("other", "long")
        and (case.stage == "run" and case.mode not in ("train", "describe"))
    )
    case.told = f"{name}: {how}"
    return case


def output(draw: Draw) -> Case:
    """What --output names is a pipe, a link, a folder, or nothing that can be."""
    case = begin(draw, "output", modes=tuple(OUTPUTS))
    is_folder = case.mode == "export"
    place = case.folder / "out" / "it"
    ways = [
        "link to file",
        "link to nothing",
        "link to folder",
        "folder",
        "file",
        "long",
    ]
    ways += [
        "no folder",
        "pipe",
        "full folder",
        "slash",
        "below a file",
        "empty",
        "here",
    ]
    ways += [
        "link to itself",
        "link chain",
        "an input",
        "/",
        "NUL",
        "the work directory",
    ]
    how = draw.rng.choice(ways)
    value = "out/it"
    good = False
    if how == "link to file":
        (case.folder / "out" / "real").write_text("before\n")
        place.symlink_to("real")
        good = not is_folder
    elif how == "link to nothing":
        place.symlink_to("nowhere")
    elif how == "link chain":
        place.symlink_to("second")
        (case.folder / "out" / "second").symlink_to("real")
        (case.folder / "out" / "real").write_text("before\n")
        good = not is_folder
    elif how == "link to folder":
        (case.folder / "out" / "real").mkdir()
        place.symlink_to("real")
    elif how == "link to itself":
        place.symlink_to("it")
    elif how in ("folder", "full folder"):
        place.mkdir()
        good = is_folder and how == "folder"
        if how == "full folder":
            (place / "mine.txt").write_text("mine")
    elif how == "file":
        place.write_text("before\n")
        good = not is_folder
    elif how == "pipe":
        os.mkfifo(place)
        good = case.is_stream = not is_folder
    else:
        value = {
            **{
                "no folder": "out/no/it",
                "slash": "out/it/",
                "below a file": "in/micro.py/x",
            },
            **{"empty": "", "here": ".", "/": "/", "NUL": "a\0b", "long": values.LONG},
            **{"an input": "in/rows.jsonl", "the work directory": "run"},
        }[how]
        if how == "an input" and not is_folder:
            value = "out/rows.jsonl"
            os.rename(case.folder / "in" / "rows.jsonl", case.folder / value)
            case.flags = [x.replace("in/rows", "out/rows") for x in case.flags]
    case.set_flag("output", value)
    case.told, case.accepted = how, good
    never = ("full folder", "below a file", "/", "long", "link to itself", "NUL")
    case.refused = how in never or (not is_folder and how in ("folder", "slash"))
    case.refused |= is_folder and how in ("file", "pipe", "link to file")
    return case


def names(draw: Draw) -> Case:
    """Names of files and folders that are unusual, and right."""
    case = begin(draw, "file names")
    name = draw.rng.choice(_NAMES)
    which = draw.rng.choice(["workdir", "output", "input", "vocab_file", "data_dir"])
    case.told = f"{which} {name!r:.30}"
    if which == "workdir":
        if (case.folder / "run").exists():
            os.rename(case.folder / "run", case.folder / name)
        case.set_flag("workdir", f"./{name}")
    elif which == "output" and case.output:
        case.set_flag("output", f"out/{name}")
    elif which == "input" and case.mode == "predict":
        os.rename(case.folder / "in/rows.jsonl", case.folder / "in" / name)
        case.set_flag("input", f"in/{name}")
    elif which == "vocab_file" and case.uses_config() and case.stage != "model":
        there = [
            p
            for p in ("vocab.txt", "tokenizer.json")
            if (case.folder / "in" / p).exists()
        ]
        path = case.folder / "in" / there[0]
        path.rename(path.with_name(name + path.suffix))
        flag = f"--config.tokenizer.vocab_file=in/{name}{path.suffix}"
        case.flags.append(flag)
    else:
        case.flags.append(f"--config.corpus.data_dir={name}")
    return case


_CHANGE = "extends = 'tiny'\ndef get_config(c): "
# Parts of programs, a line each, `\n` for a line's end.
_WHOLE = r"""
get_config = 1
def get_config(): pass
def get_config(c): return 1
def get_config(x): return {}
def get_config(): return get_config()
import nothing_of_that_name
import sys; sys.exit('gone')
1 / 0
raise SystemExit
raise SystemExit(0)
raise KeyboardInterrupt
raise RecursionError
raise MemoryError
raise StopIteration
raise GeneratorExit
raise BaseException
raise Exception('a\nb')
raise Exception('\ud800')
raise ExceptionGroup('', [Exception()])
raise OSError(2, 'x', '\udcff')
raise BrokenPipeError
raise UnicodeDecodeError('utf-8', b'', 0, 1, 'x')
class A(Exception):\n  def __str__(s): 1/0\nraise A
extends = 'micro.py'
extends = 1
extends = ''
extends = '/'
extends = 'common:x=1'
extends = 'tiny'\nget_config = None
extends = 'tiny'\nget_config = type
extends = 'tiny:'\ndef get_config(c): return c
extends = 'finetune/glue:task=x'
extends = '../configs/tiny'\nx
from ml_collections import ConfigDict as get_config
yield 1
\t x
"""
_CHANGES = r"""
return 3
c.train = {}
c.train = None
c.mesh = c.train
c.task = c
c.task = {'name': 'pretraining', 'x': [1]}
c.task.x = object()
c['a.b'] = 1
c.model.hidden_size = object()
c.corpus.sources = ['a']
c.train.num_steps = c.get_ref('seed')
c.__dict__.clear()
del c.model
"""
_PROGRAMS = (
    *("", "\0", "(" * 500, "é = \udcff", "extends = '\ud800'"),
    *(line.replace("\\n", "\n") for line in _WHOLE.strip().split("\n")),
    *(_CHANGE + line for line in _CHANGES.strip().split("\n")),
)
# What there is nothing wrong with.
_RIGHT = ("c.get_ref", "'x': [1]", "c.task.x = object()", "extends = 'tiny:'")


def programs(draw: Draw) -> Case:
    """Config files as programs that fail, or give something else."""
    case = begin(draw, "config program", ("inputs",))
    program = draw.shuffled(list(_PROGRAMS))[draw.turn % len(_PROGRAMS)]
    path: Path = case.folder / "in" / "micro.py"
    path.write_bytes(program.encode("utf-8", "surrogatepass"))
    case.told = repr(program)[:90]
    case.refused = not any(right in program for right in _RIGHT)
    # It would train the tiny model of all of the documentation.
    case.flags.append("--config.corpus.sources=text:in/none")
    return case


_VARIABLES = {
    "BERT_JAX_PROCESSES": ("abc", "0", "-1", "2", "9" * 30, "1"),
    "BERT_JAX_COORDINATOR": ("here", "here:x", ":", "localhost:1"),
    "BERT_JAX_PROCESS_ID": ("x", "5"),
    "SLURM_NTASKS": ("x",),
    "TMPDIR": ("/nowhere", "in/micro.py", "\ud800"),
    "XDG_CACHE_HOME": ("/nowhere\n", "in/micro.py"),
    "HOME": ("", "/nowhere"),
    "TFDS_DATA_DIR": ("s3://x", "/nowhere"),
    "COLUMNS": ("x", "-1", "0", "1"),
    "BERT_JAX_HEARTBEAT": ("x", "-1", "nan", "0"),
    "TQDM_MININTERVAL": ("x",),
}


def surroundings(draw: Draw) -> Case:
    """Variables of the environment with no sense in them."""
    case = begin(draw, "environment")
    every = [(name, value) for name, its in _VARIABLES.items() for value in its]
    name, value = draw.shuffled(every)[draw.turn % len(every)]
    case.env |= {name: value}
    case.told = f"{name}={value!r:.40}"
    return case


RULES = {
    untouched: 2,
    unknown_flag: 3,
    repeated_flag: 1,
    output: 3,
    names: 2,
    programs: 2,
    surroundings: 1,
}
