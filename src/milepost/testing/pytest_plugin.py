"""Fixtures for pytest, and the seed of a failure. pytest finds this plugin by itself where Milepost is installed.

  manual_clock       a clock that only the test moves, for `App(clock=…)`
  milepost_store     the URL of a store that does not exist yet, in the test's own folder
  milepost_app       makes an App over that store: `milepost_app(workflow, clock=manual_clock)`
  milepost_world     an outside world (`milepost.testing.World`), started once for all tests that ask for it
  milepost_account   a part of that world that is this test's own
  milepost_seed      the seed, for what a test draws itself

`--milepost-seed N` sets the seed; without it one is drawn, for all processes of the run the same. A test that fails and
has drawn anything says which seed has it fail again, after the reports of what was found broken, unless these are shown
already. Nothing of Milepost is loaded until a test asks for something.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import milepost
from milepost import testing
from milepost.testing import seeds

if TYPE_CHECKING:
    from milepost import App, Workflow
    from milepost.testing import Account, ManualClock, World

OPTION = "--milepost-seed"
NAME_MOST = 40


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    group = parser.getgroup("milepost", "milepost: workflows that are killed, and clocks that stand still")
    group.addoption(OPTION, type=int, metavar="N", help="draw again what was drawn when this seed was printed")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed, for this process and for those that it starts."""
    said: int | None = config.option.milepost_seed
    told: dict[str, Any] = getattr(config, "workerinput", {})
    seeds.HELD.given = told.get(OPTION, seeds.drawn() if said is None else said)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of pytest-xdist the seed."""
    node.workerinput[OPTION] = seeds.HELD.given


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say the seed that was asked for; one that was drawn is said where something fails."""
    return [] if config.option.milepost_seed is None else [f"milepost: {OPTION}={seeds.HELD.given}"]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Begin to note what a test draws and finds."""
    seeds.HELD.begin()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Add what was found broken, and the seed, to the report of a test that failed and had drawn something."""
    made = yield
    report: pytest.TestReport = made.get_result()
    if not report.failed:
        return
    shown = report.longreprtext
    for broken in seeds.HELD.broken:
        title, *_ = str(broken).splitlines()
        if title not in shown:  # `assert report.ok, report` shows the beginning of it, in one line
            report.sections.append(("milepost report", str(broken)))
    if seeds.HELD.used:
        replay = f"pytest {OPTION}={seeds.HELD.given} {item.nodeid!r}"
        report.sections.append(("milepost seed", f"It fails again with: {replay}"))


@pytest.fixture
def milepost_seed() -> int:
    """Return the seed of this run, for what a test draws itself."""
    return seeds.current()


@pytest.fixture
def manual_clock(milepost_seed: int) -> ManualClock:
    """Return a clock that stands still until the test moves it; its chance comes from the seed."""
    return testing.ManualClock(seed=milepost_seed)


@pytest.fixture
def milepost_store(tmp_path: Path) -> str:
    """Return the URL of a store that does not exist yet."""
    return f"sqlite:///{tmp_path}/milepost.db"


@pytest.fixture
def milepost_app(milepost_store: str) -> Callable[..., App]:
    """Return what makes an App over `milepost_store`: the workflows, and by name what App takes besides."""

    def make(*workflows: Workflow[Any, Any], **options: Any) -> App:
        return milepost.App(milepost_store, workflows=workflows, **options)

    return make


@pytest.fixture(scope="session")
def milepost_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Return an outside world that runs as long as the tests; with a mail server where aiosmtpd is installed."""
    folder = tmp_path_factory.mktemp("milepost-world")
    with testing.World(folder, mail=find_spec("aiosmtpd") is not None) as world:
        yield world


@pytest.fixture
def milepost_account(milepost_world: World, tmp_path: Path) -> Account:
    """Return a part of the outside world in which nothing was done yet."""
    return milepost_world.account(f"{tmp_path.parent.name}-{tmp_path.name}"[-NAME_MOST:])
