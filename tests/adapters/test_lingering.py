"""A run stays held for a moment after a call, so that the next need not take it again; and nobody waits for that."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost.adapters.threads import Threads
from milepost.core.entries import Claimed
from milepost.runtime import lingering
from milepost.stores.api import Query
from tests.crash.killing import ROOT
from tests.polling import eventually
from tests.runtime.stage import Stage, until

CALLS = 13


@mp.tool(effect="keyed", key_ttl="1h")
async def mail(to: str) -> str:
    return f"sent {to}"


@mp.tool(approval=True)
async def publish(text: str) -> str:
    return text


class Hosts:
    """Processes that hold a run between calls, on the store of a test."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.begun: list[subprocess.Popen[str]] = []

    def begin(self, form: str = "opened") -> subprocess.Popen[str]:
        """Start one."""
        host = subprocess.Popen(
            [sys.executable, "-m", "tests.adapters.waiting_host", self.stage.url, form],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        self.begun.append(host)
        return host

    def call(self, host: subprocess.Popen[str], id_: str) -> dict[str, Any]:
        """Let one make a call; return what it says of it."""
        assert host.stdin is not None
        assert host.stdout is not None
        host.stdin.write(f"call {id_}\n")
        host.stdin.flush()
        said: dict[str, Any] = json.loads(host.stdout.readline())
        return said

    def assert_holds(self, host: subprocess.Popen[str]) -> str:
        """Assert that a host holds the run although it makes no call; return the run's id."""
        ((run_id, owner),) = self.stage.rows("SELECT id, owner FROM mp_runs WHERE key = 'thread-7'")
        assert owner is not None
        assert f"-{host.pid}-" in owner
        return str(run_id)

    def owner(self) -> Any:
        """Return who holds the run."""
        ((owner,),) = self.stage.rows("SELECT owner FROM mp_runs WHERE key = 'thread-7'")
        return owner


@pytest.fixture
def hosts(stage: Stage) -> Iterator[Hosts]:
    made = Hosts(stage)
    yield made
    for host in made.begun:
        host.kill()
        host.communicate()


# ---------------------------------------------------------------- what it saves


@pytest.mark.parametrize("form", ["langgraph", "langgraph-sync", "gateway", "claude"])
def test_a_call_in_a_row_waits_for_the_disk_twice_for_started_and_for_its_outcome(form: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    traced = ["strace", "-f", "-s", "64", "-e", "trace=fdatasync,write", "-o", str(trace)]
    program = [sys.executable, "-m", "tests.adapters.in_a_row", f"sqlite:///{tmp_path / 'store.db'}", str(CALLS), form]

    subprocess.run([*traced, *program], cwd=ROOT, check=True, capture_output=True, timeout=120)

    text = trace.read_text()
    between = text[text.index("acting 0.") : text.index(f"acting {CALLS - 1}.")]
    each = between.count("fdatasync(") / (CALLS - 1)
    assert 2 <= each <= 2.5, f"{each:.2f} syncs a call"


# ---------------------------------------------------------------- others who want it


def test_two_hosts_in_turn_on_one_thread_get_it_from_each_other_without_waiting_for_its_time_to_end(
    hosts: Hosts,
) -> None:
    """Requirement 59."""
    one, two = hosts.begin(), hosts.begin("sync")

    said = []
    for number in range(3):
        said.append(hosts.call(one, f"one-{number}"))
        hosts.assert_holds(one)
        said.append(hosts.call(two, f"two-{number}"))
        hosts.assert_holds(two)

    assert said == [{"value": f"sent {who}-{number}"} for number in range(3) for who in ("one", "two")]


def test_a_host_that_is_killed_while_its_run_lingers_leaves_it_to_the_next_one_at_once(hosts: Hosts) -> None:
    one, two = hosts.begin(), hosts.begin()
    assert hosts.call(one, "c1") == {"value": "sent c1"}
    hosts.assert_holds(one)

    one.kill()
    one.communicate()

    assert hosts.call(two, "c1") == {"value": "sent c1"}
    assert hosts.call(two, "c2") == {"value": "sent c2"}
    hosts.assert_holds(two)


async def test_two_apps_in_turn_share_a_thread_and_the_mark_of_who_asked_is_taken_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering, "HELD_MOST_S", 600.0)
    apps = [mp.App(stage.url, tools=[mail]) for _ in range(2)]

    async with apps[0], apps[1]:
        both = [Threads(app, linger="10m") for app in apps]
        for number in range(4):
            said = await both[number % 2].attempt("k", f"c{number}", mail, {"to": str(number)})
            assert said == mp.Confirmed(f"sent {number}")

    assert not list(stage.folder.rglob("*.wanted"))


async def test_without_anybody_who_asks_it_is_given_back_when_its_time_is_over(stage: Stage) -> None:
    app = mp.App(stage.url, tools=[mail])
    async with app:
        threads = Threads(app, linger="200ms")
        await threads.attempt("k", "c1", mail, {"to": "ann"})
        assert stage.rows("SELECT owner IS NULL FROM mp_runs") == [(0,)]

        async def given_back() -> bool:
            return stage.rows("SELECT owner IS NULL FROM mp_runs") == [(1,)]

        await until(given_back, "it is given back")


async def test_calls_without_end_do_not_hold_a_run_without_end(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits on another machine, from where it cannot say so, gets its turn."""
    monkeypatch.setattr(lingering, "HELD_MOST_S", 0.1)
    app, number = mp.App(stage.url, tools=[mail]), 0
    async with app:
        threads, loop = Threads(app, linger="10m"), asyncio.get_running_loop()
        began = loop.time()
        while loop.time() < began + 1:
            number += 1
            await threads.attempt("k", f"c{number}", mail, {"to": str(number)})

        (run,) = await app.inspect.runs(Query())
        taken = sum(isinstance(entry, Claimed) for _, entry in await app.inspect.entries(run.id))

    assert 1 < taken < number


# ---------------------------------------------------------------- an operator


async def test_an_operators_kill_acts_at_once_on_a_run_that_lingers(hosts: Hosts, stage: Stage) -> None:
    host = hosts.begin("sync")
    assert await asyncio.to_thread(hosts.call, host, "c1") == {"value": "sent c1"}
    run_id = hosts.assert_holds(host)
    operator = mp.App(stage.url, tools=[mail])

    async with operator.client():
        await operator.kill(run_id, by="ann", why="enough")
        (status,) = stage.rows("SELECT status FROM mp_runs WHERE key = 'thread-7'")

    assert status == ("killed",)
    assert await asyncio.to_thread(hosts.call, host, "c2") == {"error": "run_ended"}
    assert stage.rows("SELECT count(*) FROM mp_effects WHERE path = '@c2'") == [(0,)]


async def test_a_freeze_acts_at_once_on_a_run_that_lingers(hosts: Hosts, stage: Stage) -> None:
    host = hosts.begin("sync")
    assert await asyncio.to_thread(hosts.call, host, "c1") == {"value": "sent c1"}
    hosts.assert_holds(host)
    operator = mp.App(stage.url, tools=[mail])

    async with operator.client():
        await operator.freeze("tool:mail", by="ann", why="enough")
        assert await asyncio.to_thread(hosts.call, host, "c2") == {"waiting": "switch"}
        assert hosts.owner() is None, "what waits is given back at once"
        await operator.thaw("tool:mail", by="ann", why="again")

    assert await asyncio.to_thread(hosts.call, host, "c2") == {"value": "sent c2"}


async def test_a_run_that_lingers_and_is_cancelled_ends_without_waiting_for_its_time_to_end(
    hosts: Hosts, stage: Stage
) -> None:
    """What arrives for it is left to a worker: that of the host, here."""
    host = hosts.begin("opened")
    assert await asyncio.to_thread(hosts.call, host, "c1") == {"value": "sent c1"}
    run_id = hosts.assert_holds(host)
    operator = mp.App(stage.url, tools=[mail])

    async with operator.client():
        await operator.cancel(run_id, by="ann", why="enough")

    await asyncio.to_thread(eventually, lambda: stage.rows("SELECT status FROM mp_runs") == [("cancelled",)])


async def test_what_waits_for_a_person_does_not_linger(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lingering, "HELD_MOST_S", 600.0)
    app = mp.App(stage.url, tools=[mail, publish])
    async with app:
        threads = Threads(app, linger="10m")

        await threads.attempt("k", "c1", mail, {"to": "ann"})
        assert stage.rows("SELECT owner IS NULL FROM mp_runs") == [(0,)]
        assert isinstance(await threads.attempt("k", "c2", publish, {"text": "a"}), mp.Waiting)
        assert stage.rows("SELECT owner IS NULL FROM mp_runs") == [(1,)]


# ---------------------------------------------------------------- leaving


@pytest.mark.parametrize("form", ["opened", "sync"])
def test_a_host_that_ends_while_its_run_lingers_gives_it_back(form: str, hosts: Hosts) -> None:
    host = hosts.begin(form)
    assert hosts.call(host, "c1") == {"value": "sent c1"}
    hosts.assert_holds(host)

    out, _ = host.communicate("quit\n", timeout=30)

    assert (host.returncode, out) == (0, "")
    assert hosts.owner() is None


def test_a_script_that_ends_while_its_run_lingers_leaves_no_worker_behind(hosts: Hosts, stage: Stage) -> None:
    host = hosts.begin("sync")
    assert hosts.call(host, "c1") == {"value": "sent c1"}

    host.communicate("quit\n", timeout=30)

    assert stage.rows("SELECT count(*) FROM mp_workers WHERE ended_at IS NULL") == [(0,)]


def test_an_app_that_lingers_in_a_loop_of_its_own_is_opened_elsewhere_at_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering, "HELD_MOST_S", 600.0)
    app = mp.App(stage.url, tools=[mail])
    threads = Threads(app, linger="10m")

    def in_a_script(id_: str) -> mp.Outcome[str]:
        return threads.sync(lambda: threads.attempt("k", id_, mail, {"to": id_}))

    async def looked() -> int:
        async with app.client():
            return len(await app.inspect.runs(Query()))

    async def attached() -> mp.Outcome[str]:
        async with app.attach(key="k") as run:
            return await run.attempt("c3", mail, "c3")

    assert in_a_script("c1") == mp.Confirmed("sent c1")
    assert stage.rows("SELECT owner IS NULL FROM mp_runs") == [(0,)]
    assert asyncio.run(looked()) == 1
    assert in_a_script("c2") == mp.Confirmed("sent c2")
    assert asyncio.run(attached()) == mp.Confirmed("sent c3")
    assert in_a_script("c4") == mp.Confirmed("sent c4")
    threads.close()
    assert stage.rows("SELECT owner IS NULL FROM mp_runs") == [(1,)]
    assert app.loop is None


def test_nothing_lingers_in_a_loop_of_which_nothing_tells_when_it_ends(stage: Stage) -> None:
    """It would be held until the process ends, and not even the process itself could attach to it."""
    app = mp.App(stage.url, tools=[mail])

    async def attached(id_: str) -> mp.Outcome[str]:
        async with app.attach(key="k", linger="1s") as run:
            return await run.attempt(id_, mail, id_)

    for number in range(3):
        assert asyncio.run(attached(f"c{number}")) == mp.Confirmed(f"sent c{number}")
        assert stage.rows("SELECT owner IS NULL FROM mp_runs") == [(1,)]
    assert stage.rows("SELECT count(*) FROM mp_workers WHERE ended_at IS NULL") == [(0,)]


async def test_leave_gives_back_what_lingers_and_the_app_stays_open(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering, "HELD_MOST_S", 600.0)
    app = mp.App(stage.url, tools=[mail])
    async with app:
        threads = Threads(app, linger="10m")
        await threads.attempt("k", "c1", mail, {"to": "ann"})

        await app.leave()

        assert stage.rows("SELECT owner IS NULL FROM mp_runs") == [(1,)]
        assert await threads.attempt("k", "c2", mail, {"to": "bob"}) == mp.Confirmed("sent bob")


# ---------------------------------------------------------------- cancelled while it is taken


async def test_who_is_cancelled_while_a_run_is_being_taken_leaves_it_to_others(stage: Stage) -> None:
    """At whatever turn of the loop it is cancelled: else this process would hold it until it ends."""
    app, other = mp.App(stage.url, tools=[mail]), mp.App(stage.url, tools=[mail])

    async def attach(key: str, linger: str) -> None:
        async with app.attach(key=key, linger=linger):
            pass

    async with app:
        for linger in ("0s", "1s"):
            for turns in range(12):
                key = f"{linger}-{turns}"
                for _ in range(2):  # it is there, and lingers if it may
                    await attach(key, linger)
                task = asyncio.ensure_future(attach(key, linger))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                async with other.attach(key=key) as run:
                    assert await run.attempt("c1", mail, key) == mp.Confirmed(f"sent {key}")
