"""Advice on arguments and methods of Keras 2 and TensorFlow 1 that Keras 3 and TensorFlow 2 have removed."""

from __future__ import annotations

import re

from .failures import RankError

__all__ = ["removed"]

_LOADING = (
    "remove it. Keras 3 reads a keras.utils.PyDataset in parallel if its own constructor has the argument, "
    "as in super().__init__(workers=4). A tf.data.Dataset has map(…, num_parallel_calls=) and prefetch()"
)
_ARGUMENTS = {
    "batch_input_shape": "begin the model with keras.Input(batch_shape=…)",
    "distribute": "remove it, and make the model under dist.strategy().scope()",
    "embeddings_layer_names": "remove it",
    "experimental_aggregate_gradients": "remove it. Keras 3 sums the gradients of a strategy's replicas, and "
    "Horovod's optimizers average those of the ranks",
    "experimental_run_tf_function": "remove it. Horovod's optimizers need it no more",
    "experimental_steps_per_execution": "write steps_per_execution=",
    "lr": "write learning_rate=",
    "max_queue_size": _LOADING,
    "nb_epoch": "write epochs=",
    "options": "remove it",
    "period": "write save_freq=, which counts batches: period=N is save_freq=N * steps_per_epoch. With "
    "Lightning, write every_n_epochs=",
    "reset_metrics": "remove it, and call model.reset_metrics() before the call where the argument was True",
    "sample_weight_mode": "remove it. Keras 3 finds the mode in the shape of sample_weight",
    "save_format": "remove it. The file's name chooses the format: end it with .keras in save(), and with "
    ".weights.h5 in save_weights()",
    "target_tensors": "remove it, and give the targets to fit()",
    "use_multiprocessing": _LOADING,
    "workers": _LOADING,
    "write_grads": "remove it",
}
"""Argument → what to write now."""
_CALLS = {
    *("ModelCheckpoint.__init__", "TensorBoard.__init__", "BaseOptimizer.apply_gradients"),
    *("TensorFlowTrainer.test_on_batch", "TensorFlowTrainer.train_on_batch"),
}
"""Calls of Keras that Python itself refuses. Then no frame of Keras is in the traceback."""
_METHODS = {
    "fit_generator": "write fit()",
    "evaluate_generator": "write evaluate()",
    "predict_generator": "write predict()",
    "predict_proba": "write predict()",
    "predict_classes": "write predict(x).argmax(axis=-1), or predict(x) > 0.5 for one output",
    "multi_gpu_model": "make the model under dist.strategy().scope()",
    "reset_states": "write reset_state() for a metric. A model lacks it, too: call reset_states() of its "
    "recurrent layers",
}
"""Method or function of Keras 2 → what to write now."""
_MODELS = "Functional|Sequential"
_WHOSE = {
    "predict_proba": _MODELS,
    "reset_states": rf"{_MODELS}|Mean|Sum|AUC|Precision|Recall|\w*(?:Accuracy|Crossentropy|Error)",
}
"""Method whose name other libraries use, too → the classes of Keras that had it."""
_OWN_GPU = "remove the lines that choose a GPU, because each rank sees only its own"
_OF_TENSORFLOW_1 = {
    "ConfigProto": _OWN_GPU,
    "GPUOptions": _OWN_GPU,
    "estimator": "train a keras.Model with fit() under dist.strategy().scope()",
    "Session": "call functions directly, or use tf.compat.v1.Session",
    "placeholder": "use keras.Input, or tf.compat.v1.placeholder",
}
_NAMES = {
    "CuDNNGRU": "write GRU, which uses cuDNN on a GPU",
    "CuDNNLSTM": "write LSTM, which uses cuDNN on a GPU",
    "Reduction": 'write the value as a word: reduction="sum", "sum_over_batch_size" or "none"',
    "get_session": _OWN_GPU,
    "set_session": _OWN_GPU,
}
"""Name of a module of Keras 2 that is no method or function of a model → what to write now."""
_MOST = 2000
"""Characters of a message that are read."""
_OPTIMIZERS = {"Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Lion", "Nadam", "RMSprop", "SGD"}
_REFUSED = re.compile(r"\b(\w+)\.(\w+)\(\) got an unexpected keyword argument '(\w+)'")
_UNRECOGNIZED = re.compile(
    r"(?:Arguments?(?:\(s\))? not recognized|[Uu]nrecognized keyword arguments?(?:\(s\))?"
    r"(?: passed to (\w+))?): \{(.*)",
    re.DOTALL,
)
_LACKS = re.compile(r"(?:'(\w+)' object|module '([\w.]+)') has no attribute '(\w+)'")
_NAME = re.compile(r"'(\w+)':")


def removed(error: RankError) -> list[str]:
    """Return the advice, empty for other errors. It is certain: the error names what is gone."""
    message, text = error.message[:_MOST], error.text[-10 * _MOST :]
    if error.type == "AttributeError":
        found = _LACKS.search(message)
        return [] if found is None else _attribute(found[1], found[2] or "", found[3])
    if error.type not in ("TypeError", "ValueError"):
        return []
    of_keras = re.search(r"[\\/]keras[\\/]src[\\/]", text) is not None
    refused = _REFUSED.search(message)
    if refused is not None and (
        f"{refused[1]}.{refused[2]}" in _CALLS
        or (of_keras and (refused[1] == "Model" or refused[1].endswith("Trainer")))
    ):
        call = refused[1] if refused[2] == "__init__" else refused[2]
        return _arguments(call, [refused[3]])
    unrecognized = _UNRECOGNIZED.search(message)
    if unrecognized is not None and of_keras:
        return _arguments(unrecognized[1] or "", _NAME.findall(unrecognized[2]))
    return []


def _arguments(call: str, names: list[str]) -> list[str]:
    where = f" in {call}()" if call else ""
    return [f"Keras 3 has no {name}={where}: {_ARGUMENTS[name]}" for name in names if name in _ARGUMENTS]


def _attribute(kind: str | None, module: str, name: str) -> list[str]:
    of_keras = module.partition(".")[0] in ("keras", "tensorflow", "tf_keras")
    had_it = re.fullmatch(_WHOSE.get(name, "(?!NoneType$).*"), kind) if kind else of_keras
    if name in _METHODS and had_it:
        return [f"Keras 3 has no {name}(): {_METHODS[name]}"]
    if name in _NAMES and of_keras:
        return [f"Keras 3 has no {name}: {_NAMES[name]}"]
    if name in _OF_TENSORFLOW_1 and module.partition(".")[0] == "tensorflow":
        return [f"TensorFlow 2 has no {name}: {_OF_TENSORFLOW_1[name]}"]
    if (kind or "").endswith("Strategy") and name == "experimental_run_v2":
        return ["TensorFlow 2 has no experimental_run_v2(): write strategy.run()"]
    if kind in _OPTIMIZERS and name == "lr":
        return ["write optimizer.learning_rate with Keras 3, and optimizer.param_groups[0]['lr'] with torch"]
    return []
