"""What earlier cells have registered with libraries is registered on ranks, or a note names the call.

A row of the tables is a cell, and an expression. Its value on a rank is its value in the notebook.
"""

from __future__ import annotations

import ast
import sys
import time
import types
from collections.abc import Mapping
from typing import Any

import pytest

from jupyter_dist.capture import library_calls, notebook_history, ran_statements
from jupyter_dist.capture.ran_statements import RanStatements
from jupyter_dist.worker.settings import library_calls as on_rank

IMPORTS = """
import codecs, collections.abc, copyreg, csv, functools, io, json, numbers, pickle, sqlite3
import joblib, matplotlib as mpl, numpy as np, pandas as pd, sklearn, torch, yaml
import xml.etree.ElementTree as ET
from matplotlib import colormaps
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from torch.distributions import kl_divergence
from torch.distributions.kl import register_kl
from torch.utils import _pytree
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import default_collate_fn_map
from tqdm.auto import tqdm
frame = pd.DataFrame({"x": [1.0, 2.0]})
"""

ROWS = [
    (
        "@pd.api.extensions.register_dataframe_accessor('geo')\nclass Geo:\n"
        "  def __init__(self, frame): self.frame = frame\n"
        "  def centre(self): return self.frame.x.mean() * SCALE\n"
        "SCALE = 10",
        "float(frame.geo.centre())",
    ),
    (
        "from pandas.api.extensions import register_series_accessor as accessor\n"
        "@accessor('twice')\nclass Twice:\n  def __init__(self, s): self.s = s\n"
        "  def __call__(self): return 2 * self.s",
        "frame.x.twice().tolist()",
    ),
    ("tqdm.pandas(desc='rows', disable=True)", "frame.x.progress_apply(lambda x: x + 1).tolist()"),
    ("sklearn.set_config(transform_output='pandas', working_memory=77)", "sklearn.get_config()"),
    (
        "class Point:\n  def __init__(self, x, y): self.x, self.y = x, y\n"
        "_pytree.register_pytree_node(Point, lambda p: ([p.x, p.y], None), lambda xy, _: Point(*xy))",
        "_pytree.tree_flatten({'p': Point(1, 2)})[0]",
    ),
    (
        "class Flat(torch.distributions.Normal): pass\n@register_kl(Flat, Flat)\n"
        "def _(p, q):\n  return torch.tensor(41.0) + LIFT\nLIFT = 1",
        "kl_divergence(Flat(0, 1), Flat(0, 1)).item()",
    ),
    (
        "seen = []\ndef count(module, inputs, output): seen.append(type(module).__name__)\n"
        "handle = torch.nn.modules.module.register_module_forward_hook(count)",
        "(torch.nn.Linear(1, 1)(torch.ones(1)).shape, seen[-1:])[1]",
    ),
    (
        "gone = torch.nn.modules.module.register_module_forward_hook(lambda *_: seen.append('gone'))\n"
        "gone.remove()",
        "(seen.clear(), torch.nn.ReLU()(torch.ones(1)), list(seen))[2]",
    ),
    (
        "torch.library.define('jd_t::twice', '(Tensor x) -> Tensor')\n"
        "@torch.library.impl('jd_t::twice', 'CPU')\ndef _(x): return x * 2",
        "torch.ops.jd_t.twice(torch.ones(2)).tolist()",
    ),
    (
        "@torch.library.custom_op('jd_t::thrice', mutates_args=())\n"
        "def thrice(x: torch.Tensor) -> torch.Tensor:\n  return x * BY\nBY = 3",
        "torch.ops.jd_t.thrice(torch.ones(2)).tolist()",
    ),
    (
        "@torch.library.custom_op('jd_t::half', mutates_args=())\n"
        "def half(x: torch.Tensor) -> torch.Tensor:\n  return x / 2\n"
        "@half.register_fake\ndef _(x): return torch.empty_like(x)\n"
        "def half_back(context, grad): return grad / 2\nhalf.register_autograd(half_back)\n"
        "def halved(x): return half(x) + 1\nleaf = torch.ones(2, requires_grad=True)",
        "half(torch.ones(2)).tolist(), halved(torch.ones(1)).item(),"
        " half(torch.ones(1, device='meta')).shape,"
        " torch.autograd.grad(half(leaf).sum(), leaf)[0].tolist()",
    ),
    (
        "class Pair:\n  def __init__(self, a): self.a = a\n"
        "def collate_pairs(batch, *, collate_fn_map=None): return [p.a for p in batch]\n"
        "default_collate_fn_map[Pair] = collate_pairs",
        "default_collate([Pair(3), Pair(4)])",
    ),
    (
        "mpl.colormaps.register(ListedColormap(['red', 'blue'], name='jd_two'))\n"
        "colormaps.register(cmap=LinearSegmentedColormap.from_list('jd_line', ['#000000', '#ffffff'], N=9))",
        "mpl.colormaps['jd_two'].N, colormaps['jd_line'].N",
    ),
    (
        "yaml.add_constructor('!j', lambda l, n: '-'.join(l.construct_sequence(n)), Loader=yaml.SafeLoader)\n"
        "yaml.SafeDumper.add_representer(set, lambda d, s: d.represent_list(sorted(s)))",
        "yaml.safe_load('!j [a, b]'), yaml.safe_dump({1, 2})",
    ),
    (
        "def find(name): return codecs.lookup('utf-8') if name == 'jd_codec' else None\n"
        "codecs.register(find)\n"
        "codecs.register_error('jd_dots', lambda e: ('.' * (e.end - e.start), e.end))",
        "'é'.encode('jd_codec'), 'aé'.encode('ascii', 'jd_dots')",
    ),
    (
        "class Slow:\n  n = 1\ndef reduce_slow(s): return Slow, (), {'n': s.n + 1}\n"
        "copyreg.pickle(Slow, reduce_slow)",
        "pickle.loads(pickle.dumps(Slow())).n",
    ),
    ("csv.register_dialect('jd_semi', delimiter=';')", "list(csv.reader(['a;b'], dialect='jd_semi'))"),
    (
        "class Meter:\n  pass\ncollections.abc.Sized.register(Meter)\nnumbers.Number.register(Meter)",
        "isinstance(Meter(), collections.abc.Sized), isinstance(Meter(), numbers.Number)",
    ),
    (
        "sqlite3.register_adapter(np.int64, int)",
        "sqlite3.connect(':memory:').execute('select typeof(?)', (np.int64(3),)).fetchone()",
    ),
    (
        "for tag in ('m', 'n'):\n  ET.register_namespace(tag, f'urn:{tag}')",
        "ET.tostring(ET.Element('{urn:m}a'))",
    ),
    (
        "class Own(joblib.parallel.SequentialBackend): pass\n"
        "try:\n  joblib.register_parallel_backend('jd_own', Own)\nexcept ValueError:\n  pass",
        "type(joblib.parallel.BACKENDS['jd_own']).__name__, joblib.parallel.BACKENDS['jd_own'].__name__",
    ),
    (
        "@functools.singledispatch\ndef own_kind(x): return 'any'\n"
        "@own_kind.register(int)\ndef _(x): return 'int'",
        "own_kind(1)",
    ),
]


