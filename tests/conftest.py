"""What every test gets: no setting leaks in from the outside, and property tests have no time limit of their own."""

import os

import pytest
from hypothesis import settings

# A shared machine may stop a process for longer than Hypothesis' default deadline; pytest-timeout guards against
# hanging.
settings.register_profile("milepost", deadline=None, print_blob=True)
settings.load_profile("milepost")


@pytest.fixture(autouse=True)
def no_setting_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own MILEPOST_APP or store must never decide what a test sees."""
    for name in [name for name in os.environ if name.startswith("MILEPOST_")]:
        monkeypatch.delenv(name)
