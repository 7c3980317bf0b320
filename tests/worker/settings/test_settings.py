"""What is set in a notebook counts on its ranks: seeds, libraries, loggers, warnings, modules."""

from __future__ import annotations

import ast
import json
import logging
import random
import subprocess
import sys
import types
import warnings
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.capture import kernel_logging, kernel_seeds, module_attributes, notebook_history
from jupyter_dist.start import run_start
from jupyter_dist.worker import import_hooks
from jupyter_dist.worker.settings import libraries, loggers, seeds

ROOT = Path(__file__).parents[3]

SET = """
torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(False)
torch.use_deterministic_algorithms(True, warn_only=True)
torch.set_float32_matmul_precision("medium")
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.allow_tf32 = False
torch.backends.cuda.enable_flash_sdp(False)
torch.set_num_threads(1)
torch.set_printoptions(precision=2, sci_mode=True)
torch.set_default_device("meta")
torch.autograd.set_detect_anomaly(True, check_nan=False)
np.set_printoptions(precision=3, formatter={"float": lambda x: f"<{x:.1f}>"})
np.seterr(divide="raise")
pd.set_option("display.max_rows", 7)
pd.options.display.float_format = "{:.1f}".format
decimal.getcontext().prec = 5
decimal.getcontext().traps[decimal.Inexact] = True
locale.setlocale(locale.LC_TIME, "C.UTF-8")
sys.setrecursionlimit(2222)
socket.setdefaulttimeout(77)
multiprocessing.set_start_method("spawn")

class Loud(logging.Formatter):
    def format(self, record):
        return f"{SIGN} {record.getMessage()}"

SIGN = "!!"
logging.basicConfig(level=logging.DEBUG, format="[%(levelname)s] %(message)s", stream=sys.stdout)
logging.addLevelName(25, "NEWS")
loud = logging.getLogger("loud")
loud.propagate = False
loud.addHandler(logging.StreamHandler())
loud.handlers[0].setFormatter(Loud())
loud.handlers[0].setLevel(logging.ERROR)
logging.getLogger("torch").setLevel(logging.CRITICAL)
logging.getLogger("to.file").addHandler(logging.FileHandler("train.log"))
logging.captureWarnings(True)
warnings.filterwarnings("ignore", message="quiet")
warnings.filterwarnings("error", category=UserWarning, module="nowhere")

config.LR = 3
config.OPTIONS["depth"] = 2
config.Net.width = 9
config.more = lambda: config.LR * 10
config.lock = open(os.devnull)
inner.deep.SIZE = 4
os.environ["SET_IN_THE_NOTEBOOK"] = "yes"
"""

LOOK = """
import decimal, locale, logging, multiprocessing, os, socket, sys, warnings
import numpy as np, pandas as pd, torch
import config, inner.deep

def look():
    context = decimal.getcontext()
    loggers = {name: logging.getLogger(name) for name in ("", "loud", "torch")}
    return {
        "torch": [str(torch.get_default_dtype()), torch.is_grad_enabled(),
                  torch.are_deterministic_algorithms_enabled(),
                  torch.is_deterministic_algorithms_warn_only_enabled(),
                  torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark,
                  torch.backends.cudnn.allow_tf32, torch.backends.cuda.flash_sdp_enabled(),
                  torch.get_num_threads(), str(torch.tensor([1.234567], device="cpu")),
                  str(torch.empty(1).device), torch.is_anomaly_enabled(),
                  torch.is_anomaly_check_nan_enabled()],
        "numpy": [str(np.array([1.23456])), np.geterr()],
        "pandas": [pd.get_option("display.max_rows"), str(pd.DataFrame({"a": [1.234]}))],
        "decimal": [context.prec, context.traps[decimal.Inexact]],
        "python": [locale.setlocale(locale.LC_TIME), sys.getrecursionlimit(), socket.getdefaulttimeout(),
                   multiprocessing.get_start_method(), os.environ["SET_IN_THE_NOTEBOOK"], os.getcwd()],
        "loggers": {
            name: [logger.level, logger.propagate,
                   [(handler.stream is sys.stdout, handler.level, handler.formatter._fmt)
                    for handler in logger.handlers if name != "torch"]]
            for name, logger in loggers.items()
        },
        "levels": [logging.getLevelName(25), warnings.showwarning.__module__],
        "filters": [[item[0], str(item[2].__name__)] for item in warnings.filters][:2],
        "config": [config.LR, config.OPTIONS, config.Net.width, config.more(), inner.deep.SIZE],
    }
"""


