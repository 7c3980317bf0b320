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

ROOT = Path(__file__).resolve().parents[2]


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
            "backends/azureml/test_azureml_training.py::test_tensorflow_learns_*",
            "backends/kubernetes/test_kubeflow_training.py::test_tensorflow_learns_*",
            "backends/kubernetes/test_kubeflow_training.py::test_torch_learns*",
            "hosts/test_mailbox_deaths.py::*[50]",
            "worker/rank/test_child_processes.py::test_no_pool_hangs[1000]",
            "worker/pickling/test_random_notebooks.py::*[many]",
            "worker/pickling/test_random_notebooks.py::test_every_kind_*",
            "worker/pickling/test_across_pythons.py::*-many]",
            "tuning/test_tuning_engines.py::*[azureml*",
        ),
        backends=("azureml", "hosted", "kubernetes", "ray", "sagemaker", "spark"),
    ),
    Group(
        "upstream",
        14.0,
        (
            "end_to_end/test_upstream.py::test_same_numbers*",
            "end_to_end/test_upstream.py::test_the_launchers_numbers_*",
        ),
        # One of each framework, and an elastic one.
        core=tuple(
            f"end_to_end/test_upstream.py::test_same_numbers[{name}]"
            for name in (
                "horovod_pytorch_mnist_elastic",
                "keras_distributed_torch",
                "pytorch_ddp_example",
                "tensorflow_multi_worker_with_ctl",
            )
        ),
        watches=("tests/end_to_end/upstream", "tests/golden/upstream.json"),
        backends=(
            "local",
            "torchrun",
            "horovod",
            "ray",
        ),
    ),
    Group(
        "other_pythons",
        2.0,
        (
            "worker/pickling/test_across_pythons.py::*",
            "backends/ssh/test_ssh_pythons.py::test_a_cell_runs_*",
        ),
        core=(
            "backends/ssh/test_ssh_pythons.py::test_a_cell_runs_*[3.10]",
            "worker/pickling/test_across_pythons.py::test_each_kind*",
            "worker/pickling/test_across_pythons.py::test_a_function_without_*",
            "worker/pickling/test_across_pythons.py::test_corners[3.10-*",
            "worker/pickling/test_across_pythons.py::test_what_the_oldest_*",
        ),
        backends=("ssh",),
    ),
    Group(
        "notebooks",
        11.5,
        ("end_to_end/test_notebooks.py::test_*", "end_to_end/test_listings.py::test_each_row_*"),
        core=(
            "end_to_end/test_notebooks.py::test_quickstart",
            "end_to_end/test_notebooks.py::test_a_failing_cell_*",
            "end_to_end/test_notebooks.py::test_each_cell_could_run*",
            "end_to_end/test_notebooks.py::test_no_*",
        ),
        watches=("notebooks", "tools/run_notebook.py", "docs/listings.md"),
        backends=("local",),
    ),
    Group(
        "failures",
        8.0,
        (
            "end_to_end/test_plants.py::test_the_first_line_*",
            "end_to_end/test_plants.py::test_the_users_own_*[TORCH_NCCL*",
            "end_to_end/test_whole_runs.py::test_a_killed_*[cold]",
            "end_to_end/test_hints.py::test_a_model_for_each_rank*",
            "end_to_end/test_hints.py::test_horovod_*",
        ),
        core=tuple(
            f"end_to_end/test_plants.py::test_the_first_line_names_the_cause[{name}]"
            for name in (
                *(
                    "ends-early",
                    "exit-0",
                    "sleeps",
                    "type",
                    "one-more",
                    "barrier",
                    "no-init",
                ),
                *(
                    "ddp-uneven",
                    "horovod-shape",
                    "horovod-skips",
                    "keras-uneven",
                ),
            )
        ),
        backends=("local", "torchrun", "horovod", "ssh", "ray"),
        watches=("tests/rigs/plants.py",),
    ),
    Group(
        "mpi",
        3.0,
        (
            "conformance/test_mpi.py::*",
            "conformance/test_horovod.py::*mpi]",
            "backends/local/test_local_gpus.py::test_hosts_take_their_gpus_*mpi]",
            "backends/horovod/test_horovod.py::*-mpi]",
            "backends/mpi/test_mpi_hosts.py::*",
            "backends/mpi/test_mpi_slurm.py::*",
            "backends/mpi/test_mpi.py::test_a_stopped_rank_*[mpiexec.mpich]",
            "backends/mpi/test_mpi.py::test_ranks_end_with_*[mpiexec.mpich]",
            "backends/mpi/test_mpi.py::test_the_first_rank_to_fail_*[mpiexec.mpich]",
            "tuning/test_tuning.py::test_trials_have_ranks_on_other_backends[mpi]",
        ),
        core=(
            "backends/horovod/test_horovod.py::test_horovods_torch_loop[2-mpi]",
            "backends/mpi/test_mpi_hosts.py::test_the_request_*",
            "backends/mpi/test_mpi_hosts.py::test_srun_takes_*",
            "backends/mpi/test_mpi_hosts.py::test_a_failing_rank_*openmpi*",
        ),
        backends=("mpi", "horovod"),
    ),
    Group(
        "launchers",
        7.0,
        (
            "conformance/test_horovod.py::TestHorovodLink::*gloo]",
            "conformance/test_third_party.py::TestThirdParty::*",
            "conformance/test_torchrun.py::TestTorchrunLink::*",
            "backends/local/test_local_gpus.py::test_hosts_take_their_gpus_*horovod]",
            "backends/local/test_local_gpus.py::test_hosts_take_their_gpus_*torchrun]",
            "backends/local/test_local_gpus.py::test_launchers_take_a_gpu_*[horovod]",
            "backends/local/test_local_gpus.py::test_launchers_take_a_gpu_*[torchrun]",
            "backends/local/test_local_gpus.py::test_cells_for_horovod_*[elastic]",
            "backends/local/test_local_gpus.py::test_launchers_take_a_gpu_*[elastic horovod]",
            "backends/horovod/test_horovod.py::test_what_is_killed_*[a rank-gloo]",
            "backends/horovod/test_horovod.py::test_what_is_killed_*[horovodrun-gloo]",
            "backends/horovod/test_horovod.py::test_a_host_that_the_script_finds_joins",
            "backends/horovod/test_horovod.py::test_a_rank_joins_what_keras_trains",
            "backends/horovod/test_horovod.py::test_horovods_torch_loop[4-gloo]",
            "backends/horovod/test_horovod.py::test_several_hosts*",
            "backends/horovod/test_horovod.py::test_a_rank_killed_on_another_host_*",
            "backends/horovod/test_horovod.py::test_another_host_joins_*",
            "backends/horovod/test_horovod.py::test_named_hosts_*",
            "backends/horovod/test_horovod.py::test_this_machine_may_be_*",
            "backends/horovod/test_horovod_hosts.py::test_hosts_go_and_come*",
            "backends/torchrun/test_torchrun_hosts.py::test_hosts_come_late_*",
            "hosts/test_mailbox.py::test_drivers_come_and_go",
            "conformance/test_mailbox.py::*_supervisor_is_killed",
            "conformance/test_mailbox.py::*_50_megabytes_*",
            "conformance/test_mailbox.py::*_20_megabytes_*",
            "conformance/test_mailbox.py::*_a_restart_is_*",
            "conformance/test_mailbox.py::*_a_timeout_*",
            "conformance/test_mailbox.py::*_a_kill_ends_*",
            "conformance/test_mailbox.py::*_an_exit_code_*",
            "conformance/test_mailbox.py::*_cannot_be_pickled_*",
            "conformance/test_mailbox.py::*_ends_early_*",
            "conformance/test_mailbox.py::*_one_rank_alone_*",
            "conformance/test_mailbox.py::*_a_detached_run_*",
            "conformance/test_mailbox.py::*_a_rank_that_is_killed_*",
            "conformance/test_mailbox.py::*_an_interrupt_is_*",
            "conformance/test_mailbox.py::*_nothing_is_lost_*",
            "conformance/test_mailbox.py::TestMailboxSession::test_a_dead_rank_*",
            "conformance/test_mailbox.py::TestMailboxSession::test_an_error_and_*",
            "hosts/test_mailbox.py::test_a_store_that_is_away[20 s]",
            "worker/test_stack_requests.py::test_a_sleep_of_c_code_*[torchrun]",
            "hosts/test_host_faults.py::test_a_line_of_200_ms*",
            "hosts/test_host_faults.py::test_a_full_disk_here_*",
            "hosts/test_host_faults.py::test_a_killed_supervisor_*",
            "hosts/test_mailbox_deaths.py::*",
            "backends/ssh/test_ssh.py::test_gloo_over_three_hosts",
            "sessions/test_horovod.py::test_ranks_leave_an_operation_and_*[stop]",
            "sessions/test_horovod.py::test_a_rank_that_dies_between_*",
            "sessions/test_horovod.py::test_an_optimizer_trains_on_*",
            "sessions/test_hosts.py::test_a_lost_connection_*",
            "sessions/test_hosts.py::test_a_host_that_*",
            "sessions/test_hosts.py::test_an_agent_that_ends_*",
            "sessions/test_hosts.py::test_ranks_leave_a_collective_*",
            "backends/ssh/test_ssh.py::test_a_cell_that_shows_an_unwatched_run_*",
            "supervise/test_untrusted_backends.py::*_at_random*",
            "backends/ssh/test_ssh.py::test_64_ranks_*",
            "backends/ssh/test_ssh.py::test_ranks_of_two_hosts_are_in_one_trace",
            "tuning/test_tuning.py::test_trials_have_ranks_on_other_backends[torchrun]",
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
            "backends/ray/test_ray.py::*",
            "backends/ray/test_cluster_state.py::*",
            "backends/ray/test_node_failures.py::*",
            "start/test_ray_clusters.py::*",
            "worker/trainers/test_ray_train.py::*",
            "backends/ray/test_ray_clients.py::*",
            "worker/data/test_ray_datasets.py::*",
            "tuning/test_tuning_engines.py::*ray-tune*",
            "tuning/test_population.py::test_trials_share_a_ray",
            "tuning/test_ray_schedulers.py::*",
            "ui/test_ray_clusters.py::*",
        ),
        core=(
            "backends/ray/test_ray.py::test_every_line_of_four_ranks_*",
            "backends/ray/test_ray.py::test_another_version_behind_*",
            "backends/ray/test_ray.py::test_a_client_asks_*",
            "backends/ray/test_ray.py::test_a_clients_server_*",
            "backends/ray/test_ray.py::test_calls_that_overtake_*",
            "backends/ray/test_ray.py::test_nobody_at_the_address",
            "backends/ray/test_ray.py::test_the_ray_that_is_meant",
            "backends/ray/test_ray.py::test_options",
            "backends/ray/test_cluster_state.py::test_a_ray_is_found_*",
            "backends/ray/test_cluster_state.py::test_what_it_lacks_*",
            "start/test_ray_clusters.py::test_what_is_no_*",
            "start/test_ray_clusters.py::test_a_file_that_*",
            "start/test_ray_clusters.py::test_what_the_check_*",
            "start/test_ray_clusters.py::test_the_name_of_*",
            "worker/data/test_ray_datasets.py::test_a_rank_without_ray_*",
        ),
        backends=("ray",),
    ),
    Group(
        "spark",
        4.0,
        (
            "conformance/test_spark.py::*",
            "conformance/test_databricks.py::*",
            "backends/spark/test_spark.py::TestSession::*",
            "backends/spark/test_spark_masters.py::*",
            "backends/spark/test_notebook_session.py::*",
            "backends/databricks/test_databricks.py::*",
        ),
        core=(
            "backends/spark/test_spark.py::TestSession::test_it_is_said_*",
            "backends/spark/test_spark.py::TestSession::test_it_is_shown_*",
            "backends/spark/test_spark.py::TestSession::test_horovodrunner",
            "backends/spark/test_spark.py::TestSession::test_slots_that_are_not_there",
            "backends/spark/test_spark.py::TestSession::test_its_secret_*",
            "backends/databricks/test_databricks.py::test_bad_input_*",
            "backends/databricks/test_databricks.py::test_a_runtime_with_*",
            "backends/databricks/test_databricks.py::test_ranks_are_spread_*",
            "backends/databricks/test_databricks.py::test_what_a_new_cluster_*",
            "backends/databricks/test_databricks.py::test_the_request_*",
        ),
        backends=("spark", "databricks"),
    ),
    Group(
        "sagemaker",
        7.2,
        (
            "conformance/test_sagemaker.py::*",
            "backends/sagemaker/test_sagemaker.py::*",
            "backends/sagemaker/test_sagemaker_attach.py::test_ranks_of_mpi_*",
            "backends/sagemaker/test_sagemaker_attach.py::test_how_it_ends_*",
            "backends/sagemaker/test_sagemaker_attach.py::test_a_tuning_job_*",
            "backends/sagemaker/test_sagemaker_distributions.py::*",
            "backends/sagemaker/test_sagemaker_examples.py::*",
            "backends/sagemaker/test_sagemaker_pythons.py::*",
            "backends/sagemaker/test_sagemaker_sessions.py::*",
            "backends/sagemaker/test_sagemaker_tuning.py::test_a_tuning_begins_*",
            "backends/sagemaker/test_sagemaker_tuning.py::test_training_jobs_are_trials",
            "backends/sagemaker/test_sagemaker_tuning.py::test_a_tuning_that_is_stopped_*",
            "tuning/test_tuning_engines.py::*sagemaker*",
        ),
        core=(
            "backends/sagemaker/test_sagemaker.py::test_two_instances_train_one_model",
            "backends/sagemaker/test_sagemaker.py::test_a_driver_that_is_killed_while_it_starts_a_job",
            "backends/sagemaker/test_sagemaker.py::test_a_submission_that_is_refused*",
        ),
        backends=("sagemaker",),
    ),
    Group(
        "kubernetes",
        6.0,
        (
            "conformance/test_kubernetes.py::*",
            "backends/kubernetes/test_kubeflow.py::*",
            "backends/kubernetes/test_kubeflow_elastic.py::*",
            "backends/kubernetes/test_kubeflow_training.py::*",
            "backends/kubernetes/test_kubernetes_attach.py::*",
            "backends/kubernetes/test_kubernetes_faults.py::*",
            "backends/kubernetes/test_kubernetes_in_a_pod.py::*",
            "backends/kubernetes/test_kubernetes_mailbox.py::*",
        ),
        core=("backends/kubernetes/test_kubernetes_mailbox.py::test_a_pods_number",),
        backends=("kubernetes",),
    ),
    Group(
        "azureml",
        3.0,
        (
            "conformance/test_azureml.py::*",
            "backends/azureml/test_azureml.py::*",
            "backends/azureml/test_azureml_attach.py::*",
            "backends/azureml/test_azureml_sweep.py::*",
            "backends/azureml/test_azureml_training.py::*",
        ),
        core=(
            "backends/azureml/test_azureml_sweep.py::test_the_stand_in_s_policies*",
            "backends/azureml/test_azureml_attach.py::test_whose_log_it_is",
            "backends/azureml/test_azureml_attach.py::test_a_log_that_is_cut_off_*",
        ),
        backends=("azureml",),
    ),
    Group(
        "frameworks",
        4.6,
        (
            "worker/autolog/test_autolog.py::test_lightning_fit[lightning.pytorch-*",
            "worker/autolog/test_autolog.py::test_lightning_fit[pytorch_lightning-*",
            "worker/rank/test_child_processes.py::test_what_torch_spawns_*",
            "worker/pickling/test_random_notebooks.py::test_a_rank_sees_*[few]",
            "worker/pickling/test_keras_reducer.py::test_all_kinds_arrive",
            "worker/pickling/test_trainers.py::test_hugging_face",
            "worker/pickling/test_trainers.py::test_lightning",
            "worker/settings/test_library_calls.py::test_registered_models_*",
            "backends/local/test_local_gpus.py::test_an_object_of_accelerate_*[made before]",
            "sessions/test_tensorflow.py::test_the_others_stay_*[1]",
            "sessions/test_tensorflow.py::test_the_cell_that_makes_*",
            "sessions/test_tensorflow.py::test_the_others_leave_*",
            "tuning/test_tuning.py::test_begins_with_what_a_parent_knows",
            "worker/pickling/test_notebook_objects.py::test_the_head_of_an_example_*",
            "record/test_keras_hints.py::*",
            "worker/keras/test_keras3.py::*",
            "worker/keras/test_tf_keras.py::test_fit_on_two_workers_*",
            "worker/tensorflow/test_strategies.py::test_a_chief_trains_*",
            "worker/tensorflow/test_strategies.py::test_without_a_chief_*",
            "worker/tensorflow/test_strategies.py::test_the_usual_script_*",
            "worker/tensorflow/test_strategies.py::test_a_dead_worker_*",
            "worker/tensorflow/test_strategies.py::test_one_rank_trains_*",
            "worker/trainers/test_lightning_and_accelerate.py::*",
        ),
        backends=("local", "horovod"),
    ),
    Group(
        "browser",
        3.1,
        (
            "ui/test_access.py::test_axe_*Dark*",
            "ui/test_fallback.py::test_a_saved_notebook_*",
            "ui/test_pictures.py::*",
            "ui/test_quickstart.py::*",
            "ui/test_results.py::test_ten_thousand_*",
            "ui/test_notebook7.py::*",
            "ui/test_run_labels_view.py::test_500_runs_*",
            "ui/test_run_view.py::test_the_height_of_a_view_*[one line]",
            "ui/test_run_view.py::test_the_height_of_a_view_*[steps]",
            "ui/test_survival.py::test_a_detached_run_*",
            "ui/test_true_states.py::test_a_run_that_hung_until_*",
            "ui/test_survival.py::test_behind_a_prefix_*",
            "ui/test_survival.py::test_close_restart_*",
        ),
        core=("ui/test_survival.py::test_close_restart_*[ks]",),
        watches=("labextension", "package.json", "package-lock.json"),
    ),
    Group(
        "benchmarks",
        1.5,
        ("end_to_end/test_benchmarks.py::test_our_side_of_a_benchmark_runs*",),
        watches=("benchmarks",),
    ),
    Group(
        "pythons",
        16.0,
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
