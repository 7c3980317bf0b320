"""Private names of torch."""

from __future__ import annotations

from .private_name import Missing, Probe, Row

__all__ = ["ROWS"]

_COMPILED = ("worker/pickling/reducers/torch_compile",)
_HINTS = ("worker/hints/torch_training",)
_OPTIONS = "Compiling on a rank with the options that torch.compile had in the notebook"
_RECORDER = ("worker/rank/collectives",)
_STEPS = ("worker/steps/torch",)
_TENSORS = ("worker/pickling/tensors",)
_TRAINING = ("worker/pickling/reducers/torch_training",)

ROWS: tuple[Row, ...] = (
    Row(
        "torch",
        ("Tensor._backward_hooks", "Tensor._post_accumulate_grad_hooks"),
        _TENSORS,
        Missing.OFF,
        "Sending the hooks of a tensor",
    ),
    Row(
        "torch.utils.data.dataloader",
        ("DataLoader._iterator",),
        _TRAINING,
        Missing.OFF,
        "Sending a DataLoader with persistent workers after a loop over it",
        Probe.WRITTEN,
    ),
    Row(
        "torch.optim.lr_scheduler",
        ("_opt_called",),
        _TRAINING,
        Missing.OFF,
        "Sending an optimizer's mark of its scheduler",
        Probe.WRITTEN,
    ),
    Row(
        "torch.storage",
        ("_new_dtypes",),
        _TENSORS,
        Missing.OFF,
        "Sending tensors of unsigned integers with shared memory",
    ),
    Row(
        "torch.storage",
        ("TypedStorage._untyped_storage",),
        _TENSORS,
        Missing.REFUSE,
        "Sending a typed storage of torch",
        Probe.WRITTEN,
        cure="send the tensor itself",
    ),
    Row(
        "torch._ops",
        ("OpOverload", "OpOverloadPacket"),
        ("worker/pickling/reducers/__init__",),
        Missing.REFUSE,
        "Sending an operator of torch.ops",
        cure="use torch.ops inside the cell",
    ),
    Row(
        "torch._ops",
        ("_overloadname", "_qualified_op_name"),
        ("worker/pickling/reducers/torch_operators",),
        Missing.REFUSE,
        "Sending an operator of torch.ops",
        Probe.WRITTEN,
        cure="use torch.ops inside the cell",
    ),
    Row(
        "torch._library.custom_ops",
        ("CustomOpDef", "CustomOpDef._qualname"),
        ("worker/pickling/reducers/__init__", "worker/pickling/reducers/torch_operators"),
        Missing.REFUSE,
        "Sending an operator of torch.library",
        cure="use torch.ops inside the cell",
    ),
    Row(
        "torch._dynamo.eval_frame",
        (
            *("_torchdynamo_orig_callable", "_torchdynamo_disable", "_torchdynamo_disable_msg"),
            *("_isolate_recompiles_id", "_is_torch_compile"),
            *("_torchdynamo_orig_backend", "_dynamic", "_shapes_spec", "_hooks", "_orig_mod"),
        ),
        _COMPILED,
        Missing.NOTE,
        _OPTIONS,
        Probe.WRITTEN,
    ),
    Row(
        "torch",
        ("_TorchCompileInductorWrapper", "_TorchCompileWrapper"),
        _COMPILED,
        Missing.NOTE,
        _OPTIONS,
    ),
    Row(
        "torch.nn.modules.module",
        (
            *("_modules", "_compiled_call_impl", "_forward_hooks"),
            *("_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
        ),
        _COMPILED,
        Missing.REFUSE,
        "Sending a compiled module of torch",
        Probe.WRITTEN,
        cure="call torch.compile inside the cell",
        public="Module.compile",
    ),
    Row(
        "torch._dynamo",
        (),
        ("launch/preload", "worker/pickling/reducers/torch_compile"),
        Missing.OFF,
        "Importing torch.compile's parts before ranks start",
        Probe.MODULE,
    ),
    Row(
        "torch.profiler._cupti_monitor",
        (),
        ("launch/preload",),
        Missing.OFF,
        "Importing torch's profiler before ranks start",
        Probe.MODULE,
    ),
    Row(
        "torch.nn.parallel.distributed",
        ("DistributedDataParallel._remove_autograd_hooks",),
        ("worker/session/old_models",),
        Missing.OFF,
        "Training a model again in a session although a traceback refers to its old DistributedDataParallel",
    ),
    Row(
        "torch.cuda",
        ("_lazy_call",),
        ("worker/gpus/by_local_rank",),
        Missing.OFF,
        "Choosing the rank's own GPU for code that sees several and chooses none",
    ),
    Row(
        "torch",
        ("_GLOBAL_DEVICE_CONTEXT",),
        ("worker/settings/libraries/torch",),
        Missing.OFF,
        "Copying torch's default device from the notebook",
    ),
    Row(
        "torch._tensor_str",
        ("PRINT_OPTS",),
        ("worker/settings/libraries/torch",),
        Missing.OFF,
        "Copying torch's print options from the notebook",
    ),
    Row(
        "torch.distributed.rpc.api",
        ("_ALL_WORKER_NAMES",),
        ("worker/__main__",),
        Missing.OFF,
        "Detecting whether a rank has used RPC before it ends",
    ),
    Row(
        "torch._C._distributed_c10d",
        ("_dump_fr_trace_json",),
        _RECORDER,
        Missing.OFF,
        "Saying at which collective ranks have parted",
    ),
    Row(
        "torch._C._distributed_c10d",
        ("_dump_nccl_trace_json",),
        _RECORDER,
        Missing.OFF,
        "Saying at which collective of NCCL ranks have parted",
        Probe.SOME_BUILDS,
    ),
    Row(
        "torch.distributed.distributed_c10d",
        ("_world",),
        _RECORDER,
        Missing.OFF,
        "Naming the ranks of a process group at which ranks have parted",
    ),
    Row(
        "torch.autograd",
        ("_profiler_enabled",),
        ("worker/steps/trace",),
        Missing.OFF,
        "Leaving a rank's own profiler alone when somebody asks for a trace",
    ),
    Row(
        "torch.utils.data.dataloader",
        ("_BaseDataLoaderIter", "_BaseDataLoaderIter.__next__"),
        _STEPS,
        Missing.NOTE,
        "Measuring how long steps wait for a DataLoader",
    ),
    Row(
        "torch.nn.parallel.distributed",
        (
            "DistributedDataParallel._set_ddp_runtime_logging_sample_rate",
            "DistributedDataParallel._sync_buffers",
        ),
        _STEPS,
        Missing.NOTE,
        "Measuring how long steps wait in DistributedDataParallel",
    ),
    Row(
        "torch._C._distributed_c10d",
        ("Logger._get_ddp_logging_data",),
        _STEPS,
        Missing.NOTE,
        "Measuring how long steps wait in DistributedDataParallel",
    ),
    Row(
        "torch.utils.data.dataloader",
        ("_BaseDataLoaderIter.__next__",),
        _HINTS,
        Missing.NOTE,
        "Looking for ranks that train on the same data",
    ),
    Row(
        "torch.distributed.distributed_c10d",
        ("_world",),
        _HINTS,
        Missing.NOTE,
        "Looking for ranks that train a model each",
    ),
    Row(
        "torch.distributed.distributed_c10d",
        ("_world",),
        ("worker/session/gloo_sockets",),
        Missing.OFF,
        "Opening the process group of a session again after a rank could not open its own",
    ),
    Row(
        "torch.distributed.distributed_c10d",
        ("_world",),
        ("worker/session/nccl_groups",),
        Missing.OFF,
        "Leaving a collective of NCCL in a session without ending the rank",
    ),
    Row(
        "torch._C._distributed_c10d",
        ("ProcessGroup._get_backend", "ProcessGroupNCCL._group_start", "ProcessGroupNCCL._group_end"),
        ("worker/session/nccl_groups",),
        Missing.OFF,
        "Leaving collectives of several groups of NCCL in a session without ending the rank",
        Probe.SOME_BUILDS,
    ),
    Row(
        "torch",
        ("_C._distributed_c10d", "_C._distributed_c10d.ProcessGroup._get_sequence_number_for_group"),
        _HINTS,
        Missing.NOTE,
        "Looking for ranks that train a model each",
    ),
    Row(
        "torch.distributed.elastic.rendezvous.dynamic_rendezvous",
        ("_state_holder",),
        ("worker/launchers/torchrun_host",),
        Missing.OFF,
        "Counting restarts of torchrun over several hosts",
        Probe.WRITTEN,
    ),
)
