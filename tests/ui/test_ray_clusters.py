"""Rays in the sidebar: those that run, and clusters launched from a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, Route, expect

from .pages import Lab
from .server import JupyterServer

ADDRESS = "10.0.0.2:6379"
SITES = [
    {
        "name": ADDRESS,
        "options": {"address": ADDRESS},
        "problem": None,
        "nodes": 2,
        "cpus": {"free": 3, "total": 16},
        "gpus": {"free": 1, "total": 2},
        "gpu_types": ["A100"],
        "memory_bytes": {"free": 5.2e9, "total": 64e9},
    },
    {
        "name": "ray://10.0.0.9:10001",
        "options": {"address": "ray://10.0.0.9:10001"},
        "problem": "nobody answers at 10.0.0.9:10001 (timed out)",
    },
]


def found(route: Route) -> None:
    """The server's own answer, with two Rays that are not there."""
    answer = route.fetch()
    rows = answer.json()
    for row in rows:
        if row["name"] == "ray":
            row |= {"detail": {"Ray": "2.60.0"}, "sites": SITES, "no_site": None}
    route.fulfill(response=answer, json=rows)


def test_rays_are_shown_saved_launched_and_taken_down(
    lab: Lab, server: JupyterServer, picture: Callable[[Page, str], Path], tmp_path: Path
) -> None:
    gone = tmp_path / "gone.yaml"
    server.clusters.parent.mkdir(parents=True, exist_ok=True)
    server.clusters.write_text(
        f'[clusters.ours]\nbackend = "ray"\nlaunched_from = "{gone}"\naddress = "{ADDRESS}"\n'
    )
    lab.page.route("**/jupyter-dist/api/backends*", found)
    try:
        sidebar = lab.sidebar()
        sidebar.clusters.page.get_by_role("button", name="Refresh").first.click()
        # Each Ray with what it has, below the backend; and beside the saved cluster that leads there.
        has = "2 nodes · 3 of 16 CPUs free · 1 of 2 GPUs free (A100) · 5.20 GB of 64.0 GB free"
        expect(sidebar.card("ours")).to_contain_text("launched from gone.yaml")
        expect(sidebar.card("ours")).to_contain_text(has)
        rays = sidebar.card("ray").get_by_role("list", name="What runs for ray")
        expect(rays.get_by_role("listitem")).to_have_count(2)
        expect(rays.get_by_role("listitem").first).to_contain_text(has)
        expect(rays).to_contain_text("nobody answers at 10.0.0.9:10001")
        sidebar.card("ray").scroll_into_view_if_needed()
        picture(lab.page, "rays")

        save = rays.get_by_role("button", name=f"Save {ADDRESS} as a cluster")
        expect(save).to_be_in_viewport(ratio=0.99)
        save.click()
        expect(sidebar.form.get_by_label("Address", exact=True)).to_have_value(ADDRESS)
        sidebar.form.get_by_label("Name").fill("theirs")
        sidebar.form.get_by_role("button", name="Save", exact=True).click()
        expect(sidebar.card("theirs")).to_contain_text(f"address {ADDRESS}")
        assert f'address = "{ADDRESS}"' in server.clusters.read_text()

        # A file that is none is refused before there is a run.
        (server.root / "none.yaml").write_text("- a list\n")
        sidebar.choose("ray", "Launch a Cluster from a File…")
        asked = lab.page.locator(".jp-Dialog").filter(has_text="Launch a Ray Cluster")
        asked.get_by_label("Cluster-launcher file").fill("none.yaml")
        asked.get_by_role("button", name="Launch").click()
        with lab.dialog() as dialog:
            expect(dialog).to_contain_text("none.yaml was not launched")
            expect(dialog).to_contain_text("has no `provider` with a `type`")
            dialog.get_by_role("button", name="Close").click()

        # What was launched can be attached to and taken down; what was not cannot.
        sidebar.choose("ours", "Take Down…")
        asked = lab.page.locator(".jp-Dialog").filter(has_text="Take ours down?")
        asked.get_by_role("button", name="Take Down").click()
        with lab.dialog() as dialog:
            expect(dialog).to_contain_text(f"cannot read the cluster-launcher file '{gone}'")
            dialog.get_by_role("button", name="Close").click()
        sidebar.card("theirs").get_by_role("button", name="More actions for theirs", exact=True).click()
        menu = lab.page.get_by_role("menu")
        expect(menu.get_by_role("menuitem", name="Delete…")).to_be_visible()
        expect(menu.get_by_role("menuitem", name="Attach")).to_have_count(0)
        lab.page.keyboard.press("Escape")
        expect(sidebar.rows).to_have_count(0)
    finally:
        lab.page.unroute("**/jupyter-dist/api/backends*")