AFTER = """
handle.remove(); seen.clear(); torch.nn.ReLU()(torch.ones(1))
assert seen == []
if dist.rank() == 0:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(look, [look_0]) == found[0]
found"""


def check_rows(kernel: Any, imports: str, rows: list[tuple[str, str]], after: str = "found") -> None:
    kernel.run(imports)
    for setting, _ in rows:
        kernel.run(setting)
    looks = "".join(f"def look_{n}(): return {look}\n" for n, (_, look) in enumerate(rows))
    kernel.run(
        f"%load_ext jupyter_dist\nimport multiprocessing\nimport jupyter_dist as dist\n{looks}"
        f"looks = [{', '.join(f'look_{n}' for n in range(len(rows)))}]\n"
        "def look(of):\n  try: return repr(of())\n"
        "  except Exception as error: return f'{type(error).__name__}: {error}'"
    )
    here = ast.literal_eval(kernel.run("print([look(of) for of in looks])").text.strip())
    assert [text for text in here if "Error: " in text] == []
    cell = kernel.run(
        f"%%distribute -np 2 --gpus-per-worker 0 --out run\nfound = [look(of) for of in looks]\n{after}"
    )
    for there in ast.literal_eval(kernel.run("print(list(run.results))").text.strip()):
        settings = [setting for setting, _ in rows]
        found = zip(settings, here, there, strict=True)
        assert [(setting, a, b) for setting, a, b in found if a != b] == []
    assert [line for line in cell.stdout.splitlines() if line.startswith("note:")] == []


