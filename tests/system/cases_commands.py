"""Command lines, config programs and surroundings that are wrong."""

from pathlib import Path

from tests.system import malformed_values as values
from tests.system.cases import Case, Draw, begin

_FLAGS = ("config", "workdir", "mode", "input", "output")
_WRONG = """
--config..seed=1 --config.=1 --config.train=1 --config.seed.x=1 --config.seed train --=
-- - --mode --mode= --mode=Train --configs.seed=1 --config= --config=nowhere.py
--config=in --config=in/micro.py:x=1 --config.train.__class__=1 --config.keys=1
--undefok=workdri --workdri=x --flagfile=nowhere --flagfile=in --help -h --helpfull
--version --seed=1 --config.seed=1=2 --config[seed]=1 -c ---x=1
"""


def untouched(draw: Draw) -> Case:
    """Nothing is wrong."""
    case = begin(draw, "nothing wrong")
    case.description, case.accepted = f"{case.task}, {case.stage}, {case.mode}", True
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
        *(f"--config.seed={name}", "--config=in/micro.py:x", "", " ", "\udcff", "--\n"),
        *_WRONG.split(),
    ]
    flag = draw.rng.choice(forms)
    case.flags.insert(draw.rng.randrange(len(case.flags) + 1), flag)
    if draw.rng.random() < 0.05:
        case.flags.insert(0, f"--undefok={wrong}")
    case.description, case.refused = repr(flag), True
    if flag == "--":  # what follows it would be no flag
        case.flags.remove(flag)
        case.flags.append(flag)
        case.description, case.refused = "'--' at the end", False
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
    case.description = f"{name}: {how}"
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
_RIGHT = (
    "c.get_ref",
    "c.corpus.sources",
    "'x': [1]",
    "c.task.x = object()",
    "extends = 'tiny:'",
)


def programs(draw: Draw) -> Case:
    """Config files as programs that fail, or give something else."""
    case = begin(draw, "config program", ("inputs",))
    program = draw.shuffled(list(_PROGRAMS))[draw.turn % len(_PROGRAMS)]
    path: Path = case.folder / "in" / "micro.py"
    path.write_bytes(program.encode("utf-8", "surrogatepass"))
    case.description = repr(program)[:90]
    case.refused = not any(right in program for right in _RIGHT)
    # It would train the tiny model of all of the documentation.
    case.flags.append("--config.corpus.sources=text:in/none")
    return case


_VARIABLES = {
    "BERT_JAX_PROCESSES": ("abc", "0", "-1", "2", "9" * 30, "1"),
    "BERT_JAX_COORDINATOR": ("here", "here:x", ":", "localhost:1"),
    "BERT_JAX_PROCESS_ID": ("x", "5"),
    "SLURM_NTASKS": ("x",),
    "TMPDIR": ("/nowhere", "in/micro.py", "\udcff"),
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
    case.description = f"{name}={value!r:.40}"
    return case


RULES = {
    untouched: 2,
    unknown_flag: 3,
    repeated_flag: 1,
    programs: 2,
    surroundings: 1,
}
