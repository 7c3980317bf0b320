"""The flags of the backend `horovod`: those of horovodrun, as its users write them."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.backends.horovod import elastic_local
from jupyter_dist.backends.horovod.options import HorovodOptions, flags
from jupyter_dist.errors import InputError
from jupyter_dist.flags import flags_of
from jupyter_dist.hosts.openssh import options
from jupyter_dist.plan.run_plan import read_command_line, run_flags
from jupyter_dist.worker.launchers.horovodrun_rank import GPUS

needs_horovod = pytest.mark.needs("horovod", "torch", "tensorflow", "tf_keras")
HERE = [{"name": "localhost", "slots": 3}, {"name": "127.0.0.1", "slots": 1}]


@needs_horovod
def test_every_flag_of_horovodruns_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under its own name, or with a sentence that says why not."""
    from horovod.runner import launch as launcher

    class Asked(Exception):
        pass

    def parse_args(parser: argparse.ArgumentParser) -> None:
        raise Asked(parser._actions)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    with pytest.raises(Asked) as asked:
        launcher.parse_args()
    own = flags_of(HorovodOptions)
    known = {name for flag in (*own, *run_flags()) for name in flag.names}
    known |= {"--no-" + flag.names[0].removeprefix("--") for flag in own if flag.kind == "switch"}
    shown = [action for action in asked.value.args[0] if action.help != argparse.SUPPRESS]
    theirs = {name for action in shown for name in action.option_strings} - {"-h", "--help"}
    assert len(theirs) > 60
    assert not [name for name in theirs - known if HorovodOptions.instead_of(name) is None]


def given(line: str) -> HorovodOptions:
    """The options of a line as it stands behind %%distribute."""
    found = dict(read_command_line(f"--backend horovod {line}").given)
    del found["backend"]
    return HorovodOptions(**found)


@needs_horovod
def test_flags_as_users_of_horovodrun_write_them() -> None:
    found = given("--blacklist-cooldown-range 5 60 --network-interface a --network-interface b,c")
    assert found.blacklist_cooldown_range == "5,60"
    assert found.network_interfaces == ("a", "b", "c")
    found = given("-p 2222 -i ~/key --no-hierarchical-allreduce --fusion-threshold-mb 0 --tcp")
    assert options(found.settings())[:4] == ["-i", os.path.expanduser("~/key"), "-p", "2222"]
    assert list(flags(found)) == ["--fusion-threshold-mb", "0", "--no-hierarchical-allreduce", "--tcp"]
    with pytest.raises(InputError, match=r"--output-filename is not needed, because .*`%dist logs --rank N`"):
        given("--output-filename logs")


class TestConfigFile:
    def test_it_says_what_flags_say_and_flags_win(self, tmp_path: Path) -> None:
        file = tmp_path / "horovod.yaml"
        file.write_text(
            "controller: mpi\n"
            "params:\n  fusion_threshold_mb: 32\n  cycle_time_ms: 4.5\n  hierarchical_allreduce: false\n"
            "autotune:\n  enabled: true\n  log_file: tuned.csv\n"
            "timeline:\n  filename: t.json\n  mark_cycles: true\n"
            "stall_check:\n  enabled: false\n"
            "logging:\n  level: INFO\n  with_timestamp: false\n"
        )
        found = HorovodOptions(config_file=str(file), cycle_time_ms=1)
        assert found == HorovodOptions(
            **{"mpi": True, "fusion_threshold_mb": 32, "cycle_time_ms": 1, "hierarchical_allreduce": False},
            **{"autotune": True, "autotune_log_file": "tuned.csv", "timeline": "t.json"},
            **{"timeline_mark_cycles": True, "no_stall_check": True, "log_level": "INFO"},
            log_without_timestamp=True,
        )
        assert HorovodOptions(config_file=str(file), gloo=True).mpi is False

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "params: {fusion_treshold_mb: 3}",
                "params has the unknown key 'fusion_treshold_mb'. Valid keys: fusion",
            ),
            ("param: {}", "has the unknown section 'param'. Valid sections: controller, params"),
            ("controller: ring", "controller must be gloo or mpi, not 'ring'"),
            ("params: [1]", r"params must contain names with values, got \[1\]"),
            ("a: [", "is not a YAML file: while parsing"),
            (None, "cannot be read: No such file"),
        ],
    )
    def test_what_is_wrong_with_it(self, text: str | None, message: str, tmp_path: Path) -> None:
        file = tmp_path / "horovod.yaml"
        if text is not None:
            file.write_text(text)
        with pytest.raises(ValueError, match=message):
            HorovodOptions(config_file=str(file))