@pytest.mark.needs("torch")
def test_settings_reach_each_rank_as_they_are_in_the_notebook(kernel: Any, tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text("LR = 1\nOPTIONS = {'depth': 1}\nclass Net:\n    width = 1\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "__init__.py").write_text("")
    (tmp_path / "inner" / "deep.py").write_text("SIZE = 1\n")
    (tmp_path / "looking.py").write_text(LOOK)
    # The magics come last: nothing may depend on their having seen how a setting was made.
    kernel.run(
        "import decimal, json, locale, logging, multiprocessing, os, socket, sys, warnings\n"
        "import numpy as np, pandas as pd, torch\nimport config, inner.deep",
    )
    kernel.run(SET)
    kernel.run("%load_ext jupyter_dist\nfrom looking import look")
    here = ast.literal_eval(kernel.run("look()").text.strip())
    assert here["config"] == [3, {"depth": 2}, 9, 30, 4]
    spawned = (
        "if os.environ['RANK'] == '0':  # and a process that it spawns\n"
        "    with multiprocessing.Pool(1) as pool:\n        seen.append(pool.apply(look))\n"
        "    seen[1]['filters'] = seen[0]['filters']  # it imports torch afterwards, which adds its own\n"
    )
    for flags, more, looks in (("-np 2", spawned, 3), ("-np 1 --cold", "", 1)):
        cell = kernel.run(
            f"%%distribute {flags} --out run\n"
            f"logging.info('hello'); logging.getLogger('loud').error('hello')\nseen = [look()]\n{more}seen",
        )
        ranks = ast.literal_eval(kernel.run("sum(run.results, [])").text.strip())
        assert len(ranks) == looks
        for seen in ranks:
            assert {k: (seen[k], here[k]) for k in seen if seen[k] != here[k]} == {}
        log = kernel.run("print(run.log(len(run.results) - 1))").text
        assert "[INFO] hello" in log
        assert "!! hello" in log
        notes = [line for line in cell.stdout.splitlines() if line.startswith("note:")]
        assert len(notes) == 2, notes
        assert "FileHandler" in notes[0]
        assert "config.lock, set in the notebook, stays behind" in notes[1]


DRAW = """
def draw():
    loader = torch.utils.data.DataLoader(range(2), num_workers=1, collate_fn=lambda _: random.random())
    return [random.random(), float(np.random.rand()), torch.rand(1).item(), list(loader)]
"""
STATES = "hash((random.getstate(), str(np.random.get_state()), str(torch.get_rng_state().tolist())))"


@pytest.mark.needs("torch")
def test_ranks_draw_by_the_notebooks_seed_and_their_number(kernel: Any) -> None:
    kernel.run("import random, numpy as np, torch")
    kernel.run(DRAW)

    def drawn(flags: str = "", cell: str = "draw()") -> Any:
        kernel.run(f"%%distribute -np 2 --out run {flags}\n{cell}")
        return ast.literal_eval(kernel.run("list(run.results)").text.strip())

    def differ(first: Any, second: Any) -> bool:
        return all(a != b for a, b in zip(first, second, strict=True))

    kernel.run("%load_ext jupyter_dist")
    unseeded = [*drawn(), *drawn()]
    for at, one in enumerate(unseeded):
        assert all(differ(one, other) for other in unseeded[:at])

    seed = "torch.manual_seed(0); np.random.seed(0); random.seed(0)"
    kernel.run(seed)
    before = kernel.run(STATES).text
    first = drawn()
    assert kernel.run(STATES).text == before
    assert differ(*first)
    assert drawn("--cold") == first
    kernel.run(seed)
    assert drawn() == first
    kernel.run("torch.rand(1)")
    moved = drawn()
    assert moved[0][:2] == first[0][:2]
    assert moved[0][2] != first[0][2]
    kernel.run(seed.replace("0)", "1)"))
    assert differ(drawn()[0], first[0])

    kernel.run(seed)
    again = "import os\nr = draw()\nif os.environ['JUPYTER_DIST_ATTEMPT'] == '0': raise ValueError\nr"
    assert drawn("--max-restarts 1", again) == first


LOOK_TF = """
def look():
    layer = keras.layers.Dense(2)
    return [
        keras.config.floatx(), keras.config.epsilon(), keras.config.dtype_policy().name,
        layer.compute_dtype, keras.config.is_traceback_filtering_enabled(),
        tf.config.functions_run_eagerly(), tf.config.experimental.tensor_float_32_execution_enabled(),
        tf.config.threading.get_inter_op_parallelism_threads(), tf.get_logger().level,
    ]
def draw():
    return [random.random(), tf.random.normal([1]).numpy().item(), keras.random.normal([1]).numpy().item()]
"""


@pytest.mark.needs("tensorflow", "keras")
def test_settings_and_seeds_of_tensorflow_and_keras(kernel: Any) -> None:
    kernel.run("import random, tensorflow as tf, keras")
    kernel.run(LOOK_TF)
    kernel.run(
        "keras.utils.set_random_seed(3)\nkeras.config.set_floatx('float64'); keras.config.set_epsilon(1e-3)\n"
        "keras.mixed_precision.set_global_policy('mixed_bfloat16')\nkeras.config.disable_traceback_filtering()\n"
        "tf.config.run_functions_eagerly(True)\n"
        "tf.config.experimental.enable_tensor_float_32_execution(False)\n"
        "tf.config.threading.set_inter_op_parallelism_threads(3); tf.get_logger().setLevel('ERROR')\n"
    )
    kernel.run("%load_ext jupyter_dist")
    runs = []
    for _ in range(2):
        kernel.run("%%distribute -np 2 --out run --gpus-per-worker 0\n(draw(), look())")
        runs.append(ast.literal_eval(kernel.run("list(run.results)").text.strip()))
    assert runs[0] == runs[1]
    (first, seen), (second, seen_too) = runs[0]
    assert all(a != b for a, b in zip(first, second, strict=True))
    assert seen == seen_too == ast.literal_eval(kernel.run("look()").text.strip())


def test_nothing_is_imported_or_changed_to_read_settings(tmp_path: Path) -> None:
    code = """
import json, logging, random, sys, warnings
from pathlib import Path
from jupyter_dist.capture.payload_builder import capture_cell
space = sys.modules["__main__"].__dict__
random.seed(1)
state, filters = random.getstate(), list(warnings.filters)
capture_cell("1", space, label="x", directory=Path.cwd())
before = set(sys.modules)
logging.getLogger("torch").setLevel(10)
header = capture_cell("1", space, label="x", directory=Path.cwd()).header
assert header["settings"]["seeds"].keys() == {"random"}, header
assert random.getstate() == state and warnings.filters == filters
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert json.loads(done.stdout) == []


def test_handlers_that_a_library_has_added_to_a_logger_of_any_name_stay_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jupyter_dist.capture.kernel_settings import read

    loggers_by_owner = {
        owner: logging.getLogger(f"jd names this for {owner}") for owner in ("a library", "me")
    }
    for logger in loggers_by_owner.values():
        logger.addHandler(logging.FileHandler(tmp_path / "log.txt"))
        logger.setLevel(logging.ERROR)
    library: Any = types.ModuleType("jd_library")
    library.__spec__ = ModuleSpec("jd_library", None, origin="/usr/lib/python3/site-packages/jd_library.py")
    library._log = loggers_by_owner["a library"]
    monkeypatch.setitem(sys.modules, "jd_library", library)
    monkeypatch.setitem(sys.modules, "__mp_main__", types.ModuleType("__mp_main__"))
    vars(sys.modules["__mp_main__"])["mine"] = loggers_by_owner["me"]  # as in a kernel
    found = read({"In": [""], **loggers_by_owner}, tmp_path, set(), mains=[], hidden=())
    for logger in loggers_by_owner.values():
        logger.handlers.pop().close()
        logger.setLevel(logging.NOTSET)
    assert [note for note in found.notes if "for a library" in note] == []
    assert len([note for note in found.notes if "for me" in note and "FileHandler" in note]) == 1
    homes = {name: home for name, home, _ in found.header["loggers"]["loggers"]}
    assert homes["jd names this for a library"] == "jd_library"
    assert homes["jd names this for me"] is None


def test_a_namespace_that_is_no_notebooks_takes_nothing_along() -> None:
    from jupyter_dist.capture.payload_builder import capture_cell

    header = capture_cell("1", {"__name__": "__main__"}, label="x", directory=Path.cwd()).header
    assert header["settings"] == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("random.seed(0)", {"random"}),
        ("np.random.seed(0)", {"numpy"}),
        ("torch.cuda.manual_seed_all(1)", {"torch"}),
        ("tf.random.set_seed(1)", {"tensorflow"}),
        ("pl.seed_everything(42)", {"random", "numpy", "torch", "tensorflow"}),
        ("from random import seed\nseed(3)", {"random", "numpy", "torch", "tensorflow"}),
        ("random.seed(); torch.seed()", set()),
        ("np.random.default_rng(1); np.random.SeedSequence(3)", set()),
    ],
)
def test_what_cells_say_they_have_seeded(text: str, told: set[str]) -> None:
    assert kernel_seeds._told([text]) == told


def test_cells_that_ran_here_are_those_that_ran_in_the_kernel() -> None:
    cells = [
        "",
        "x = 1",
        "get_ipython().run_cell_magic('distribute', '-np 2', 'import random; random.seed(1)')",
        "get_ipython().run_cell_magic('time', '', 'config.LR = 2')",
        "get_ipython().run_cell_magic('writefile', 'train.py', 'torch.set_flush_denormal(True)')",
        "get_ipython().run_cell_magic('script', 'false', 'torch.manual_seed(3)')",
        "get_ipython().run_line_magic('load_ext', 'jupyter_dist')",
    ]
    assert notebook_history.texts({"In": cells}) == ("x = 1", "config.LR = 2", cells[-1])


class Own:
    """A module of the user's in `folder`, imported under a name that no other test has."""

    def __init__(self, folder: Path, name: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / f"{name}.py").write_text(source)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setattr(sys, "dont_write_bytecode", False)  # whose file tells what was imported
        self.module: Any = __import__(name)
        monkeypatch.setitem(sys.modules, name, sys.modules.pop(name))  # it goes when the test is over
        self.name = name

    def changed(self, *texts: str, **names: Any) -> dict[str, Any]:
        found = module_attributes.changed(
            texts, {"config": self.module, **names}, {self.name}, lambda name: name == self.name
        )
        return {".".join(path): value for _, path, value in found}


OWN = """
import os
LR, SEEN = 0.1, os.getpid()
DEPTH = 3
NAMES = ["a"]
DEVICE = "cpu" if os.environ.get("X") else "gpu"
FROM_ENVIRONMENT = os.environ.get("X")
calls = 0
if DEPTH: MODE = 1
else: MODE = 2
def use():
    global calls
    calls += 1
class Net:
    width = 1
options = Net()
"""


def test_what_was_set_on_own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Own(tmp_path, "jd_set_on", OWN, monkeypatch)
    config = own.module
    assert own.changed("config.use()", "print(config.LR == 2)", "x.LR = 3", "def f(config): pass") == {}
    config.use()
    assert own.changed() == {}  # what the module does to itself is not the notebook's setting
    config.DEPTH, config.NEW, config.LR = 4, max, 2
    config.NAMES.append("b")
    assert own.changed() == {"DEPTH": 4, "NEW": max, "NAMES": ["a", "b"]}
    said = ["config.DEVICE, other = 1, 2", "config.LR += 1", "setattr(config, 'FROM_ENVIRONMENT', 1)"]
    assert {"DEVICE": "gpu", "LR": 2, "FROM_ENVIRONMENT": None}.items() <= own.changed(*said).items()
    assert own.changed("Net.width = 3", Net=config.Net)["Net.width"] == 1
    assert own.changed("options.width = 3", options=config.options)["options.width"] == 1
    assert own.changed("config.options.table[0].x = 3").keys() == {"DEPTH", "NEW", "NAMES"}
    config.__getattr__ = pytest.fail  # as a lazy module's, which imports what is asked for
    assert "LAZY" not in own.changed("def f():\n    config.LAZY.x = config.LAZY = 3")


def test_what_was_set_on_a_class_of_a_library_that_was_imported_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Own(tmp_path, "jd_library", "class Net:\n    class Part: pass\n", monkeypatch)
    names = {"Net": library.module.Net, "Mine": type("Mine", (), {"__module__": "__main__"})}
    names["Net"].Part.width = names["Mine"].width = 3
    texts = ["Net.Part.width = Mine.width = 3"]
    found = module_attributes.changed(texts, names, {library.name, "__main__"}, lambda _: False)
    assert found == [(library.name, ("Net", "Part", "width"), 3)]


def test_a_file_that_was_edited_since_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Own(tmp_path, "jd_edited", "LR = 1\n", monkeypatch)
    (tmp_path / "jd_edited.py").write_text("LR = 22\n")
    assert own.changed() == {}
    own.module.LR = 3
    assert own.changed("config.LR = 3") == {"LR": 3}


def test_a_rank_that_starts_again_draws_alike_where_the_notebook_was_seeded() -> None:
    import numpy

    state, arrays = random.getstate(), numpy.random.get_state()

    def drawn(seeded: bool, rank: int, attempt: int) -> list[float]:
        seeds.apply({"random": ("1f", seeded), "numpy": ("1f", seeded)}, rank, attempt)
        return [random.random(), numpy.random.rand()]

    try:
        first = drawn(True, 0, 0)
        assert drawn(True, 0, 1) == first
        others = [drawn(True, 1, 0), drawn(False, 0, 0), drawn(False, 0, 1), drawn(False, 1, 0)]
    finally:
        random.setstate(state)
        numpy.random.set_state(arrays)
    numbers = [number for draws in [first, *others] for number in draws]
    assert len(set(numbers)) == len(numbers)


def test_a_filter_for_a_librarys_warning_comes_with_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jd_warns.py").write_text("class Odd(UserWarning): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    filters = [
        ("error", None, ("builtins", "UserWarning"), None, 0),
        ("ignore", None, ("jd_warns", "Odd"), None, 0),
        ("always", ("quiet", 2), ("builtins", "Warning"), None, 0),
    ]
    with warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.simplefilter("default")
        loggers.apply_filters(filters)
        loggers.apply_filters(filters)
        warnings.simplefilter("once")  # the cell's own
        assert [item[0] for item in warnings.filters] == ["once", "error", "always", "default"]
        __import__("jd_warns")
        assert [item[0] for item in warnings.filters] == ["once", "error", "ignore", "always", "default"]


def test_what_a_function_would_set_that_has_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Own(
        tmp_path,
        "jd_not_set",
        "class A:\n  def f(self): pass\nclass B(A): pass\ndef g(): pass\n",
        monkeypatch,
    )
    texts = "def later():\n  config.A.f = config.B.f = config.B.h = config.g = lambda: 1"
    assert own.changed(texts) == {}
    own.module.B.f = own.module.g = print
    assert own.changed(texts) == {"B.f": print, "g": print}


def test_a_modules_logger_is_set_up_after_the_module_has_done_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jd_logs.py").write_text(
        "import logging\nlog = logging.getLogger(__name__)\nlog.setLevel(30)\n"
        "log.addHandler(logging.StreamHandler())\nlog.handlers[0].setFormatter(logging.Formatter('%(msg)s'))"
    )
    monkeypatch.syspath_prepend(tmp_path)
    handler = {"stream": "stderr", "level": 0, "formatter": ("%(msg)s", None, "%")}
    about = {"level": 10, "propagate": False, "disabled": False}
    said = {"levels": [], "disabled_below": 0, "warnings": False}
    said["loggers"] = [
        ("jd_logs", "jd_logs", {**about, "handlers": [handler, {**handler, "stream": "stdout"}]})
    ]
    loggers.apply_loggers(said, int)
    assert logging.getLogger("jd_logs").level == 0
    __import__("jd_logs")
    loggers.apply_loggers(said, int)
    logger = logging.getLogger("jd_logs")
    assert (logger.level, logger.propagate) == (10, False)
    assert [handler.stream for handler in logger.handlers] == [sys.stderr, sys.stdout]  # type: ignore[attr-defined]


def test_formatters_with_defaults_or_without_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("jd_formatters")
    monkeypatch.setattr(logger, "handlers", [])
    shapes = [{"fmt": "%(run)s %(message)s", "defaults": {"run": "a"}}, {"fmt": "work", "validate": False}]
    formatters = [logging.Formatter(**shape) for shape in shapes]  # type: ignore[arg-type]
    kept: list[Any] = []

    def keep(value: Any) -> int:
        kept.append(value)
        return len(kept) - 1

    handlers = [
        {"stream": "stderr", "level": 0, "formatter": kernel_logging._formatter(formatter, keep)}
        for formatter in formatters
    ]
    about = {"level": 10, "propagate": False, "disabled": False, "handlers": handlers}
    said = {"levels": [], "disabled_below": 0, "warnings": False, "loggers": [("jd_formatters", None, about)]}
    loggers.apply_loggers(said, kept.__getitem__)
    record = logging.LogRecord("jd_formatters", 20, "cell", 1, "begins", (), None)
    assert [handler.format(record) for handler in logger.handlers] == ["a begins", "work"]


def test_variables_that_other_hosts_do_not_get_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("TOKEN", "MODE", "GIVEN", "KEY_A", "KEY_B", "KEY_C"):
        monkeypatch.setenv(name, "secret")
    cells = ["os.environ['TOKEN'] = 'secret'; os.environ['GIVEN'] = 'x'", "if os.environ['HOME'] == 1: pass"]
    cells.append("get_ipython().run_line_magic('env', 'MODE=secret')")
    here = types.SimpleNamespace(capabilities=types.SimpleNamespace(visible=True))
    plan: Any = types.SimpleNamespace(
        run=types.SimpleNamespace(hosts="a:1,b:1", hostfile=None, env={"GIVEN": "x"}),
        options=types.SimpleNamespace(),
        backend=here,
    )
    run_start.warn_of_variables({"In": cells}, plan)
    said = capsys.readouterr().err
    assert (
        "MODE, TOKEN: set in the notebook, but not on the other hosts. To set them there, add "
        "--env MODE=… --env TOKEN=…" in said
    )
    assert "secret" not in said
    plan.run.hosts = None
    run_start.warn_of_variables({"In": cells}, plan)
    assert capsys.readouterr().err == ""
    here.capabilities.visible = False  # as pods and the machines of a platform
    for place in (None, "local[2]"):
        plan.options = types.SimpleNamespace(master=place)
        run_start.warn_of_variables({"In": cells}, plan)
        assert capsys.readouterr().err == ""
    plan.options = types.SimpleNamespace(address="10.0.0.7:6379")
    cells = ["os.environ.update({'KEY_A': a, **more}, KEY_B=b)", "environ |= {'KEY_C': c}; x |= {'MODE': 1}"]
    run_start.warn_of_variables({"In": cells}, plan)
    assert "KEY_A, KEY_B, KEY_C: set in the notebook, but not on the other hosts" in capsys.readouterr().err


@pytest.mark.needs("matplotlib")
def test_style_and_rc_of_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    import matplotlib.style  # type: ignore[import-not-found,unused-ignore]

    def fail(name: str, error: Exception) -> None:
        raise error

    with matplotlib.rc_context():
        assert libraries.read("matplotlib", matplotlib, fail) == {}
        matplotlib.style.use("dark_background")
        matplotlib.rc("lines", linewidth=5)
        matplotlib.rcParams["backend"] = "svg"
        found = libraries.read("matplotlib", matplotlib, fail)
        wanted = dict(dict.items(matplotlib.rcParams))
    assert found["rcParams"]["lines.linewidth"] == 5
    assert "backend" not in found["rcParams"]
    assert ast.literal_eval(repr(found)) == found
    with matplotlib.rc_context():
        libraries.write("matplotlib", matplotlib, found, fail)
        differing = {k for k, v in dict.items(matplotlib.rcParams) if v != wanted[k]}
        assert differing <= {"backend"}


@pytest.mark.needs("torch")
def test_float32_precision_in_torchs_newer_words() -> None:
    code = """
import torch
from jupyter_dist.worker.settings import libraries as library_settings
def fail(name, error): raise error
if hasattr(torch.backends, "fp32_precision"):
    torch.backends.cuda.matmul.fp32_precision = "tf32"
found = library_settings.read("torch", torch, fail)
print(found)
library_settings.write("torch", torch, {"float32 precision": {"mkldnn.matmul.fp32_precision": "bf16"}}, fail)
assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    expected = {"float32 precision": {"cuda.matmul.fp32_precision": "tf32"}}
    assert {k: v for k, v in ast.literal_eval(done.stdout).items() if k in expected} == expected


def test_a_function_waits_for_an_import_and_is_called_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jd_waited_for.py").write_text("import jd_with_it\nHERE = 1\n")
    (tmp_path / "jd_with_it.py").write_text("import jd_waited_for\nSEEN = hasattr(jd_waited_for, 'HERE')\n")
    monkeypatch.syspath_prepend(tmp_path)
    called: list[Any] = []
    import_hooks.call("json", lambda: called.append("json"))
    import_hooks.call("jd_waited_for", lambda: called.append(sys.modules["jd_waited_for"].HERE))
    assert called == ["json"]
    import jd_waited_for  # type: ignore[import-not-found]

    assert isinstance(jd_waited_for, types.ModuleType)
    assert called == ["json", 1]
    import_hooks.call("jd_waited_for", lambda: called.append("late"))
    assert called == ["json", 1, "late"]
