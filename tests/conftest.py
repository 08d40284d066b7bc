"""What every test gets: no setting leaks in from the outside, and property tests have no time limit of their own."""

import os
import sys
from collections.abc import Iterator

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook
from hypothesis import settings

# A shared machine may stop a process for longer than Hypothesis' default deadline; pytest-timeout guards against
# hanging.
settings.register_profile("milepost", deadline=None, print_blob=True)
settings.load_profile("milepost")

collect_ignore = ["hosts"]  # `make hosts` runs them, in an environment of their own

ANOTHER = os.environ.get("MILEPOST_TEST_STORE", "")

# Since the package brings a plugin, pytest would rewrite the asserts of all of its modules, wherever a test happens to
# import them. They are to run as they are. (Parsing in the middle of a test has failed, too: CPython 3.11 counts its
# recursion wrongly where a collected coroutine is closed meanwhile.)
for hook in sys.meta_path:
    if isinstance(hook, AssertionRewritingHook):
        hook._must_rewrite.discard("milepost")
pytest.register_assert_rewrite("milepost.testing.store_conformance")  # whose asserts are tests


# What build machines and terminals tell programs, and pytest, rich and click print otherwise for.
OF_THE_SURROUNDINGS = (
    "BUILD_NUMBER", "CI", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR", "PYTEST_ADDOPTS",
    "PYTEST_THEME", "PY_COLORS", "TTY_COMPATIBLE", "TTY_INTERACTIVE",
)  # fmt: skip


@pytest.hookimpl(trylast=True)  # after the shuffle
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is of SQLite alone where tests run on another store; begin with what takes long."""
    left_out = [item for item in items if item.get_closest_marker("sqlite") and is_on_another_store(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        items[:] = begun_with_the_long(items, workers, float(config.getini("timeout")))


def begun_with_the_long(items: list[pytest.Item], workers: int, most_s: float) -> list[pytest.Item]:
    """Return the tests so that each worker begins with some of those that may take long, and all end together.

    Each worker is given as many tests in a row as any other, and takes over from the end of another's row what that has
    not begun: there nothing may stand that takes minutes. `most_s` is the time limit of whatever has none of its own.
    """
    limits = {item: item.get_closest_marker("timeout") for item in items}
    long = [item for item, limit in limits.items() if limit is not None and limit.args[0] > most_s]
    rest = [item for item in items if item not in set(long)]
    rows: list[pytest.Item] = []
    for number in range(workers):
        first = long[number::workers]
        share = max(0, (len(items) - len(rows)) // (workers - number) - len(first))
        rows += [*first, *rest[:share]]
        rest = rest[share:]
    return rows


def is_on_another_store(item: pytest.Item) -> bool:
    """Whether a test of `tests/runtime` runs on a database."""
    return bool(ANOTHER) or item.path.parent.name.endswith("_on_postgres")


@pytest.fixture(autouse=True, scope="session")
def no_surroundings() -> Iterator[None]:
    """Let the programs that tests start print the same on a build machine, in a narrow window and in colour."""
    with pytest.MonkeyPatch.context() as patch:
        for name in OF_THE_SURROUNDINGS:
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(autouse=True)
def no_setting_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own MILEPOST_APP or store must never decide what a test sees."""
    for name in [name for name in os.environ if name.startswith("MILEPOST_")]:
        monkeypatch.delenv(name)
