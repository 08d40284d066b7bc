"""What looking at every signature again finds, where whoever can write to a run repeats or moves what people signed."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

import milepost as mp
from milepost.core import codec, words
from milepost.core import entries as e
from milepost.core import messages as m
from milepost.core.word_entries import WordSigned
from milepost.operations import keys, vouching
from milepost.stores.api import Append, Claim
from tests.runtime.bank import Bank, paying, tool_of
from tests.runtime.policies import ALLOW, NEVER, File, Outside, fields, mailing, one_call
from tests.runtime.stage import Stage, has_entry, parked, status_of
from tests.runtime.test_approvals import asked
from tests.runtime.test_signed_approvals import Desk
from tests.runtime.test_signed_words import PATH, vouched


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path)
    made.trusts(ann=["approve", "grant", "resolve"])
    return made


@mp.workflow(version="1", name="flow")
async def waiting(run: mp.Run, name: str) -> str:
    await run.receive("go", int)
    return name


async def forge(app: mp.App, run_id: str, *entries: e.Entry) -> None:
    """Write entries into a run that nobody holds, in a chain that verifies, as a worker could."""
    engine = app._need_engine()
    epoch = (await app.inspect.record(run_id))[0].epoch + 1
    claimed = codec.encode(e.Claimed(at=1, epoch=epoch, owner="rogue"))
    head = await engine.writer.durable(Claim(run_id, "rogue", None, 1, lambda _: claimed))
    await engine.writer.durable(Append(head, [codec.encode(one) for one in entries], 1, release=(1, None)))
    assert (await app.inspect.verify(run_id)).damage is None


async def entries_of(app: mp.App, run_id: str) -> Sequence[e.Entry]:
    _, stored, _ = await app._need_engine().store.chain(run_id)
    return [codec.decode(one.plain) for one in stored]


async def codes(app: mp.App, run_id: str, desk: Desk) -> list[str]:
    return [doubt.code for doubt in (await vouched(app, run_id, desk)).doubts]


async def test_a_signed_grant_that_stands_in_the_record_twice_is_a_grant_and_a_doubt(stage: Stage, desk: Desk) -> None:
    """Requirement 48. Its signature holds both times, and it was given once."""
    async with stage.app(waiting, trust=desk.trust) as app:
        handle = await app.start(waiting, "ann")
        await parked(handle, "signal")
        await app.grant(handle.id, budget={"usd": 5}, key=desk.key("ann"))
        await has_entry(app, handle.id, "widened")
        await parked(handle, "signal")
    async with stage.app(waiting).client() as app:
        signed = [one for one in await entries_of(app, handle.id) if isinstance(one, WordSigned | e.Widened)]
        assert await codes(app, handle.id, desk) == []
        await forge(app, handle.id, *signed)
        assert await codes(app, handle.id, desk) == ["replayed"]


async def test_a_signed_resolution_that_is_written_of_another_attempt_is_a_doubt(stage: Stage, desk: Desk) -> None:
    """Requirement 32. Who holds the run keeps the word back, sends again, and says it of that."""
    flow = paying(tool_of(Bank("loses the answer"), lambda: 0, asks=False))
    async with stage.app(flow, trust=desk.trust) as app:
        handle = await app.start(flow, "o-1")
        await parked(handle, "unknown")
        (view,) = await app.inspect.effects(handle.id)
        message = m.Resolve(at=7, by="ann", path=PATH, answer="did_not_happen", why="looked", id="w-1")
        said = words.resolved(app._need_engine().store.id, handle.id, message, key=view.key, attempt=1)
        await app.resolve(handle.id, PATH, mp.did_not_happen(), why="so it is", key=desk.key("ann"))
        await has_entry(app, handle.id, "effect_unknown", 2)
        await parked(handle, "unknown")
    async with stage.app(flow).client() as app:
        signature = keys.sign(keys.read_private(desk.key("ann")), said)
        word = WordSigned(at=9, id="w-1", kind="resolve", by="ann", said=msgspec.Raw(said), signature=signature)
        (failed,) = [one for one in await entries_of(app, handle.id) if isinstance(one, e.EffectFailed)]
        await forge(app, handle.id, word, msgspec.structs.replace(failed, attempt=2, why="looked"))
        (doubt,) = (await vouched(app, handle.id, desk)).doubts
    assert (doubt.code, doubt.why) == ("bad_signature", "what 'ann' signed is another: attempt")


async def test_an_approval_that_stands_answered_twice_is_answered_once(stage: Stage, desk: Desk) -> None:
    """Requirement 25. Requirement 48. A used one that is said again would be used again."""
    tool = mailing(Outside(), approval=True)

    @mp.workflow(version="1", name="flow", tools=[tool])
    async def flow(run: mp.Run, to: str) -> None:
        await tool(to)
        await run.receive("go", int)

    async with stage.app(flow, trust=desk.trust) as app:
        handle = await app.start(flow, "ann")
        row = await asked(app)
        await app.approve(row.id, key=desk.key("ann"))
        await parked(handle, "signal")
    async with stage.app(flow).client() as app:
        (answered,) = [one for one in await entries_of(app, handle.id) if isinstance(one, e.ApprovalAnswered)]
        assert await codes(app, handle.id, desk) == []
        await forge(app, handle.id, answered)
        assert await codes(app, handle.id, desk) == ["replayed"]


async def test_a_denial_denies_what_it_was_asked_about_and_nothing_else(stage: Stage, desk: Desk) -> None:
    """Requirement 48. Else a real *no* to one call would settle the doubt of another."""
    tool = mailing(Outside(), approval=True)

    @mp.workflow(version="1", name="flow", tools=[tool])
    async def flow(run: mp.Run, to: str) -> None:
        await run.gather(tool("one"), tool("two"))

    async with stage.app(flow, trust=desk.trust) as app:
        handle = await app.start(flow, "ann")
        await has_entry(app, handle.id, "approval_asked", 2)
        await parked(handle, "approval")
        one, two = await app.inspect.approvals("asked")
        await app.deny(one.id, why="no", key=desk.key("ann"))
        await has_entry(app, handle.id, "effect_failed")
        await parked(handle, "approval")
        assert await codes(app, handle.id, desk) == []
    async with stage.app(flow).client() as app:
        (failed,) = [one for one in await entries_of(app, handle.id) if isinstance(one, e.EffectFailed)]
        (answered,) = [one for one in await entries_of(app, handle.id) if isinstance(one, e.ApprovalAnswered)]
        await forge(app, handle.id, answered, msgspec.structs.replace(failed, step=two.step))
        assert await codes(app, handle.id, desk) == ["replayed", "unsigned"]


async def test_what_a_policy_denies_that_a_person_was_asked_about_is_no_doubt(
    stage: Stage, desk: Desk, tmp_path: Path
) -> None:
    """Nobody is said to have said it: the answer names its rule. It permits nothing, and a yes in its name would."""
    policy = File(tmp_path / "policy.toml")
    flow = one_call(mailing(Outside()))
    async with stage.app(flow, trust=desk.trust, policy=policy.says('first; ask; tool = "mail"')) as app:
        handle = await app.start(flow, "ann")
        await asked(app)
        policy.says(ALLOW, NEVER)
        await status_of(handle, "done")
        (answered,) = await fields(app, handle.id, "approval_answered")
        assert answered["by"] == "policy never"
        assert await codes(app, handle.id, desk) == []


async def test_a_run_that_is_said_to_come_from_another_store_was_begun_there(stage: Stage, desk: Desk) -> None:
    """What was signed elsewhere is counted and not looked at: only where the run's own chain begins there."""
    async with stage.app(waiting) as app:
        handle = await app.start(waiting, "ann")
        await parked(handle, "signal")
    async with stage.app(waiting).client() as app:
        store = app._need_engine().store
        came = e.RunStopped(at=1, status="blocked", code="imported", why="")
        await forge(app, handle.id, came, e.Widened(at=1, by="ann", budget={"usd": Decimal(5)}))
        head = (await store.chain(handle.id))[2]
        found = await vouching.vouch(store, handle.id, keys.load(desk.trust), 1, brought=(head.seq, "another"))
    assert [doubt.code for doubt in found.doubts] == ["not_brought", "unsigned"]
    assert found.elsewhere == 0
