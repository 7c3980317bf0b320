"""Private names of Lightning, accelerate and transformers."""

from __future__ import annotations

from .private_name import Missing, Probe, Row

__all__ = ["ROWS"]

_PYTORCH = ("lightning.pytorch", "pytorch_lightning")
_FABRIC = ("lightning.fabric", "lightning_fabric")
_SPANNING = "Training one model over all ranks with Lightning"
_AGAIN = "Making a Lightning trainer of the notebook again on a rank"
_FLAGS = "_check_device_config_and_set_final_flags"
_DEVICES = "_set_parallel_devices_and_init_accelerator"
_SET = ("_strategy_flag", "_cluster_environment_flag", "_parallel_devices")


def _connector(module: str, owner: str) -> tuple[Row, ...]:
    flags, devices = f"{owner}.{_FLAGS}", f"{owner}.{_DEVICES}"
    users = ("worker/trainers/lightning_and_accelerate",)
    takes = {flags: ("self", "devices", "num_nodes"), devices: ("self",)}
    return (
        Row(module, (owner, flags, devices), users, Missing.REFUSE, _SPANNING, takes=takes),
        Row(module, _SET, users, Missing.REFUSE, _SPANNING, Probe.WRITTEN),
    )


ROWS: tuple[Row, ...] = (
    *(
        row
        for home in _PYTORCH
        for row in _connector(f"{home}.trainer.connectors.accelerator_connector", "_AcceleratorConnector")
    ),
    *(row for home in _FABRIC for row in _connector(f"{home}.connector", "_Connector")),
    *(
        Row(
            f"{home}.strategies.launchers.multiprocessing" if "fabric" in home else f"{home}.strategies.ddp",
            ("_start_method",),
            ("worker/trainers/lightning_and_accelerate",),
            Missing.OFF,
            "Training with a strategy object that would fork ranks by itself",
            Probe.WRITTEN,
        )
        for home in (*_PYTORCH, *_FABRIC)
    ),
    *(
        Row(
            f"{home}.trainer.connectors.logger_connector.logger_connector",
            ("_LoggerConnector", "_LoggerConnector.log_metrics"),
            ("worker/autolog/lightning",),
            Missing.NOTE,
            "Logging metrics of Lightning automatically",
            takes={"_LoggerConnector.log_metrics": ("self", "metrics", "step")},
        )
        for home in _PYTORCH
    ),
    *(
        Row(
            f"{home}.loops.training_epoch_loop",
            ("_batches_that_stepped",),
            ("worker/autolog/lightning",),
            Missing.NOTE,
            "Counting the steps of Lightning's metrics",
            Probe.WRITTEN,
        )
        for home in _PYTORCH
    ),
    *(
        Row(
            f"{home}.wrappers",
            ("_FabricModule", "_FabricOptimizer", "_FabricDataLoader"),
            ("worker/pickling/reducers/__init__", "worker/pickling/reducers/trainers"),
            Missing.REFUSE,
            "Sending objects that Fabric has set up",
        )
        for home in _FABRIC
    ),
    *(
        Row(
            f"{home}.fabric",
            ("_callbacks", "_launched", "_models_setup"),
            ("worker/pickling/reducers/trainer_kinds", "worker/pickling/reducers/trainers"),
            Missing.REFUSE,
            _AGAIN,
            Probe.WRITTEN,
        )
        for home in _FABRIC
    ),
    *(
        Row(
            f"{home}.strategies.strategy",
            ("_accelerator",),
            ("worker/pickling/reducers/trainers",),
            Missing.REFUSE,
            "Sending a strategy of Lightning",
            Probe.WRITTEN,
        )
        for home in (*_PYTORCH, *_FABRIC)
    ),
    *(
        Row(
            f"{home}.{module}",
            (name,),
            (user,),
            Missing.REFUSE,
            _AGAIN,
            Probe.WRITTEN,
        )
        for home in _PYTORCH
        for module, name, user in (
            ("trainer.trainer", "_loggers", "worker/pickling/reducers/trainer_kinds"),
            ("callbacks.progress.progress_bar", "_trainer", "worker/pickling/reducers/trainers"),
        )
    ),
    Row(
        "accelerate.accelerator",
        ("_models", "_optimizers", "_schedulers", "_dataloaders", "_custom_objects"),
        ("worker/pickling/reducers/trainers", "worker/pickling/reducers/trainer_kinds"),
        Missing.REFUSE,
        "Making an Accelerator of the notebook again on a rank",
        Probe.WRITTEN,
    ),
    Row(
        "accelerate.state",
        ("PartialState._shared_state", "AcceleratorState._shared_state"),
        ("capture/trainer_calls",),
        Missing.REFUSE,
        "Making an Accelerator of the notebook again on a rank",
    ),
    Row(
        "accelerate.state",
        ("PartialState._shared_state",),
        ("worker/session/process_group",),
        Missing.OFF,
        "Opening the process group of accelerate again after a session's failed cell",
    ),
    Row(
        "transformers.training_args",
        ("_setup_devices", "_n_gpu"),
        ("worker/pickling/reducers/trainers",),
        Missing.REFUSE,
        "Making TrainingArguments of the notebook again on a rank",
        Probe.WRITTEN,
    ),
    Row(
        "transformers.trainer",
        ("_signature_columns",),
        ("worker/pickling/reducers/trainer_kinds",),
        Missing.REFUSE,
        "Making a Trainer of the notebook again on a rank",
        Probe.WRITTEN,
    ),
)
