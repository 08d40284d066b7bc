"""A credential's fingerprint is in the record before a byte can leave with it."""

import milepost as mp
from tests.runtime.stage import Stage


async def test_the_fingerprint_is_durable_when_an_async_tool_gets_its_secret(stage: Stage) -> None:
    """A tool may write to a socket without letting the loop go round: so nothing may be left for later."""
    seen: list[int] = []

    @mp.tool(effect="keyed", key_ttl="1h")
    async def charge(call: mp.Call) -> str:
        call.secret("stripe")
        seen.append(sum(b"credential_used" in body for (body,) in stage.rows("SELECT body FROM mp_journal")))
        return "charged"

    @mp.workflow(version="1", name="charging", tools=[charge])
    async def charging(run: mp.Run) -> str:
        return await charge()

    async with stage.app(charging, secrets=lambda name: name) as app:
        assert await (await app.start(charging)).result(timeout="30s") == "charged"
    assert seen == [1]
