"""What `doctor --production` reports, and a worker with `--production` demands: nothing is left to chance."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from milepost.cli.opening import now_ms, opened, wait_for
from milepost.cli.settings import Settings
from milepost.cli.tools import declared_by
from milepost.definitions.rules import PolicyFile, in_force
from milepost.operations.readiness import NotReady, Setup, Unready, unready

if TYPE_CHECKING:
    from milepost.stores.api import Store

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def reasons(settings: Settings, store: Store, *, seal: Path | None = None, trust: Path | None = None) -> list[Unready]:
    """Return why the App should not act in production yet; what an option says goes before what the App says."""
    app = settings.app
    path = settings.named_policy or app.policy
    setup = Setup(
        tools=tuple(tool for tool, _ in declared_by(app)),
        policy=None if path is None else in_force(PolicyFile(path)).error,
        sealed=(seal or app.seal) is not None,
        signed=(trust or app.trust) is not None,
        own_secrets=app.own_secrets,
        policy_open=path is not None and _open(Path(path)),
    )
    return unready(setup, wait_for(store.checks(now_ms())))


def _open(path: Path) -> bool:
    """Say whether others may write a file; one that is not there is said to be unreadable elsewhere."""
    return path.exists() and bool(stat.S_IMODE(path.stat().st_mode) & OTHERS_WRITE)


def demand(settings: Settings, *, seal: Path | None, trust: Path | None) -> None:
    """Raise NotReady, with every reason, where the App is not ready for production."""
    with opened(settings.url) as store:
        found = reasons(settings, store, seal=seal, trust=trust)
    if found:
        raise NotReady(found)
