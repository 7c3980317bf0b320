"""Private names of Horovod, Ray, Spark, Optuna and TensorFlow's workers."""

from __future__ import annotations

from .private_name import Missing, Probe, Row

__all__ = ["ROWS"]

_SHIM = ("worker/horovod/keras3", "worker/horovod/keras3_optimizer")
_KERAS_API = "Training with Horovod's Keras API"
_TF_KERAS = 'os.environ["TF_USE_LEGACY_KERAS"] = "1" before tensorflow is imported'
_SESSION = ("backends/spark/notebook_session",)

_HOROVOD: tuple[Row, ...] = (
    Row(
        "horovod.tensorflow",
        ("_make_allreduce_grads_fn",),
        _SHIM,
        Missing.REFUSE,
        "Averaging gradients of Keras 3 with Horovod",
        cure=_TF_KERAS,
    ),
    Row(
        "horovod.tensorflow.elastic",
        ("_broadcast_model",),
        ("worker/horovod/keras3",),
        Missing.REFUSE,
        "Sending the weights of Keras 3 to a new rank with Horovod",
        cure=_TF_KERAS,
    ),
    Row(
        "horovod._keras",
        ("create_distributed_optimizer",),
        ("worker/horovod/keras3_optimizer", "worker/autolog/__init__", "capture/payload_builder"),
        Missing.REFUSE,
        _KERAS_API,
        cure=_TF_KERAS,
    ),
    Row(
        "horovod._keras",
        ("_allreduce_grads",),
        ("worker/pickling/reducers/keras",),
        Missing.REFUSE,
        "Sending a Keras optimizer that Horovod has wrapped",
        Probe.WRITTEN,
        cure="call hvd.DistributedOptimizer inside the cell",
    ),
    Row(
        "horovod._keras.callbacks",
        ("LearningRateScheduleCallbackImpl._adjust_learning_rate",),
        ("worker/horovod/keras3_optimizer", "worker/keras/tf_keras", "worker/autolog/__init__"),
        Missing.REFUSE,
        "Changing the learning rate with Horovod's callbacks",
        takes={"LearningRateScheduleCallbackImpl._adjust_learning_rate": ("self", "epoch")},
    ),
    Row(
        "horovod.runner.elastic.worker",
        ("_lock", "_service", "_listeners"),
        ("worker/horovod/rendezvous",),
        Missing.REFUSE,
        "Notifying an elastic Horovod loop when ranks join or leave",
        Probe.WRITTEN,
    ),
    *(
        Row(
            f"horovod.{framework}.mpi_ops",
            ("_basics",),
            ("worker/launchers/horovodrun_rank",),
            Missing.OFF,
            "Showing a failed Horovod rank's own error first",
        )
        for framework in ("torch", "tensorflow")
    ),
)

_RAY: tuple[Row, ...] = (
    Row(
        "ray._raylet",
        ("GcsClient",),
        ("backends/ray/connection",),
        Missing.REFUSE,
        "Starting ranks in a running Ray cluster",
    ),
    Row(
        "ray._raylet",
        ("GcsClient",),
        ("backends/ray/cluster_state",),
        Missing.OFF,
        "Showing the resources of a Ray cluster",
    ),
    Row(
        "ray._raylet",
        ("GCS_AUTOSCALER_CLUSTER_CONFIG_KEY", "GCS_AUTOSCALER_STATE_NAMESPACE"),
        ("backends/ray/cluster_state",),
        Missing.OFF,
        "Showing the nodes that Ray's autoscaler adds",
    ),
    Row(
        "ray._private.authentication.authentication_token_setup",
        (),
        ("backends/ray/cluster_state",),
        Missing.OFF,
        "Authenticating to a Ray cluster that requires a token",
        Probe.MODULE,
    ),
    *(
        Row(
            f"ray.autoscaler._private.{module}",
            names,
            ("backends/ray/cluster_file_program",),
            Missing.OFF,
            "Checking a file of Ray's cluster launcher before it starts anything",
        )
        for module, names in (
            ("util", ("prepare_config", "validate_config")),
            ("providers", ("_NODE_PROVIDERS", "_get_node_provider_cls")),
        )
    ),
    Row(
        "ray.train.v2._internal.execution.train_fn_utils",
        ("LocalTrainFnUtils", "LocalTrainFnUtils.report", "set_train_fn_utils"),
        ("worker/autolog/__init__", "worker/trainers/ray_train"),
        Missing.REFUSE,
        "Running a training function of Ray Train on the ranks",
    ),
    Row(
        "ray.train._internal.session",
        (),
        ("worker/autolog/__init__", "worker/trainers/ray_train"),
        Missing.OFF,
        "Warning that the first Ray Train does not see the ranks",
        Probe.MODULE,
    ),
)

_SPARK: tuple[Row, ...] = (
    Row(
        "pyspark.core.context",
        ("SparkContext._active_spark_context", "SparkContext._gateway"),
        _SESSION,
        Missing.OFF,
        "Sharing the notebook's own SparkContext",
    ),
    Row(
        "pyspark.core.context",
        ("_jsc",),
        (*_SESSION, "backends/spark/sessions", "backends/databricks/barrier_program"),
        Missing.OFF,
        "Counting the tasks that a Spark cluster can run at the same time",
        Probe.WRITTEN,
    ),
    Row(
        "pyspark.sql.connect.client.core",
        ("_builder", "_params"),
        _SESSION,
        Missing.OFF,
        "Opening a session beside the notebook's session of Spark Connect",
        Probe.WRITTEN,
    ),
    Row(
        "pyspark.sql.classic.dataframe",
        ("_jdf",),
        ("worker/pickling/reducers/spark_frames",),
        Missing.OFF,
        "Estimating the size of a Spark DataFrame before its rows are written",
        Probe.WRITTEN,
    ),
)

ROWS: tuple[Row, ...] = (
    *_HOROVOD,
    *_RAY,
    *_SPARK,
    Row(
        "tensorflow.python.distribute.collective_all_reduce_strategy",
        (
            "CollectiveAllReduceExtended._create_variable",
            "CollectiveAllReduceExtended._enable_check_health",
            "CollectiveAllReduceStrategy._collective_key_base",
        ),
        ("worker/session/tensorflow_collectives",),
        Missing.OFF,
        "Leaving the watch over TensorFlow's workers to a session",
    ),
    Row(
        "optuna.trial._frozen",
        ("_trial_id",),
        ("tuning/engines/optuna_engine",),
        Missing.REFUSE,
        "Continuing trials of a tuning run that were interrupted",
        Probe.WRITTEN,
    ),
)
