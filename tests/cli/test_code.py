"""Code that changes under waiting runs, on the command line: check, show, resume, tools, and what listings say."""

import asyncio
import json
import sys

import pytest

from milepost.cli.settings import load_app
from tests.cli.shop_floor import Shop, drive_all

PROGRAM = """
import milepost as mp

@mp.tool(
    effect="keyed", key_ttl="24h", visible_within="30s", version="{tool}", scopes=["pay"], cost={{"usd": 3}}, {also}
)
async def charge(order: str) -> str:
    return f"receipt for {{order}}"

@charge.reconcile
async def find(order: str) -> mp.Finding[str]:
    return mp.did_not_happen()

@mp.tool
def fax(to: str) -> None: ...

@mp.tool(effect="read", approval=lambda n: n > 1)
def look(n: int) -> int:
    return n

charge.compensate(fax)

desk = mp.Workflow("desk", version="{version}", input=str, result=str, tools=[charge, look], {options})

@desk.segment
async def triage(run: mp.Run, order: str) -> mp.Next[str]:
    return mp.go(wait, order)

@desk.segment
async def wait(run: mp.Run, order: str) -> mp.Next[str]:
    found = await look(1)
    await run.receive("go", int)
    return mp.done("{done}")

{more}
app = mp.App("sqlite:///shop.db", workflows=[desk], tools=[fax])
"""


def deployed(
    shop: Shop,
    name: str,
    version: str = "1",
    *,
    tool: str = "1",
    options: str = "",
    done: str = "done",
    more: str = "",
    also: str = "",
) -> str:
    """Write a program as it is deployed next; return how --app names it."""
    text = PROGRAM.format(version=version, tool=tool, options=options, done=done, more=more, also=also)
    (shop.folder / f"{name}.py").write_text(text)
    return f"{name}:app"


