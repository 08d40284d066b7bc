"""An encrypted store drives runs as any other, and a canary that goes everywhere is found nowhere."""

import base64
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import milepost as mp
from milepost.operations import keys, transfer
from milepost.operations.switches import history_of
from milepost.stores.api import Query
from milepost.stores.encryption import KeyMissing, write
from tests.runtime.stage import Stage, parked, status_of, until

CANARY = "canary-4f7c91zz"
FORMS = (CANARY.encode(), base64.b64encode(CANARY.encode())[:-2], base64.b64encode(b"  " + CANARY.encode())[4:-4])


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "payload.keys"
    write(path, "k1", rotate=False)
    return path


def nowhere(stage: Stage) -> None:
    data = stage.bytes_on_disk()
    assert [form for form in FORMS if form in data] == []


@mp.tool(effect="keyed", key_ttl="1h", once="order")
async def charge(call: mp.Call, order: str, note: str) -> dict[str, str]:
    call.note(CANARY)
    return {"receipt": note, "large": CANARY * 20_000}


@mp.tool(effect="keyed", key_ttl="1h", approval=True)
async def mail(to: str) -> str:
    return to


@mp.tool(retry=mp.Retry(1))
async def break_down(why: str) -> str:
    raise RuntimeError(f"it broke: {why}")


@mp.tool(effect="read", retry=mp.Retry(1))
async def look(why: str) -> str:
    raise RuntimeError(f"nothing there: {why}")


@dataclass
class State:
    """What the second segment begins with: more than fits into a checkpoint in place."""

    given: str
    heard: list[str]


desk = mp.Workflow("desk", version="1", input=str, result=str, tools=[charge, mail, break_down, look])


@desk.segment
async def first(run: mp.Run, given: str) -> mp.Next[str]:
    receipt = await charge(given, given)
    run.emit({"seen": given})
    with suppress(mp.StepFailed):
        await look(given)
    return mp.go(second, State(given, [receipt["receipt"]] * 500))


@desk.segment
async def second(run: mp.Run, state: State) -> mp.Next[str]:
    heard = await run.receive("go", str)
    await mail(heard)
    return mp.go(third, heard)


@desk.segment
async def third(run: mp.Run, heard: str) -> mp.Next[str]:
    if heard.endswith("breaks"):
        await break_down(heard)
    if heard.endswith("fails"):
        raise ValueError(heard)
    return mp.done(heard)


async def through(app: mp.App, heard: str, key: str) -> mp.Handle[str]:
    """Take a run to its end, or to where a person is needed."""
    handle = await app.start(desk, CANARY, key=key)
    await app.send(handle.id, "go", heard)
    asked = await until(lambda: app.inspect.approvals("asked"))
    await app.approve(asked[0].id, by="ann")
    return handle


@pytest.mark.parametrize("ending", ["well", "breaks", "fails"])
async def test_a_canary_in_every_value_is_found_in_no_byte_of_the_store(
    stage: Stage, key_file: Path, caplog: pytest.LogCaptureFixture, ending: str
) -> None:
    """Arguments, results, states, signals, approvals, identities, events, errors: all of them, small and large."""
    heard = f"{CANARY} {ending}"
    async with stage.app(desk, encryption=key_file) as app:
        handle = await through(app, heard, "one")
        if ending == "well":
            assert await handle.result(timeout="30s") == heard
        else:
            await status_of(handle, "failed" if ending == "fails" else "parked")
        nowhere(stage)
        detail = await app.inspect.detail(handle.id)
        assert CANARY in str(detail)
        assert (await app.inspect.verify(handle.id)).damage is None
    nowhere(stage)
    assert ending == "fails" or CANARY not in caplog.text

    async with stage.app(desk).client() as app:
        verified = await app.inspect.verify(handle.id)
        assert (verified.damage, verified.hidden) == (None, "k1")
        assert verified.entries > 10
        with pytest.raises(KeyMissing, match="'k1'") as missing:
            await app.inspect.detail(handle.id)
        assert CANARY not in str(missing.value)


