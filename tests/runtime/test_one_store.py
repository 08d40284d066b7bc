"""A store's file may go by several names: its workers and what stops them are the same by each of them."""

from collections.abc import Callable
from pathlib import Path

import pytest

import milepost as mp
from milepost.runtime import locks
from milepost.stores import marks
from milepost.stores.places import local_of
from tests.runtime.stage import Stage, has_entry, status_of, until


def by_a_relative_path(stage: Stage, patch: pytest.MonkeyPatch) -> str:
    patch.chdir(stage.folder)
    return f"sqlite:///{stage.path.name}"


def by_a_link_to_the_file(stage: Stage, _: pytest.MonkeyPatch) -> str:
    link = stage.folder / "link.db"
    link.symlink_to(stage.path)
    return f"sqlite:///{link}"


def by_a_link_to_its_folder(stage: Stage, _: pytest.MonkeyPatch) -> str:
    link = stage.folder / "linked"
    link.symlink_to(stage.folder)
    return f"sqlite:///{link / stage.path.name}"


Named = Callable[[Stage, pytest.MonkeyPatch], str]
NAMES = pytest.mark.parametrize("named", [by_a_relative_path, by_a_link_to_the_file, by_a_link_to_its_folder])


@NAMES
async def test_a_worker_lives_by_whichever_name_its_store_is_opened(
    named: Named, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requirement 5. Requirement 27. Else its run is taken from it, and its call counts as quiet and is made again."""
    sent: list[int] = []

    @mp.tool(effect="queryable", visible_within="0s")
    async def charge(call: mp.Call) -> str:
        sent.append(call.attempt)
        await until(asked_again)
        return "charged"

    @charge.reconcile
    async def find(call: mp.Call) -> mp.Finding[str]:
        return mp.did_not_happen()  # yet: it is under way

    @mp.workflow(version="1", name="flow", tools=[charge])
    async def flow(run: mp.Run) -> str:
        return await charge()

    other = mp.App(named(stage, monkeypatch), workflows=[flow])

    async def asked_again() -> bool:
        """Say whether the other worker has looked at the store often enough to have taken what it may take."""
        return other._worker is not None and looks > 3

    looks = 0
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await has_entry(app, handle.id, "effect_started")
        async with other:
            store = other._need_engine().store
            holders = store.holders

            async def counted() -> object:
                nonlocal looks
                looks += 1
                return await holders()

            monkeypatch.setattr(store, "holders", counted)
            await status_of(handle, "done")
    assert sent == [1]


@NAMES
async def test_a_stop_file_stops_by_whichever_name_its_store_is_opened(
    named: Named, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requirement 40."""
    url = named(stage, monkeypatch)
    async with stage.app() as app:
        marks.stop(local_of(url), marks.Stop("ann", "try", 1))
        assert app._need_engine().halted
        monkeypatch.chdir(Path("/"))
        assert marks.lift(app._need_engine().store.local)


def test_a_process_never_asks_about_a_lock_of_its_own_by_another_name(tmp_path: Path) -> None:
    """Requirement 27. In one process locks do not conflict, and closing the file again would drop the lock."""
    place, other = str(tmp_path / "store.db"), str(tmp_path / "mounted.db")
    locks.hold(place, "worker-1")
    try:
        locks.folder_of(other).symlink_to(locks.folder_of(place))

        assert not locks.is_dead(other, "worker-1")
        assert locks.is_dead(other, "worker-2")
    finally:
        locks.release(place, "worker-1")
    assert locks.is_dead(other, "worker-1")
