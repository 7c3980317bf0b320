"""One server and one browser for all tests in here; every test gets a clean page.

`lab` is JupyterLab in a page that tests share: after each its notebooks are closed, its kernels and
runs ended and removed. A test that fails leaves a screenshot, and the next one gets a new page.
Set JUPYTER_DIST_PICTURES to a folder to keep the screenshots of passing tests as well.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import jupyter_dist
from jupyter_dist import folder as folders
from jupyter_dist.manage import stop
from jupyter_dist.record import reader

from .pages import WAIT_MS, Lab
from .server import JupyterServer

_BUILT = Path(jupyter_dist.__file__).parent / "labextension" / "package.json"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep these tests in one process: they share a server, a browser and a page."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    if not _BUILT.exists():
        pytest.skip("needs the built front-end: make .venv/.js")
    found = JupyterServer(tmp_path_factory.mktemp("jupyter"), forks=True)
    try:
        found.start()
        yield found
    finally:
        found.stop()


# Not for the session: as long as Playwright runs, no other test of the process can have an event loop.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium, or set CHROMIUM to its path")
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield found
        found.close()


@pytest.fixture(scope="package")
def _shared(server: JupyterServer, browser: Browser) -> Iterator[dict[str, Lab]]:
    """The page that tests share, under "lab" as soon as there is one."""
    kept: dict[str, Lab] = {}
    yield kept
    for lab in kept.values():
        lab.close()


@pytest.fixture
def own_folders(server: JupyterServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runs of the server, for this process as well."""
    monkeypatch.setenv("JUPYTER_DIST_RUNS", str(server.runs))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(server.config))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(server.data))
    return server.runs


@pytest.fixture
def no_leftovers(own_folders: Path) -> Iterator[None]:
    """Stop and remove the runs of a test, so that the next one finds none."""
    yield
    end_runs()


def end_runs() -> None:
    for run in list(folders.runs()):
        owner = reader.status(run).supervisor
        # Of runs made by hand this process is the supervisor.
        if not reader.status(run).state.ended and owner is not None and owner.pid != os.getpid():
            stop.stop(run, kill=True, wait_s=15.0)
        shutil.rmtree(run.path)


@pytest.fixture
def lab(
    request: pytest.FixtureRequest, server: JupyterServer, browser: Browser, _shared: dict[str, Lab]
) -> Iterator[Lab]:
    """JupyterLab in a page, with no notebook open and no kernel running, and none about to be opened."""
    if "lab" not in _shared:
        _shared["lab"] = Lab(browser, server)
        _shared["lab"].open()
    found = _shared["lab"]
    found.complaints.clear()
    yield found
    server.clusters.unlink(missing_ok=True)
    if request.node.stash.get(FAILED, False):
        _shared.pop("lab").close()
        return
    found.renew()
    # As when somebody comes back to the page: the sidebar then reads the clusters anew.
    found.page.evaluate("() => window.dispatchEvent(new Event('focus'))")
    complaints = list(found.complaints)
    if found.restores:
        _shared.pop("lab").close()
    assert not complaints, "\n\n".join(complaints)


@pytest.fixture
def themed(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """`lab` with the theme that is the parameter."""
    lab.set_theme(request.param)
    yield lab
    lab.set_theme("JupyterLab Light")


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Take a picture of a test that fails, before its fixtures clean up."""
    report = yield
    if report.when == "call" and report.failed:
        item.stash[FAILED] = True
        for name, value in getattr(item, "funcargs", {}).items():
            page = value.page if isinstance(value, Lab) else value
            if isinstance(page, Page) and not page.is_closed():
                path = pictures_folder(item) / f"failed-{item.name}-{name}.png".replace("/", "-")
                page.screenshot(path=path)
                report.sections.append(("picture", str(path)))
            if isinstance(value, Lab):
                report.sections.append(("what the page said", "\n".join(value.said[-50:])))
    return report


def pictures_folder(item: pytest.Item) -> Path:
    kept = os.environ.get("JUPYTER_DIST_PICTURES")
    if kept:
        folder = Path(kept).absolute()
    else:
        folder = Path(str(item.config._tmp_path_factory.getbasetemp())) / "pictures"  # type: ignore[attr-defined]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _are_wanted() -> bool:
    return "JUPYTER_DIST_PICTURES" in os.environ or os.environ.get("JUPYTER_DIST_TIER") != "core"


@pytest.fixture
def picture(request: pytest.FixtureRequest) -> Callable[[Page, str], Path]:
    """`picture(page, "dark")`: a screenshot under that name; returns its path.

    The core takes none, since nobody looks at them there, and each takes as long as many a test.
    """

    def take(page: Page, name: str) -> Path:
        path = pictures_folder(request.node) / f"{name}.png"
        if _are_wanted():
            page.screenshot(path=path)
        return path

    return take


@pytest.fixture
def pictures(picture: Callable[[Page, str], Path]) -> Callable[..., None]:
    """`pictures(lab, "compare")`: in the light and the dark theme, 1280 and 900 pixels wide."""

    def take(lab: Lab, name: str, height: int = 800) -> None:
        if not _are_wanted():
            return
        # Runs that were seen to end are reported.
        lab.page.locator(".jp-Notification-Toast-Close").evaluate_all("all => all.forEach(x => x.click())")
        expect(lab.notification()).to_have_count(0)
        for theme in ("light", "dark"):
            lab.set_theme(f"JupyterLab {theme.title()}")
            for width in (1280, 900):
                lab.page.set_viewport_size({"width": width, "height": height})
                picture(lab.page, f"{name}-{theme}-{width}")
        lab.page.set_viewport_size({"width": 1280, "height": 800})
        lab.set_theme("JupyterLab Light")

    return take