@pytest.mark.needs("torch", "sklearn")
def test_calls_of_earlier_cells_count_on_ranks(kernel: Any) -> None:
    check_rows(kernel, IMPORTS, ROWS, AFTER)


def test_failed_lines_and_the_cell_that_runs_now(kernel: Any) -> None:
    kernel.run("import csv\ndef known(): return sorted(name for name in csv.list_dialects() if 'jd' in name)")
    kernel.run("%%time\ncsv.register_dialect('jd_timed', delimiter=';')")
    failing = kernel.start("csv.register_dialect('jd_before')\n1 / 0\ncsv.register_dialect('jd_never')")
    assert "ZeroDivisionError" in failing.finish().error
    assert kernel.run("import jupyter_dist as dist\nknown()").text.strip() == "['jd_before', 'jd_timed']"
    kernel.run(
        "csv.register_dialect('jd_now')\nfirst = dist.run(known, np=1)\ncsv.register_dialect('jd_later')"
    )
    found = ast.literal_eval(kernel.run("print(first.results[0])").text.strip())
    assert found == ["jd_before", "jd_now", "jd_timed"]
    kernel.run("second = dist.run(known, np=1)")
    found = ast.literal_eval(kernel.run("print(second.results[0])").text.strip())
    assert found == ["jd_before", "jd_later", "jd_now", "jd_timed"]


