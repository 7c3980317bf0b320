"""The hosts and slots of an elastic run of horovodrun, and the first steps of a rank in a slot."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from jupyter_dist.backends.horovod import host_discovery
from jupyter_dist.worker.launchers import horovodrun_rank


class TestDiscovery:
    def test_lines_in_every_notation(self) -> None:
        text = "node1:4\n\nnode2 slots=2 # spare\nnode3\n# node4\nnode1:1\n"
        assert host_discovery.parse(text, 8) == {"node1": 5, "node2": 2, "node3": 8}
        with pytest.raises(ValueError, match="got 'node1 4'"):
            host_discovery.parse("node1 4", 1)

    def test_each_slot_here_is_a_host_of_its_own(self) -> None:
        found = host_discovery.spread(3, {}, "1,30")
        assert found == {"127.0.0.1": 1, "127.00.0.1": 1, "127.000.0.1": 1}
        assert all(map(host_discovery.is_local, found))

    def test_a_slot_that_failed_comes_back_under_another_name(self) -> None:
        def names(*ago: float) -> list[str]:
            failed = {1: [time.time() - seconds for seconds in ago]}
            return list(host_discovery.spread(2, failed, "10,30"))

        assert names(9) == ["127.0.0.1"]
        assert names(11) == ["127.0.0.1", "127.00.0.01"]
        assert names(100, 19) == ["127.0.0.1"], "twice as long the second time"
        assert names(100, 21) == ["127.0.0.1", "127.00.0.001"]
        assert names(400, 300, 200, 31) == ["127.0.0.1", "127.00.0.00001"], "and never longer than the most"
        assert names(500, 400, 300, 200, 100) == ["127.0.0.1"], "and not for ever"

    def test_failures_are_seen_once(self, tmp_path: Path) -> None:
        def write(index: int, ended: float, code: int | None) -> None:
            (tmp_path / f"ranks/{index}").mkdir(parents=True, exist_ok=True)
            exit_ = {"ended": ended, "exit_code": code}
            (tmp_path / f"ranks/{index}/exit.json").write_text(json.dumps(exit_))

        (tmp_path / "slots").mkdir()
        (tmp_path / "slots/0").write_text("127.00.0.1:0")
        (tmp_path / "slots/1").write_text("127.0.0.1:0")
        (tmp_path / "slots/2").write_text("node7:0")
        assert host_discovery.look_for_failures(tmp_path) == {}
        write(0, 5.0, None)
        write(1, 6.0, 0)
        write(2, 7.0, 1)
        assert (
            host_discovery.look_for_failures(tmp_path)
            == {1: [5.0]}
            == host_discovery.look_for_failures(tmp_path)
        )
        write(0, 9.0, 1)
        assert host_discovery.look_for_failures(tmp_path) == {1: [5.0, 9.0]}

    def test_over_hosts_only_what_is_ready_is_offered(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        argv = [str(tmp_path), "1,1", "1", "hosts", "h1:2", "h2:1", "h3:1"]
        (tmp_path / "ready.json").write_text('{"h1": 0, "h3": 4}')
        assert host_discovery.main(argv) == 0
        assert capsys.readouterr().out.split() == ["h1~0.0.0:1", "h1~0.1.0:1", "h3~4.0.0:1"]
        assert json.loads((tmp_path / "wanted.json").read_text()) == {"h1": 2, "h2": 1, "h3": 1}
        for index, slot in enumerate(["h1~0.1", "h3~3.0"]):
            (tmp_path / f"ranks/{index}").mkdir(parents=True)
            (tmp_path / f"ranks/{index}/exit.json").write_text('{"ended": 5, "exit_code": null}')
            (tmp_path / "slots").mkdir(exist_ok=True)
            (tmp_path / f"slots/{index}").write_text(slot)
        for _ in range(2):
            assert host_discovery.main(argv) == 0
            shown = capsys.readouterr().out.split()
            assert shown == ["h1~0.0.0:1", "h1~0.1.1:1", "h3~4.0.0:1"], "a host that is back is a new one"

    def test_a_script_that_fails_says_so(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        argv = [str(tmp_path), "1,30", "1", "script", str(tmp_path)]
        assert host_discovery.main([*argv, "/bin/false"]) == 1
        assert "the host discovery script ended with exit code 1" in capsys.readouterr().err
        assert host_discovery.main([*argv, "/bin/echo", "not a host"]) == 1
        assert "needs lines such as `node1:4`, got 'not a host'" in capsys.readouterr().err
        (tmp_path / "ready.json").write_text('{"192.0.2.7": 0}')
        assert host_discovery.main([*argv, "/bin/echo", "192.0.2.7:1"]) == 0
        assert capsys.readouterr().out == "192.0.2.7~0.0.0:1\n"


class TestFirstSteps:
    def test_another_host_has_its_own_name_for_the_interface(self) -> None:
        there = {"GLOO_SOCKET_IFNAME": "eth7", "HOROVOD_GLOO_IFACE": "br0", "JUPYTER_DIST_STAGE": "/stage"}
        horovodrun_rank.prepare(there)
        assert there["HOROVOD_GLOO_IFACE"] == "eth7"
        here = {"GLOO_SOCKET_IFNAME": "eth7", "HOROVOD_GLOO_IFACE": "lo"}
        horovodrun_rank.prepare(here)
        assert here["HOROVOD_GLOO_IFACE"] == "lo"

    def test_a_slot_keeps_its_folder(self, tmp_path: Path) -> None:
        def folder(host: str, rank: int) -> str:
            env = {
                **{"HOROVOD_HOSTNAME": host, "HOROVOD_LOCAL_RANK": "0", "HOROVOD_RANK": str(rank)},
                **{"JUPYTER_DIST_RUN": str(tmp_path), "JUPYTER_DIST_ATTEMPT": "0"},
                **{horovodrun_rank.SLOTS: str(tmp_path / "slots"), horovodrun_rank.GPUS: "0,1;2,3"},
            }
            horovodrun_rank.prepare(env)
            assert env["CUDA_VISIBLE_DEVICES"] == ("0,1", "2,3")[int(env["JUPYTER_DIST_RANK_FOLDER"]) % 2]
            return env["JUPYTER_DIST_RANK_FOLDER"]

        assert folder("127.0.0.1", 1) == "1"
        assert folder("127.00.0.1", 0) == "0"
        assert folder("127.0.0.001", 0) == "1", "the slot of rank 1, after two failures"
        assert folder("127.000.0.1", 1) == "2", "the folder of its rank is another's"
