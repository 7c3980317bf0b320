"""The objects that the backend `kubernetes` would create, beside those that Kubeflow's own SDKs create."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.backends.kubernetes.job_kinds import KINDS
from jupyter_dist.backends.kubernetes.manifests import job_object
from jupyter_dist.backends.kubernetes.options import KubernetesOptions
from jupyter_dist.errors import InputError
from jupyter_dist.plan.run_plan import make_plan, read_command_line
from jupyter_dist.start.session_cells import check_session
from tests.rigs.run_maker import RunMaker

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "kubeflow_requests.json").read_text())

LACKING = r"""
\.namespace                        # in the path of our request
\.resources\.limits\.cpu           # a rank may use CPUs that nobody else uses
\.resources\.requests\.nvidia.*    # Kubernetes requests what is the limit
\.resourcesPerNode\.limits\.cpu
\.resourcesPerNode\.requests\.nvidia.*
"""
"""What their objects have, and ours have not."""

ADDED = r"""
\.metadata\.labels\..*             # by which we find the objects of a run
\.containers\.[a-z]+\.(args|command|env)\b.*
\.trainer\.(command|env)\b.*       # our agent, in place of a script
\.trainer\.numProcPerNode          # their command line has it
\.(volumes|volumeMounts)\.jupyter-dist.*
\.tolerations\..*                  # as long as an agent may be away
\.terminationGracePeriodSeconds
\.runPolicy\.(cleanPodPolicy|ttlSecondsAfterFinished|suspend)
\.restartPolicy                    # Never: we report a failure, and start the ranks again
"""


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of an object. An entry of a list is found by its name, if it has one."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from flat(one, f"{path}.{key}")
    elif isinstance(value, list):
        for index, one in enumerate(value):
            name = one.get("name", index) if isinstance(one, dict) else index
            yield from flat(one, f"{path}.{name}")
    else:
        yield path, value


def by_design(table: str, path: str) -> bool:
    patterns = [line.partition("#")[0].strip() for line in table.splitlines() if line]
    return any(re.search(f"{pattern}$", path) for pattern in patterns)


@pytest.mark.parametrize("name", sorted(GOLDEN["cases"]))
def test_a_job_is_asked_for_as_kubeflow_s_own_sdk_does(name: str, tmp_path: Path) -> None:
    case = GOLDEN["cases"][name]
    asked = KubernetesOptions(**case["options"], namespace="ns", job_name="name")
    asked.check_ranks(case["ranks"])
    job = RunMaker(tmp_path, case["ranks"], options=asked.model_dump(mode="json")).job
    kind = KINDS[asked.kind]
    assert case["request"]["path"] == f"{kind.path}/namespaces/ns/{kind.resource}"
    theirs, ours = dict(flat(case["request"]["body"])), dict(flat(job_object(job, 0)))
    wrong = {path: (told, ours.get(path)) for path, told in theirs.items() if told != ours.get(path)}
    assert {path: pair for path, pair in wrong.items() if not by_design(LACKING, path)} == {}
    added = {path: told for path, told in ours.items() if path not in theirs and not by_design(ADDED, path)}
    assert added == {}


def test_a_pod_template_may_ask_for_istio_s_proxy(tmp_path: Path) -> None:
    template = tmp_path / "pod.yaml"
    template.write_text("metadata: {annotations: {sidecar.istio.io/inject: 'true', a: b}}\nspec: {}\n")
    asked = KubernetesOptions(pod_template=str(template))
    job = RunMaker(tmp_path, 1, options=asked.model_dump(mode="json")).job
    told = job_object(job, 0)["spec"]["template"]["metadata"]["annotations"]
    assert told == {"sidecar.istio.io/inject": "true", "a": "b"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--kind tfjob", "--session is possible only with --kind job and --kind pytorchjob, not with tfjob"),
        (
            "--kind mpijob",
            "--session is possible only with --kind job and --kind pytorchjob, not with mpijob",
        ),
        ("--kind pytorchjob --min-np 1", "--min-np and --max-np do not work with --session, whose ranks"),
    ],
)
def test_a_kind_without_sessions_names_those_that_have_them(
    line: str, expected: str, own_folders: Path
) -> None:
    given = read_command_line(f"--backend kubernetes --session=main -np 2 --image any {line}").given
    with pytest.raises(InputError, match=re.escape(expected)) as raised:
        check_session(make_plan(given), given)
    assert str(raised.value).endswith(". Change or remove the flag, or remove --session")


@pytest.mark.parametrize("kind", ["job", "pytorchjob"])
def test_kinds_with_sessions(kind: str, own_folders: Path) -> None:
    given = read_command_line(f"--backend kubernetes --session=main -np 2 --image any --kind {kind}").given
    assert check_session(make_plan(given), given) is None
