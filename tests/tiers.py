"""Which tests are the core, which `make test` runs, and which belong to the groups of `make test-engines`.

A test belongs to a group if a pattern of the group matches its id, unless the group leaves it to the core.
Every other test is core. The core tries every module, every message, every kind of link and of failure, and
each hosted engine in one run. docs/changing.md says how the tiers are run.
"""

from __future__ import annotations

import fnmatch
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["GROUPS", "TURNS", "Group", "dead_patterns", "group_of", "in_turn", "short_id", "turn"]

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Group:
    """Tests that are run together, and of what their result depends."""

    name: str
    minutes: float
    """How long they take on a quiet machine with two cores: what CI plans with before it has measured."""
    tests: tuple[str, ...]
    """Patterns of ids, from the folder `tests` on: `*` is any text, also in brackets."""
    core: tuple[str, ...] = ()
    """Patterns of tests that are core although a pattern of `tests` matches them."""
    command: tuple[str, ...] = ()
    """What is run in place of pytest: words behind the environment's Python."""
    backends: tuple[str, ...] = ()
    """Backends whose modules the tests load by name, and do not import."""
    watches: tuple[str, ...] = ()
    """Files and folders that are no modules, and that the result depends on."""


GROUPS = [
    # First: the groups below have the same tests with other parameters.
    Group(
        "variants",
        30.0,
        (
            "conformance/test_azureml.py::*[mpi]",
            "conformance/test_kubernetes.py::*[elastic]",
            "conformance/test_kubernetes.py::*[mailbox]",
            "conformance/test_kubernetes.py::*[mpijob]",
            "conformance/test_kubernetes.py::*[pytorchjob]",
            "conformance/test_ray.py::*[one node]",
            "conformance/test_sagemaker.py::*[agent alone]",
            "conformance/test_sagemaker.py::*[mpi]",
            "conformance/test_spark.py::*[connect]",
            "test_azureml_training.py::test_tensorflow_learns_*",
            "test_kubeflow_training.py::test_tensorflow_learns_*",
            "test_kubeflow_training.py::test_torch_learns*",
            "test_mailbox_deaths.py::*[50]",
            "test_processes.py::test_no_pool_hangs[1000]",
            "test_random_notebooks.py::*[many]",
            "test_tuning_engines.py::*[azureml*",
        ),
        backends=("azureml", "hosted", "kubernetes", "ray", "sagemaker", "spark"),
    ),
    Group(
        "upstream",
        14.0,
        ("test_upstream.py::test_same_numbers*", "test_upstream.py::test_the_launchers_numbers_*"),
        # One of each framework, and an elastic one.
        core=tuple(
            f"test_upstream.py::test_same_numbers[{name}]"
            for name in (
                "horovod_pytorch_mnist_elastic",
                "keras_distributed_torch",
                "pytorch_ddp_example",
                "tensorflow_multi_worker_with_ctl",
            )
        ),
        watches=("tests/upstream", "tests/golden/upstream.json"),
        backends=(
            "local",
            "torchrun",
            "horovod",
            "ray",
        ),
    ),
    Group(
        "notebooks",
        11.5,
        ("test_notebooks.py::test_*",),
        core=(
            "test_notebooks.py::test_quickstart",
            "test_notebooks.py::test_a_failing_cell_*",
            "test_notebooks.py::test_no_*",
        ),
        watches=("notebooks", "tools/run_notebook.py"),
        backends=("local",),
    ),
    Group(
        "mpi",
        3.0,
        (
            "conformance/test_mpi.py::*",
            "conformance/test_horovod.py::*mpi]",
            "test_gpus.py::test_hosts_take_their_gpus_*mpi]",
            "test_horovod.py::*-mpi]",
            "test_mpi_hosts.py::*",
            "test_mpi_slurm.py::*",
            "test_tuning.py::test_trials_have_ranks_on_other_backends[mpi]",
        ),
        core=(
            "test_horovod.py::test_horovods_torch_loop[2-mpi]",
            "test_mpi_hosts.py::test_the_request_*",
            "test_mpi_hosts.py::test_srun_takes_*",
            "test_mpi_hosts.py::test_a_failing_rank_*openmpi*",
        ),
        backends=("mpi", "horovod"),
    ),
    Group(
        "launchers",
        6.0,
        (
            "conformance/test_horovod.py::TestHorovodLink::*gloo]",
            "conformance/test_third_party.py::TestThirdParty::*",
            "conformance/test_torchrun.py::TestTorchrunLink::*",
            "test_gpus.py::test_hosts_take_their_gpus_*horovod]",
            "test_gpus.py::test_hosts_take_their_gpus_*torchrun]",
            "test_gpus.py::test_launchers_take_a_gpu_*[horovod]",
            "test_gpus.py::test_launchers_take_a_gpu_*[torchrun]",
            "test_gpus.py::test_cells_for_horovod_*[elastic]",
            "test_gpus.py::test_launchers_take_a_gpu_*[elastic horovod]",
            "test_horovod.py::test_what_is_killed_*[a rank-gloo]",
            "test_horovod.py::test_what_is_killed_*[horovodrun-gloo]",
            "test_horovod.py::test_a_host_that_the_script_finds_joins",
            "test_horovod.py::test_a_rank_joins_what_keras_trains",
            "test_horovod.py::test_horovods_torch_loop[4-gloo]",
            "test_horovod.py::test_several_hosts*",
            "test_horovod.py::test_a_rank_killed_on_another_host_*",
            "test_horovod.py::test_another_host_joins_*",
            "test_horovod.py::test_named_hosts_*",
            "test_horovod.py::test_this_machine_may_be_*",
            "test_horovod_hosts.py::test_hosts_go_and_come*",
            "test_torchrun_hosts.py::test_hosts_come_late_*",
            "test_mailbox.py::test_drivers_come_and_go",
            "conformance/test_mailbox.py::*_supervisor_is_killed",
            "conformance/test_mailbox.py::*_50_megabytes_*",
            "conformance/test_mailbox.py::*_20_megabytes_*",
            "conformance/test_mailbox.py::*_a_restart_is_*",
            "conformance/test_mailbox.py::*_a_timeout_*",
            "conformance/test_mailbox.py::*_a_kill_ends_*",
            "test_faults.py::test_a_line_of_200_ms*",
            "test_faults.py::test_a_full_disk_here_*",
            "test_mailbox_deaths.py::*",
            "test_ssh.py::test_gloo_over_three_hosts",
            "test_ssh.py::test_a_cell_that_shows_an_unwatched_run_*",
            "test_supervisor_trust.py::*_at_random*",
            "test_ssh.py::test_64_ranks_*",
            "test_tuning.py::test_trials_have_ranks_on_other_backends[torchrun]",
        ),
        backends=(
            "horovod",
            "torchrun",
            "hosted",
            "ssh",
        ),
    ),
    Group(
        "ray",
        11.0,
        (
            "conformance/test_ray.py::*",
            "test_ray.py::*",
            "test_ray_census.py::*",
            "test_ray_deaths.py::*",
            "test_ray_launcher.py::*",
            "test_ray_train.py::*",
            "test_rays_clients.py::*",
            "test_shard_ray.py::*",
            "test_tuning_engines.py::*ray-tune*",
            "ui/test_ray_clusters.py::*",
        ),
        core=(
            "test_ray.py::test_every_line_of_four_ranks_*",
            "test_ray.py::test_another_version_behind_*",
            "test_ray.py::test_a_client_asks_*",
            "test_ray.py::test_a_clients_server_*",
            "test_ray.py::test_calls_that_overtake_*",
            "test_ray.py::test_nobody_at_the_address",
            "test_ray.py::test_the_ray_that_is_meant",
            "test_ray.py::test_options",
            "test_ray_census.py::test_a_ray_is_found_*",
            "test_ray_census.py::test_what_it_lacks_*",
            "test_ray_launcher.py::test_what_is_no_*",
            "test_ray_launcher.py::test_a_file_that_*",
            "test_ray_launcher.py::test_what_the_check_*",
            "test_ray_launcher.py::test_the_name_of_*",
            "test_shard_ray.py::test_a_rank_without_ray_*",
        ),
        backends=("ray",),
    ),
    Group(
        "spark",
        4.0,
        (
            "conformance/test_spark.py::*",
            "conformance/test_databricks.py::*",
            "test_spark.py::TestSession::*",
            "test_spark_masters.py::*",
            "test_on_spark.py::*",
            "test_databricks.py::*",
        ),
        core=(
            "test_spark.py::TestSession::test_it_is_said_*",
            "test_spark.py::TestSession::test_it_is_shown_*",
            "test_spark.py::TestSession::test_horovodrunner",
            "test_spark.py::TestSession::test_slots_that_are_not_there",
            "test_spark.py::TestSession::test_its_secret_*",
            "test_databricks.py::test_bad_input_*",
            "test_databricks.py::test_a_runtime_with_*",
            "test_databricks.py::test_ranks_are_spread_*",
            "test_databricks.py::test_what_a_new_cluster_*",
            "test_databricks.py::test_the_request_*",
        ),
        backends=("spark", "databricks"),
    ),
    Group(
        "sagemaker",
        7.0,
        (
            "conformance/test_sagemaker.py::*",
            "test_sagemaker.py::*",
            "test_sagemaker_attach.py::test_ranks_of_mpi_*",
            "test_sagemaker_attach.py::test_how_it_ends_*",
            "test_sagemaker_distributions.py::*",
            "test_sagemaker_examples.py::*",
            "test_sagemaker_tuning.py::test_training_jobs_are_trials",
            "test_sagemaker_tuning.py::test_a_tuning_that_is_stopped_*",
            "test_tuning_engines.py::*sagemaker*",
        ),
        core=(
            "test_sagemaker.py::test_two_instances_train_one_model",
            "test_sagemaker.py::test_a_driver_that_is_killed_while_it_starts_a_job",
            "test_sagemaker.py::test_a_submission_that_is_refused*",
        ),
        backends=("sagemaker",),
    ),
    Group(
        "kubernetes",
        6.0,
        (
            "conformance/test_kubernetes.py::*",
            "test_kubeflow.py::*",
            "test_kubeflow_elastic.py::*",
            "test_kubeflow_training.py::*",
            "test_kubernetes_attach.py::*",
            "test_kubernetes_faults.py::*",
            "test_kubernetes_in_a_pod.py::*",
            "test_kubernetes_mailbox.py::*",
        ),
        core=("test_kubernetes_mailbox.py::test_a_pods_number",),
        backends=("kubernetes",),
    ),
    Group(
        "azureml",
        3.0,
        (
            "conformance/test_azureml.py::*",
            "test_azureml.py::*",
            "test_azureml_attach.py::*",
            "test_azureml_training.py::*",
        ),
        core=(
            "test_azureml.py::test_the_stand_in_s_policies*",
            "test_azureml_attach.py::test_whose_log_it_is",
            "test_azureml_attach.py::test_a_log_that_is_cut_off_*",
        ),
        backends=("azureml",),
    ),
    Group(
        "frameworks",
        4.0,
        (
            "test_autolog.py::test_lightning_fit[lightning.pytorch-*",
            "test_autolog.py::test_lightning_fit[pytorch_lightning-*",
            "test_processes.py::test_what_torch_spawns_*",
            "test_random_notebooks.py::test_a_rank_sees_*[few]",
            "test_remade_keras.py::test_all_kinds_arrive",
            "test_trainers.py::test_hugging_face",
            "test_trainers.py::test_lightning",
            "test_tuning.py::test_begins_with_what_a_parent_knows",
            "test_world.py::test_the_head_of_an_example_*",
            "test_keras3.py::*",
            "test_legacy_keras.py::test_fit_on_two_workers_*",
            "test_strategy.py::test_a_chief_trains_*",
            "test_strategy.py::test_without_a_chief_*",
            "test_strategy.py::test_the_usual_script_*",
            "test_strategy.py::test_a_dead_worker_*",
            "test_strategy.py::test_one_rank_trains_*",
            "test_spanning.py::*",
        ),
        backends=("local", "horovod"),
    ),
    Group(
        "browser",
        2.5,
        (
            "ui/test_access.py::test_axe_*Dark*",
            "ui/test_fallback.py::test_a_saved_notebook_*",
            "ui/test_pictures.py::*",
            "ui/test_quickstart.py::*",
            "ui/test_results.py::test_ten_thousand_*",
            "ui/test_survival.py::test_behind_a_prefix_*",
            "ui/test_survival.py::test_close_restart_*",
        ),
        core=("ui/test_survival.py::test_close_restart_*[tksrt]",),
        watches=("labextension", "package.json", "package-lock.json"),
    ),
    Group(
        "benchmarks",
        1.5,
        ("test_benchmarks.py::test_our_side_of_a_benchmark_runs*",),
        watches=("benchmarks",),
    ),
    Group(
        "pythons",
        12.0,
        (),
        command=("tools/pythons.py",),
        watches=("jupyter_dist", "tests", "pyproject.toml"),
    ),
]