@pytest.fixture
def waiting(bare: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A shop with a run that waits inside `wait`, and one that was started and not yet entered."""
    old = deployed(bare, "old")
    bare.ok("init", "--store", "shop.db")
    bare.ok("start", "desk", '"a"', "--app", old, "--key", "inside")
    _drive(bare, old)
    bare.ok("start", "desk", '"b"', "--app", old, "--key", "fresh")
    monkeypatch.setenv("MILEPOST_STORE", "shop.db")
    return bare


def _drive(shop: Shop, name: str) -> None:
    """Drive every run under one deployment until all of them rest."""
    asyncio.run(drive_all(load_app(name)))


def run_of(shop: Shop, key: str) -> str:
    return str(shop.read("runs", "--key", key)[0]["run"])


def checked(shop: Shop, app: str, *args: str) -> tuple[int, dict[str, list[str]]]:
    """Check with this deployment; return the exit code, and the runs by verdict."""
    result = shop.milepost("check", "--app", app, "--json", *args)
    answer = json.loads(result.stdout)
    found: dict[str, list[str]] = {}
    for group in answer["groups"]:
        found.setdefault(group["verdict"], []).extend(group["runs"])
    return result.exit_code, found


# ---------------------------------------------------------------- check


def test_a_check_tells_before_a_deploy_what_happens_to_each_waiting_run(waiting: Shop) -> None:
    """Requirement 35. Requirement 57. Goes on, warns, migrates, blocks; and code 1 where a run would be stranded."""
    inside, fresh = run_of(waiting, "inside"), run_of(waiting, "fresh")
    migration = '@desk.migration(from_="1")\ndef up(segment, state): return mp.go(triage, state)\n'

    assert checked(waiting, "old:app") == (0, {"goes_on": [fresh, inside]})
    assert checked(waiting, deployed(waiting, "texts", done="other")) == (
        1, {"needs_resume": [inside], "warns": [fresh]}
    )  # fmt: skip
    assert checked(waiting, deployed(waiting, "two", "2")) == (1, {"blocks": [fresh, inside]})
    assert checked(waiting, deployed(waiting, "friend", "2", options='compatible_with=["1"]')) == (
        0, {"warns": [fresh, inside]}
    )  # fmt: skip
    assert checked(waiting, deployed(waiting, "moved", "2", more=migration)) == (
        1, {"blocks": [inside], "migrates": [fresh]}
    )  # fmt: skip
    assert checked(waiting, deployed(waiting, "newtool", tool="2")) == (1, {"blocks": [fresh, inside]})
    assert waiting.status(fresh) == "ready"
    assert waiting.read("plan", fresh, "--app", "moved:app")["act"] == "migrate"


def test_a_check_is_read_by_people_too(waiting: Shop) -> None:
    inside = run_of(waiting, "inside")
    result = waiting.milepost("check", "--app", deployed(waiting, "two", "2"))

    assert result.exit_code == 1
    assert "2 runs that have not ended." in result.stdout
    assert "2 would be blocked" in result.stdout
    assert f"desk 1, inside wait: {inside[:8]}" in result.stdout
    assert "declare compatible_with=['1']" in result.stdout
    assert "No run would be stranded." in waiting.ok("check", "--app", "old:app")


def test_runs_of_workflows_that_another_app_drives_are_no_concern_of_a_shared_store(waiting: Shop) -> None:
    (waiting.folder / "other.py").write_text(
        "import milepost as mp\n"
        "@mp.workflow(version='1')\n"
        "async def other(run: mp.Run) -> None: ...\n"
        "app = mp.App('sqlite:///shop.db', workflows=[other])\n"
    )

    assert checked(waiting, "other:app")[0] == 1
    assert checked(waiting, "other:app", "--shared")[0] == 0
    assert set(checked(waiting, "other:app")[1]) == {"elsewhere"}


def test_a_check_of_a_store_that_is_not_there_says_so(bare: Shop) -> None:
    assert bare.refused("check", "--app", deployed(bare, "old")) == (4, "store_missing")


def test_a_segment_that_awaits_nothing_is_found_in_the_code(waiting: Shop) -> None:
    """Requirement 56."""
    answer = waiting.read("check", "--app", "old:app")

    (smell,) = answer["boundaries"]
    assert (smell["code"], smell["workflow"], smell["segment"]) == ("empty_segment", "desk", "triage")
    assert "empty_segment" in waiting.ok("check", "--app", "old:app")


# ---------------------------------------------------------------- blocked: show and resume


def test_a_blocked_run_shows_both_sides_and_is_resumed_only_with_established_compatibility(waiting: Shop) -> None:
    """Requirement 57. Requirement 35. Requirement 44."""
    inside = run_of(waiting, "inside")
    two = deployed(waiting, "two", "2", tool="2", done="other")
    waiting.ok("send", inside, "go", "1")
    _drive(waiting, two)

    shown = waiting.ok("show", inside)
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert waiting.status(inside) == "blocked"
    assert "version 1 2" in lines
    assert any(line.startswith("tool charge 1 (") for line in lines)
    assert f"milepost resume {inside}" in shown
    sides = {
        one["part"]: (one["recorded"], one["today"]) for one in waiting.read("show", inside)["code"]["differences"]
    }
    assert sides["version"] == ("1", "2")
    assert waiting.refused("resume", inside, "--why", "please", "--app", two) == (5, "incompatible")
    refusal = waiting.milepost("resume", inside, "--why", "please", "--app", two)
    assert "compatible_with=['1']" in refusal.stderr
    assert "milepost show" in refusal.stderr

    friend = deployed(waiting, "friend", "2", tool="2", done="other", options='compatible_with=["1"]')
    assert "will be resumed" in waiting.ok("resume", inside[:8], "--why", "declared", "--by", "ann", "--app", friend)
    _drive(waiting, friend)
    assert waiting.status(inside) == "done"
    resumed = [entry for entry in waiting.read("journal", inside) if entry["entry"] == "resumed"]
    assert [(entry["fields"]["by"], entry["fields"]["why"]) for entry in resumed] == [("ann", "declared")]


def test_without_the_app_the_worker_checks_what_is_to_be_resumed(waiting: Shop) -> None:
    """Requirement 57."""
    inside = run_of(waiting, "inside")
    two = deployed(waiting, "two", "2")
    waiting.ok("send", inside, "go", "1")
    _drive(waiting, two)

    result = waiting.milepost("resume", inside, "--why", "please")
    _drive(waiting, two)

    assert result.exit_code == 0
    assert "was not asked" in result.stderr
    assert waiting.status(inside) == "blocked"
    assert waiting.read("journal", inside)[-1]["entry"] != "resumed"
    assert "message_refused" in [entry["entry"] for entry in waiting.read("journal", inside)]


def test_retry_is_for_failures_and_resume_for_blocks(waiting: Shop) -> None:
    inside = run_of(waiting, "inside")
    assert waiting.refused("resume", inside, "--why", "x") == (5, "wrong_status")
    waiting.ok("send", inside, "go", "1")
    _drive(waiting, deployed(waiting, "two", "2"))

    assert waiting.refused("retry", inside) == (5, "wrong_status")
    assert "milepost resume" in waiting.milepost("retry", inside).stderr


# ---------------------------------------------------------------- what listings say


def test_a_warning_stands_in_show_listing_and_doctor_until_the_next_boundary(waiting: Shop) -> None:
    """Requirement 34."""
    inside = run_of(waiting, "inside")
    waiting.ok("send", inside, "other", "1")
    _drive(waiting, deployed(waiting, "stands", tool="2", also='compatible_with=["1"]'))

    said = "tool 'charge' was version '1', is now '2'"
    assert said in waiting.ok("show", inside)
    assert said in waiting.ok("runs")
    assert said in {c for row in waiting.read("runs") for c in row["changes"]}
    assert "went on under code that differs" in waiting.ok("doctor")


def test_listings_ask_the_code_only_where_the_app_is_typed_out(waiting: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    two = deployed(waiting, "two", "2")
    monkeypatch.setenv("MILEPOST_APP", two)

    assert "stranded" not in waiting.ok("runs")
    assert "today's code" not in waiting.ok("doctor")
    assert "two" not in sys.modules
    listed = waiting.ok("runs", "--app", two)
    assert "Would be stranded by today's code" in listed
    assert "milepost check" in listed
    assert {row["code"]["verdict"] for row in waiting.read("runs", "--app", two)} == {"blocks"}
    told = waiting.milepost("doctor", "--app", two)
    assert told.exit_code == 1
    assert "2 of desk 1 would be blocked" in told.stdout or "1 of desk 1 would be blocked" in told.stdout
    assert "it strands no run that waits" in waiting.ok("doctor", "--app", "old:app")


def test_doctor_and_the_listing_show_what_changed_code_has_blocked_and_what_helps(waiting: Shop) -> None:
    inside = run_of(waiting, "inside")
    waiting.ok("send", inside, "go", "1")
    _drive(waiting, deployed(waiting, "two", "2"))

    assert "blocked by other code" in waiting.ok("doctor")
    assert "milepost resume" in waiting.ok("runs")
    assert "incompatible" in waiting.ok("runs")


# ---------------------------------------------------------------- checkpoints and tools


def test_the_cost_of_every_checkpoint_is_shown(waiting: Shop) -> None:
    """Requirement 54. How many bytes each wrote, when, and how long after the one before."""
    inside = run_of(waiting, "inside")
    made = waiting.read("show", inside)["checkpoints"]

    assert made["count"] == 2
    first, second = made["latest"]
    assert (first["finished"], first["following"]) == (None, "triage")
    assert (second["finished"], second["following"], second["state_bytes"]) == ("triage", "wait", len('"a"'))
    assert first["chunk_bytes"] > second["chunk_bytes"] == 0
    assert second["entry_bytes"] > 0
    assert second["at"] >= first["at"]
    shown = waiting.ok("show", inside)
    assert "Checkpoints (2)" in shown
    assert "bytes written" in shown


def test_what_the_tools_declare_is_listed(waiting: Shop) -> None:
    listed = {tool["tool"]: tool for tool in waiting.read("tools", "--app", "old:app")}

    assert listed["charge"] == {
        "tool": "charge", "version": "1", "compatible_with": [], "class": "keyed", "risk": "low", "scopes": ["pay"],
        "approval": False, "cost": {"usd": "3"}, "timeout_ms": 60_000, "key_ttl_ms": 86_400_000,
        "visible_within_ms": 30_000, "reconcile": True, "compensate": "fax", "once": [], "listed_by": ["desk"],
    }  # fmt: skip
    assert listed["look"]["approval"] == "depends on the arguments"
    assert listed["fax"]["listed_by"] == [""]
    shown = waiting.ok("tools", "--app", "old:app")
    assert "key for 1d, asked, shows within 30s" in shown
    assert "(attached)" in shown
    assert "a person" in shown