@needs_horovod
def test_what_is_passed_on_is_read_by_horovodrun(monkeypatch: pytest.MonkeyPatch) -> None:
    from horovod.runner import launch as launcher

    line = (
        "--start-timeout 60 --fusion-threshold-mb 3 --cycle-time-ms 3 --cache-capacity 3 --torus-allreduce "
        "--hierarchical-allreduce --no-hierarchical-allgather --autotune --autotune-warmup-samples 3 "
        "--autotune-steps-per-sample 3 --autotune-bayes-opt-max-samples 3 --tcp "
        "--timeline-mark-cycles --no-stall-check --stall-check-warning-time-seconds 3 --verbose "
        "--stall-check-shutdown-time-seconds 0 --gloo-timeout-seconds 3 --num-nccl-streams 3 "
        "--autotune-gaussian-process-noise 0 --mpi-threads-disable --thread-affinity 1 --log-level INFO "
        "--log-hide-timestamp"
    )
    monkeypatch.setattr(sys, "argv", ["horovodrun", "-np", "2", *flags(given(line)), "--gloo", "true"])
    read = launcher.parse_args()
    assert (read.num_proc, read.command, read.use_gloo) == (2, ["true"], True)
    assert (read.fusion_threshold_mb, read.cycle_time_ms, read.cache_capacity) == (3, 3.0, 3)
    assert (read.hierarchical_allreduce, read.hierarchical_allgather, read.torus_allreduce) == (
        True,
        False,
        True,
    )
    assert (read.autotune_gaussian_process_noise, read.stall_check_shutdown_time_seconds) == (0.0, 0)
    assert (read.log_level, read.log_with_timestamp, read.tcp_flag) == ("INFO", False, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gloo": True, "mpi": True}, "--mpi cannot be combined with --gloo. Remove one of them"),
        ({"min_np": 2, "mpi": True}, "--mpi cannot be combined with --min-np. An elastic run needs Gloo"),
        ({"min_np": 3, "max_np": 2}, "--min-np 3 is more than --max-np 2"),
        (
            {"hosts": [{"name": "a", "slots": 1}], "host_discovery_script": "x"},
            "The script names the hosts, as -H",
        ),
        (
            {"mpi_args": "--x", "gloo": True},
            "--mpi-args cannot be combined with --gloo. Gloo does not use mpirun",
        ),
        ({"mpi_args": "'x"}, "a quote is not closed"),
        ({"blacklist_cooldown_range": "0,5"}, "two numbers of seconds from 1 to 3600 such as 5,60"),
        ({"network_interfaces": "eth0;rm"}, "names of network interfaces such as eth0,eth1"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HorovodOptions(**options)


@pytest.mark.parametrize(
    ("options", "slots", "shares"),
    [
        ({"min_np": 1}, 2, "0,1;2,3"),
        ({"min_np": 1, "max_np": 4}, 4, "0;1;2;3"),
        ({"min_np": 1, "hosts": HERE}, 4, "0;1;2;3"),
        ({"min_np": 1, "max_np": 2, "hosts": HERE}, 2, "0,1;2,3"),
        ({"min_np": 1, "max_np": 8, "hosts": HERE}, 4, "0;1;2;3"),
    ],
)
def test_each_slot_of_this_machine_has_gpus_of_its_own(
    options: dict[str, Any], slots: int, shares: str
) -> None:
    found = HorovodOptions(**options)
    assert elastic_local.slots(found, 2) == slots
    assert elastic_local.environment(found, 2, Path("/run"), ["0", "1", "2", "3"])[GPUS] == shares
