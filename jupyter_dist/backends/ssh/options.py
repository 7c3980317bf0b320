"""The options of the backend `ssh`."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from ...cluster_form import Form
from ...hosts.openssh import SshSettings
from ...option_fields import flag
from ..elastic.options import ElasticOptions
from ..ranks.placement import RankEnvironmentOptions
from ..shared_options.agent import Line
from ..shared_options.gpus import GpuOptions
from ..shared_options.hosts import HostOptions

__all__ = ["SshOptions"]


class SshOptions(ElasticOptions, HostOptions, GpuOptions):
    """Options of the backend `ssh`."""

    form: ClassVar[Form] = Form(
        first=("np", "hosts", "python", "gpus_per_worker", "env"),
        sections={"Hosts": "hostfile interface"},
    )

    interface: Line = flag(
        None,
        "Network interface",
        "The network interface that the hosts use among each other (MASTER_ADDR, gloo, "
        "NCCL). If its name differs between hosts, write several names with commas. Default: "
        "the interface of the ssh connection",
        value=("NAME", "the name of a network interface, such as eth1"),
    )

    def settings(self) -> SshSettings:
        return dataclasses.replace(super().settings(), interface=self.interface)

    def wanted(self) -> RankEnvironmentOptions:
        """The options for the ranks' environments."""
        return RankEnvironmentOptions.of(self, synced=bool(self.rsync_paths))