@mp.tool(effect="keyed", key_ttl="1h")
async def remit(order: str) -> str:
    raise mp.NotSent(f"no route for {order}")


@mp.workflow(version="1", tools=[remit])
async def remitting(run: mp.Run, order: str) -> str:
    return await remit(order)


async def test_why_a_tool_is_held_is_readable_beside_no_run_that_waits_for_it(stage: Stage, key_file: Path) -> None:
    """What a provider said opens a breaker, and what a person said a switch; both are told to who may ask."""
    async with stage.app(remitting, encryption=key_file, breaker=mp.Breaker(1, cooldown="1h")) as app:
        operator = app._operator()
        held = await app.start(remitting, CANARY)
        await parked(held, "breaker")
        await operator.freeze("tool:remit", by="ann", why=CANARY)
        frozen = await app.start(remitting, CANARY)
        told = await parked(frozen, "switch")
        assert CANARY in told.ask
        assert CANARY in str(await history_of(app._need_engine().store))
        assert [row.id for row in await app.inspect.runs(Query(needs_you=True))] == [frozen.id]
        nowhere(stage)
    nowhere(stage)


async def test_a_worker_without_the_key_drives_nothing_and_says_which_it_needs(stage: Stage, key_file: Path) -> None:
    async with stage.app(desk, encryption=key_file).client() as app:
        handle = await app.start(desk, CANARY)

    with pytest.raises(KeyMissing):
        async with stage.app(desk):
            pass

    async with stage.app(desk, encryption=key_file).client() as app:
        assert (await app.inspect.runs(Query()))[0].status == "ready"
        assert (await app.inspect.journal(handle.id))[0].name == "run_created"


async def test_the_same_key_and_input_is_the_same_run_and_other_input_is_refused(stage: Stage, key_file: Path) -> None:
    async with stage.app(desk, encryption=key_file).client() as app:
        one = await app.start(desk, CANARY, key="k")
        assert (await app.start(desk, CANARY, key="k")).id == one.id
        with pytest.raises(mp.StartConflict):
            await app.start(desk, "other", key="k")


async def test_a_second_run_gets_the_result_of_an_identity_that_the_first_claimed(stage: Stage, key_file: Path) -> None:
    async with stage.app(desk, encryption=key_file) as app:
        for key in ("one", "two"):
            handle = await through(app, f"{CANARY} well", key)
            assert await handle.result(timeout="30s") == f"{CANARY} well"
        effects = await app.inspect.effects(handle.id)
    assert [effect.by for effect in effects if effect.tool == "charge"] == ["once"]
    nowhere(stage)


async def test_an_export_holds_no_value_either_and_comes_in_where_the_key_is(
    stage: Stage, key_file: Path, tmp_path: Path
) -> None:
    bundle, folder = tmp_path / "runs.bundle", tmp_path / "keys"
    keys.create("ada", folder)
    ada = keys.read_private(folder / "ada.key")
    trust = keys.Trust({"ada": keys.Operator("ada", ada.public, frozenset({"export"}))})
    async with stage.app(desk, encryption=key_file) as app:
        handle = await through(app, f"{CANARY} well", "one")
        await handle.result(timeout="30s")
        store = app._need_engine().store
        await transfer.export(store, [handle.id], ada, bundle, 1)
    data = bundle.read_bytes()
    assert [form for form in FORMS if form in data] == []

    async def into(place: Path, encryption: Path | None) -> object:
        other = mp.App(f"sqlite:///{place}", workflows=[desk], encryption=encryption)
        async with other.client() as there:
            engine = there._need_engine()

            async def commit(operation: object) -> object:
                return await engine.writer.durable(operation)  # type: ignore[arg-type]

            [answer] = await transfer.take_in(engine.store, commit, transfer.read(bundle, trust), 2, "ann")
            if isinstance(answer, mp.MilepostError):
                return answer.code
            detail = await there.inspect.detail(handle.id)
            assert (await there.inspect.verify(handle.id)).damage is None
            return detail.result

    assert await into(tmp_path / "with.db", key_file) == f"{CANARY} well"
    assert await into(tmp_path / "without.db", None) == "key_missing"