TURNS = [
    "conformance/test_mpi.py::*openmpi]",
    "conformance/test_mpi.py::*mpich]",
    "conformance/test_horovod.py::*mpi]",
    "conformance/test_third_party.py::TestThirdParty::*",
    "conformance/test_ray.py::*[two nodes]",
    "conformance/test_spark.py::*[session]",
    "conformance/test_databricks.py::*",
    "conformance/test_sagemaker.py::*[torchrun]",
    "conformance/test_kubernetes.py::*[job]",
    "conformance/test_azureml.py::*[pytorch]",
]
"""Targets of which one at a time is core, with the runs that are the platform's own."""
RUNS_IN_TURN = {"good", "raised", "stopped"}
"""Fixtures of the conformance suite: a run that goes well, one whose cell raises, one that is stopped."""


def short_id(node_id: str) -> str:
    """A test's id from the folder `tests` on."""
    return node_id.removeprefix("tests/")


def group_of(test: str) -> Group | None:
    """The group that a test belongs to, by its short id; None where it is core."""
    for group in GROUPS:
        if _matches(test, group.tests):
            return None if _matches(test, group.core) else group
    return None


def in_turn(test: str, fixtures: set[str], number: int) -> bool:
    """Whether the core has this test this time, although it belongs to a group."""
    return bool(fixtures & RUNS_IN_TURN) and _matches(test, (TURNS[number % len(TURNS)],))


def dead_patterns(tests: list[str]) -> list[str]:
    """Patterns of the table that match none of these short ids."""
    patterns = [pattern for group in GROUPS for pattern in (*group.tests, *group.core)]
    return [
        pattern for pattern in (*patterns, *TURNS) if not any(_matches(test, (pattern,)) for test in tests)
    ]


def turn() -> int:
    """A number that changes with each commit; JUPYTER_DIST_TURN, if that is set."""
    if (given := os.environ.get("JUPYTER_DIST_TURN")) is not None:
        return int(given)
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    try:
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout[:8], 16)
    except (OSError, subprocess.CalledProcessError):
        return 0


def _matches(test: str, patterns: tuple[str, ...]) -> bool:
    # fnmatch reads brackets as a choice of letters, and ids are full of them.
    plain = test.replace("[", "{")
    return any(fnmatch.fnmatchcase(plain, pattern.replace("[", "{")) for pattern in patterns)
