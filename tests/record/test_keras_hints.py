"""Arguments and methods of the books that Keras 3 refuses, with the errors of the installed Keras."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_dist.record.failures.failures import RankError
from jupyter_dist.record.failures.keras_hints import removed

REFUSED = {
    "compile": (
        "model.compile('sgd', 'mse', experimental_run_tf_function=False)",
        "Keras 3 has no experimental_run_tf_function= in compile(): remove it",
    ),
    "optimizer": ("keras.optimizers.SGD(lr=0.1)", "Keras 3 has no lr=: write learning_rate="),
    "rate": ("model.optimizer.lr", "write optimizer.learning_rate with Keras 3"),
    "fit": ("model.fit(x, x, workers=2)", "Keras 3 has no workers= in fit(): remove it. Keras 3 reads"),
    "predict": (
        "model.predict(x, use_multiprocessing=True)",
        "Keras 3 has no use_multiprocessing= in predict(): remove it",
    ),
    "evaluate": (
        "model.evaluate(x, x, max_queue_size=4)",
        "Keras 3 has no max_queue_size=: remove it",
    ),
    "layer": (
        "keras.layers.Dense(1, batch_input_shape=(2, 1))",
        "Keras 3 has no batch_input_shape= in Dense(): begin the model with keras.Input(batch_shape=…)",
    ),
    "checkpoint": (
        "keras.callbacks.ModelCheckpoint('a.keras', period=5)",
        "Keras 3 has no period= in ModelCheckpoint(): write save_freq=",
    ),
    "board": (
        "keras.callbacks.TensorBoard('logs', write_grads=True)",
        "Keras 3 has no write_grads= in TensorBoard(): remove it",
    ),
    "generator": ("model.fit_generator(None)", "Keras 3 has no fit_generator(): write fit()"),
    "GPUs": (
        "keras.utils.multi_gpu_model(model, 2)",
        "Keras 3 has no multi_gpu_model(): make the model under dist.strategy().scope()",
    ),
    "probabilities": ("model.predict_proba(x)", "Keras 3 has no predict_proba(): write predict()"),
    "gradients": (
        "model.optimizer.apply_gradients([], experimental_aggregate_gradients=False)",
        "Keras 3 has no experimental_aggregate_gradients= in apply_gradients(): remove it. Keras 3 sums",
    ),
    "batch": (
        "model.train_on_batch(x, x, reset_metrics=False)",
        "Keras 3 has no reset_metrics= in train_on_batch(): remove it, and call model.reset_metrics()",
    ),
    "format": (
        "model.save_weights('a', save_format='tf')",
        "Keras 3 has no save_format= in save_weights(): remove it. The file's name chooses the format",
    ),
    "options": (
        "keras.callbacks.ModelCheckpoint('a.keras', options=None)",
        "Keras 3 has no options= in ModelCheckpoint(): remove it",
    ),
    "metric": (
        "tf.keras.metrics.Mean().reset_states()",
        "Keras 3 has no reset_states(): write reset_state()",
    ),
    "reduction": (
        "tf.keras.losses.MeanSquaredError(reduction=keras.losses.Reduction.NONE)",
        'Keras 3 has no Reduction: write the value as a word: reduction="sum",',
    ),
    "cuDNN": ("tf.keras.layers.CuDNNLSTM(4)", "Keras 3 has no CuDNNLSTM: write LSTM"),
    "own GPU": ("tf.keras.backend.set_session(None)", "Keras 3 has no set_session: remove the lines that"),
    "estimator": (
        "tf.estimator.RunConfig()",
        "TensorFlow 2 has no estimator: train a keras.Model with fit()",
    ),
    "strategy": (
        "tf.distribute.MirroredStrategy(['CPU:0']).experimental_run_v2(print)",
        "TensorFlow 2 has no experimental_run_v2(): write strategy.run()",
    ),
    "session": ("tf.ConfigProto()", "TensorFlow 2 has no ConfigProto: remove the lines that choose a GPU"),
}
"""What a cell calls → how the hint begins."""
OTHERS = {
    "a class of the user": "Trainer().fit(workers=2)",
    "a configuration of the user": "Trainer().lr",
    "a classifier of another library": "Trainer().predict_proba(x)",
    "a layer of another library": "Trainer().reset_states()",
    "an argument that never was": "model.fit(x, x, wrokers=2)",
    "a method that never was": "model.fti(x, x)",
    "no model": "None.fit_generator(x)",
}
PROGRAM = """
import json, os, sys, traceback
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
import keras, numpy as np, tensorflow as tf
class Trainer:
    def fit(self): pass
x = np.zeros((2, 1), "float32")
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
found = {}
for name, code in json.loads(sys.argv[1]).items():
    try:
        exec(code)
    except Exception as error:
        found[name] = type(error).__name__, str(error), traceback.format_exc()
print(json.dumps(found))
"""


@pytest.mark.needs("tensorflow", "keras")
def test_the_hint_names_the_argument_and_the_cure(tmp_path: Path) -> None:
    code = {name: code for name, (code, _) in REFUSED.items()} | OTHERS
    argv = [sys.executable, "-c", PROGRAM, json.dumps(code)]
    made = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path)
    errors = json.loads(made.stdout.splitlines()[-1])
    assert errors.keys() == code.keys()
    found = {name: removed(RankError(0, 1.0, "exception", *error)) for name, error in errors.items()}
    for name, (_, begin) in REFUSED.items():
        assert len(found[name]) == 1, (name, errors[name], found[name])
        assert found[name][0].startswith(begin), (name, errors[name], found[name])
    assert [found[name] for name in OTHERS] == [[]] * len(OTHERS)
