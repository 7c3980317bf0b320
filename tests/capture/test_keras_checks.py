"""Cells that need Keras 2."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rigs.notebook_cells import Notebook

KERAS = [
    ("import keras\nMultiWorkerMirroredStrategy", True),
    ("tf.keras.Sequential(); tf.distribute.MultiWorkerMirroredStrategy()", True),
    ("from tensorflow.keras import layers\ntf.distribute.experimental.ParameterServerStrategy", True),
    ("from tensorflow import keras as k\nfrom tf.distribute import MultiWorkerMirroredStrategy as S", True),
    ("import tf_keras\nx = MultiWorkerMirroredStrategy", True),
    ("def f():\n  import keras\n  return ParameterServerStrategy", True),
    ("build()", True),
    ("import jd_model\njd_model.build()", True),
    ("tf.keras.Sequential(); tf.distribute.MirroredStrategy()", False),
    ("tf.distribute.MultiWorkerMirroredStrategy()", False),
    ("'keras MultiWorkerMirroredStrategy'", False),
    ("import torch", False),
]


HOROVOD = [
    (source, "Horovod's Keras API")
    for source in (
        "import horovod.tensorflow.keras as hvd",
        "import horovod.keras as hvd\nhvd.init()",
        "from horovod.tensorflow import keras as hvd",
        "from horovod.tensorflow.keras.callbacks import MetricAverageCallback",
        "fit()",
        "import jd_hvd_model\njd_hvd_model.fit()",
    )
]
HOROVOD += [("import horovod.torch as hvd", ""), ("import horovod.tensorflow as hvd\nimport keras", "")]


DIST = "import keras, jupyter_dist as dist\n"
STRATEGY = [
    (DIST + "dist.strategy()", True),
    (DIST + "s = dist.strategy( kind = 'ParameterServerStrategy', a=1)", True),
    (DIST + "dist.strategy(KIND)", True),
    ("import keras\nfrom jupyter_dist import strategy\nstrategy()", True),
    ("import jd_model\njd_model.build()", True),
    (DIST + "dist.strategy('mirrored')", False),
    (DIST + "dist.strategy(kind='OneDeviceStrategy')", False),
    (DIST + "dist.rank()  # not dist.strategy()", False),
    (DIST + "strategy = 1\ndist.rank()", False),
    ("import jupyter_dist as dist\ndist.strategy()", False),
    ("import keras\nx.strategy()", False),
]


class TestLegacyKeras:
    @pytest.mark.parametrize(("source", "expected"), STRATEGY)
    def test_may_be_needed_by_a_strategy_of_ours(
        self, notebook: Notebook, monkeypatch: Any, source: str, expected: bool
    ) -> None:
        text = "import keras\nimport jupyter_dist as dist\ndef build(): return dist.strategy()"
        (notebook.folder / "jd_model.py").write_text(text)
        monkeypatch.syspath_prepend(str(notebook.folder))
        header = notebook.capture(source).header
        assert bool(header["legacy_keras_if_several"]) is expected
        assert header["spanning_strategy"] is (
            expected or source == "import jupyter_dist as dist\ndist.strategy()"
        )
        assert not header["legacy_keras"]

    @pytest.mark.parametrize(("source", "expected"), KERAS)
    def test_is_needed_by_keras_on_several_workers(
        self, notebook: Notebook, monkeypatch: Any, source: str, expected: bool
    ) -> None:
        text = "def build(): return tf.keras.Model, tf.distribute.MultiWorkerMirroredStrategy"
        (notebook.folder / "jd_model.py").write_text(text)
        monkeypatch.syspath_prepend(str(notebook.folder))
        notebook.cell(text)
        assert bool(notebook.capture(source).header["legacy_keras"]) is expected

    @pytest.mark.parametrize(("source", "expected"), HOROVOD)
    def test_is_needed_by_horovods_keras(
        self, notebook: Notebook, monkeypatch: Any, source: str, expected: str
    ) -> None:
        text = "def fit(): from horovod.tensorflow.keras import callbacks"
        (notebook.folder / "jd_hvd_model.py").write_text(text)
        monkeypatch.syspath_prepend(str(notebook.folder))
        notebook.cell("def fit(): import horovod.keras as hvd; hvd.init()")
        assert notebook.capture(source).header["legacy_keras"] == expected