class Library(types.ModuleType):
    """A library that records its calls."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[Any] = []
        calls = self.calls
        space = {"calls": calls, "__name__": name}
        source = (
            "def {0}(*args, **named):\n  calls.append(('{0}', *args, *named.values()))\n"
            "  return args[0] if args else None"
        )
        for function in ("register", "unregister", "set_style", "set_device", "set_seed", "load", "enable_x"):
            exec(source.format(function), space)
            setattr(self, function, space[function])


def modules_of(names: Mapping[str, Any]) -> set[str] | None:
    if any(isinstance(value, types.GeneratorType) for value in names.values()):
        return None
    return {value.__name__ for value in names.values() if isinstance(value, types.ModuleType)}


def repeated(
    *cells: str, own: str = "", ends: Mapping[int, float] = {}, used: str = "jd_lib", here: bool = True
) -> tuple[list[Any], list[str]]:
    """Run cells, and return the calls that a rank repeats, and the notes."""
    library = sys.modules["jd_lib"] = Library("jd_lib")
    space: dict[str, Any] = {"jd_lib": library, "__name__": "__main__"}
    ran = []
    try:
        for number, text in enumerate(cells, 1):
            end = ends.get(number, float("inf"))
            for node in ast.parse(text).body:
                if (node.end_lineno or 0) < end:
                    exec(compile(ast.Module([node], []), "<cell>", "exec"), space)
            ran.append(notebook_history.RanCell(number, text, 0, end))
        found = library_calls.search(
            ran,
            space,
            own_cell=ast.parse(own).body,
            hidden={"_"},
            used={used},
            here=here,
            is_own=lambda name: name == "own_lib",
            modules_of=modules_of,
        )
        library.calls.clear()
        failed: list[str] = []
        on_rank.repeat(found.calls, {}, failed.append)
        assert failed == []
        return list(library.calls), found.notes
    finally:
        del sys.modules["jd_lib"]


MISSED = " ran in the notebook and not on the ranks. Write it in the cell if the training needs it"


def test_calls_are_repeated_in_the_notebooks_order() -> None:
    cells = ["jd_lib.register('a')", "x = 1; jd_lib.unregister('a')", "\njd_lib.register('a')"]
    assert repeated(*cells) == ([("register", "a"), ("unregister", "a"), ("register", "a")], [])


def test_a_variable_that_has_another_value_now_is_not_passed_on() -> None:
    cells = ["name = 'a'", "jd_lib.register(name)", "name = 'b'"]
    assert repeated(*cells) == ([], [f"In[2], line 1: jd_lib.register(...){MISSED}"])
    assert repeated(*cells[:2], cells[0]) == ([("register", "a")], [])  # the cell ran again
    assert repeated("def f(): pass", "jd_lib.register(f.__name__)", "def f(): return 1")[1] == []
    assert repeated(*cells[:2], "del name")[1] == [f"In[2], line 1: jd_lib.register(...){MISSED}"]


def test_statements_behind_an_error_have_not_run() -> None:
    cell = "jd_lib.register('a')\n1 / 0\njd_lib.register('b')"
    assert repeated(cell, ends={1: 2}) == ([("register", "a")], [])


def test_functions_of_the_notebook_and_of_services_are_never_called() -> None:
    build = "def build():\n  return jd_lib.load() or 'x'"
    place = "In[2], line 2: jd_lib.register(...)"
    assert repeated(build, "\njd_lib.register(build())") == ([], [place + MISSED])
    assert repeated("jd_lib.set_style(print('x'))")[1] != []
    silent = [
        "jd_lib.set_device(0)",
        "jd_lib.set_seed(0)",
        "jd_lib.load()",
        "def f():\n  jd_lib.register('a')",
    ]
    assert repeated(*silent, "f()") == ([], [])


def test_a_call_that_changes_an_object_of_the_notebook_is_not_repeated() -> None:
    graph = "class Graph: edges = []\ngraph = Graph(); graphs = [graph]"
    silent = [
        graph,
        "jd_lib.register(graph, [1, 2])",
        "jd_lib.set_style(graph.edges, 'wide')",
        "for each in graphs: jd_lib.register(each, name='a')",
        "from jd_lib import register as add\nadd(graph, 3)",
        "made = jd_lib.register(graph)",
        "graph.parts = [graph]\njd_lib.register(graph.parts[0].edges, 'd')",
    ]
    assert repeated(*silent) == ([], [])
    calls, notes = repeated(
        graph,
        "jd_lib.register('graph', graph)",
        "jd_lib.register(Graph, 'a')",
        "jd_lib.set_style(graph)",
        "class Hook:\n  def __call__(self): pass\nhook = Hook()\njd_lib.register(hook, 'b')",
        "names = ['x', 'y']\njd_lib.register(names, 'c')",
        "class Config: style = 'dark'; size = (2, 3)\nconfig = Config()\njd_lib.set_style(config.style, 2)",
        "jd_lib.set_style(config.size, 'wide')",
    )
    assert [call[0] for call in calls] == [
        *("register", "register", "set_style", "register", "register"),
        *("set_style", "set_style"),
    ]
    assert notes == []


NEVER = """
atexit.register codecs.lookup gc.set_threshold logging.addLevelName os.register_at_fork
signal.set_wakeup_fd sys.setrecursionlimit torch.cuda.set_device torch.cuda.set_sync_debug_mode
torch.distributed.init_process_group torch.manual_seed torch.multiprocessing.set_start_method
torch.random.set_rng_state torch.set_default_device torch.set_num_threads
torch.nn.Module.register_buffer.missing dist.log.add_x np.add Own.register model.register
warnings.filterwarnings
"""
ALSO = """
codecs.register csv.register_dialect torch.set_flush_denormal torch.serialization.add_safe_globals
torch.library.define sklearn.set_config np.set_printoptions
"""


@pytest.mark.needs("torch", "sklearn")
def test_which_functions_are_called_again() -> None:
    import importlib

    from jupyter_dist.capture import call_rules

    class Own:
        @classmethod
        def register(cls) -> None: ...

    Own.__module__ = "__main__"
    tops = {name.partition(".")[0] for name in (NEVER + ALSO).split()} - {"np", "dist", "Own", "model"}
    names = {name: importlib.import_module(name) for name in tops}
    space = {**names, "np": importlib.import_module("numpy"), "Own": Own, "model": Own()}
    space["dist"] = importlib.import_module("jupyter_dist")

    def found(text: str) -> Any:
        return call_rules.resolve(ast.parse(text, mode="eval").body, space, {}, lambda _: False)

    assert [text for text in NEVER.split() if found(text) is not None] == []
    assert [text for text in ALSO.split() if found(text) is None] == []


@pytest.mark.needs("torch")
def test_a_setting_of_the_table_is_not_set_again() -> None:
    """The notebook may have reset it in a function, and then the table has nothing to tell."""
    import torch

    cells = ["torch.set_default_dtype(torch.float64)\ntorch.set_flush_denormal(True)"]
    cells += ["def reset(): torch.set_default_dtype(torch.float32)\nreset()"]
    cells += ["if True:\n  torch.backends.cuda.enable_flash_sdp(False)"]
    found = library_calls.search(
        [notebook_history.RanCell(number, text, 0, float("inf")) for number, text in enumerate(cells, 1)],
        {"torch": torch, "__name__": "__main__"},
        own_cell=[],
        hidden=(),
        used={"torch"},
        here=True,
        is_own=lambda _: False,
        modules_of=modules_of,
    )
    assert [call["code"].strip() for call in found.calls] == ["torch.set_flush_denormal(True)"]
    assert found.notes == []


def test_a_call_that_is_also_in_the_cell_is_left_to_the_cell() -> None:
    first = "jd_lib.register('a')\njd_lib.register('b')"
    assert repeated(first, own="def f():\n  jd_lib.register('a')") == ([("register", "b")], [])
    both = "class A:\n  @property\n  def x(self): pass"
    assert (
        repeated(f"{both}\n@jd_lib.register\nclass B(A):\n  @property\n  def y(self): pass", own=both)[1]
        == []
    )
    assert len(repeated(f"@jd_lib.register\n{both}", own=both)[0]) == 1


def test_other_libraries_are_left_alone() -> None:
    assert repeated("jd_lib.register('a')", used="json") == ([], [])


def test_libraries_that_those_of_the_cell_use_count_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    user = types.ModuleType("jd_user")
    monkeypatch.setitem(sys.modules, "jd_user", user)
    user.inner = Library("jd_lib")  # type: ignore[attr-defined]
    assert repeated("jd_lib.register('a')", used="jd_user") == ([("register", "a")], [])
    assert repeated("jd_lib.register('a')", used="jd_user", here=False) == ([], [])
    colour = "import colorsys, jd_user\njd_lib.register(jd_user)"
    place = f"In[1], line 2: jd_lib.register(...){MISSED}"
    assert repeated(colour, here=False) == ([], [place])  # another host may lack the module


def test_blocks_are_repeated_if_all_of_them_can_be() -> None:
    block = "for name in ['a', 'b']:\n  if name != 'a':\n    jd_lib.register(name)\n  else:\n    pass"
    assert repeated(block) == ([("register", "b")], [])
    mixed = "if True:\n  jd_lib.register('a')\n  x = jd_lib.load()"
    quiet = "def cond(): return True"
    assert repeated(quiet, "if cond():\n  jd_lib.enable_x()") == ([], [])
    assert repeated(mixed) == ([], [f"In[1], line 1: jd_lib.register(...){MISSED}"])


A = ("register", "a")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["from jd_lib import register as note", "x = 1", "note('a')"], [A]),
        (["from jd_lib import calls, register\nregister('a')", "calls [\n0:0] = ['set']"], ["set", A]),
        (["from jd_lib import calls, register", "register('a'); calls[0:0] = ['set']"], ["set", A]),
        (["ﬁ = 'a'", "jd_lib.register(fi)"], [A]),
        (["ﬁ = 'a'", "jd_lib.register(fi)", "ﬁ = 'b'"], []),
    ],
)
def test_a_call_is_found_however_a_cell_spells_it(cells: list[str], expected: list[Any]) -> None:
    """Python reads the one character `ﬁ` as `fi`."""
    assert repeated(*cells)[0] == expected


def test_a_cell_that_does_not_compile_has_not_run() -> None:
    cells = [
        notebook_history.RanCell(1, f"jd_lib.register('a')\n{end}", 0, 9.0) for end in ("return", "pass")
    ]
    found = [(place, one.where) for place, one in RanStatements(cells).with_any({"register"})]
    assert found == [((1, 0), "In[1], line 1"), ((1, 1), "In[1], line 2")]


def test_only_cells_that_matter_are_parsed_and_only_once() -> None:
    name = f"jd_{time.time_ns()}"
    cells = [f"x_{name}_{n} = [{n}]\nx_{name}_{n}[0] = sorted(x_{name}_{n})" for n in range(300)]
    cells[20] = f"jd_lib.register('a')  # {name}"
    cells[200] = f"y_{name} = 'b'"
    cells[280] = f"jd_lib.register(y_{name})"

    def parsed(*more: str) -> int:
        before = ran_statements._parsed.cache_info().misses
        assert repeated(*cells, *more) == ([A, ("register", "b"), *[("register", "c")] * len(more)], [])
        return ran_statements._parsed.cache_info().misses - before

    assert parsed() == 3
    assert parsed() == 0
    assert parsed(f"jd_lib.register('c')  # {name}") == 1


def test_several_calls_have_one_note() -> None:
    cells = [f"jd_lib.register((n for n in [{n}]).__next__())" for n in range(5)]
    made = repeated(*cells)[1]
    assert len(made) == 1
    assert "In[3], line 1: jd_lib.register(...) and 2 more ran in the notebook" in made[0]


def test_a_call_that_fails_on_a_rank_is_named_once() -> None:
    about = {"file": "<In[3]>", "handle": "", "names": {}, "imported": {}, "shown": "sorted(...)"}
    calls = [{**about, "where": f"In[{n}], line 1", "code": "sorted(1)"} for n in (3, 4)]
    calls += [{**about, "where": "In[5], line 1", "code": "if not x: x.append(1)\nelse: 1/0"}] * 2
    calls[2] = {**calls[2], "names": {"x": []}}
    calls[3] = {**calls[3], "names": {"x": [1]}}
    notes: list[str] = []
    main: dict[str, Any] = {"x": "the cell's"}
    on_rank.repeat(calls, main, notes.append)
    assert notes == [
        "In[4], line 1: sorted(...) failed on this rank: TypeError: 'int' object is not iterable"
    ]
    assert main["x"] == "the cell's"


MODELS = """
import keras, torch
from torch import nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput
import transformers
"""
MODEL_ROWS = [
    (
        "class Config(PretrainedConfig):\n  model_type = 'jd-one'\n"
        "  def __init__(self, width=4, **kw): super().__init__(**kw); self.width = width\n"
        "class Model(PreTrainedModel):\n  config_class = Config\n"
        "  def __init__(self, c): super().__init__(c); self.l = nn.Linear(c.width, 1); self.post_init()\n"
        "AutoConfig.register('jd-one', Config); AutoModel.register(Config, Model)",
        "type(AutoModel.from_config(AutoConfig.for_model('jd-one', width=3))).__name__",
    ),
    (
        "@keras.saving.register_keras_serializable('jd')\ndef bend(x): return x * 2\n"
        "@keras.saving.register_keras_serializable(package='jd')\nclass Twice(keras.layers.Layer):\n"
        "  def call(self, x): return x * 2",
        "keras.saving.get_registered_object('jd>Twice').__name__, "
        "keras.saving.get_registered_object('jd>bend')(2)",
    ),
    (
        "keras.utils.get_custom_objects()['jd_a'] = bend\n"
        "keras.utils.get_custom_objects().update(jd_b=Twice)",
        "keras.saving.get_registered_object('jd_a')(3), 'jd_b' in keras.utils.get_custom_objects()",
    ),
    (
        "transformers.utils.logging.disable_progress_bar()",
        "transformers.utils.logging.is_progress_bar_enabled()",
    ),
    (
        "torch.distributions.Distribution.set_default_validate_args(False)",
        "torch.distributions.Normal(0, -1).scale.item()",
    ),
]


@pytest.fixture
def keras_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered names do not depend on what computes: so notebook and ranks import no TensorFlow."""
    monkeypatch.setenv("KERAS_BACKEND", "torch")


@pytest.mark.needs("torch", "keras", "transformers")
def test_registered_models_are_found_by_name_on_ranks(keras_with_torch: None, kernel: Any) -> None:
    check_rows(kernel, MODELS, MODEL_ROWS)
