"""Cron expressions in time zones, and what a schedule says of itself."""

import importlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import milepost as mp
from milepost.core.duration import from_ms, to_ms
from milepost.definitions import schedules
from milepost.definitions.schedules import Cron
from milepost.errors import ExtraMissing


@mp.workflow(version="1")
async def report(run: mp.Run, day: str) -> str:
    return day


def at(text: str) -> int:
    return to_ms(datetime.fromisoformat(text))


def following(cron: Cron, start: str, count: int) -> list[str]:
    found, moment = [], at(start)
    for _ in range(count):
        tick = cron.after(moment)
        assert tick is not None
        assert tick > moment
        assert cron.latest(tick) == tick
        moment = tick
        found.append(f"{from_ms(tick):%m-%d %H:%M}")
    return found


def test_an_expression_is_read_in_its_time_zone() -> None:
    assert following(Cron("30 2 * * *", "UTC"), "2026-01-05T12:00Z", 2) == ["01-06 02:30", "01-07 02:30"]
    assert following(Cron("30 2 * * *", "Asia/Tokyo"), "2026-01-05T12:00Z", 1) == ["01-05 17:30"]


def test_what_falls_into_the_hour_that_is_skipped_runs_right_after_it() -> None:
    riga = Cron("30 3 * * *", "Europe/Riga")

    assert following(riga, "2026-03-28T12:00Z", 2) == ["03-29 01:00", "03-30 00:30"]


def test_what_names_its_hour_runs_once_where_clocks_are_set_back_and_what_does_not_in_both_hours() -> None:
    once, both = Cron("30 3 * * *", "Europe/Riga"), Cron("30 * * * *", "Europe/Riga")

    assert following(once, "2026-10-24T12:00Z", 2) == ["10-25 00:30", "10-26 01:30"]
    assert following(both, "2026-10-25T00:00Z", 3) == ["10-25 00:30", "10-25 01:30", "10-25 02:30"]


@pytest.mark.parametrize("expression", ["*/20 * * * *", "15 3 * * *", "30 2-4 * * *", "0 0 1 * *"])
@pytest.mark.parametrize("tz", ["Europe/Riga", "America/New_York", "Australia/Lord_Howe", "UTC"])
def test_through_a_year_ticks_only_rise_and_each_is_the_latest_at_its_moment(expression: str, tz: str) -> None:
    cron, moment = Cron(expression, tz), at("2026-01-01T00:00Z")
    stop = moment + timedelta(days=366 if expression.startswith("0 0") else 320) // timedelta(milliseconds=1)
    jumps = [at(f"2026-{day}T00:00Z") for day in ("03-08", "03-29", "04-05", "10-04", "10-25", "11-01")]
    for around in [moment, *jumps]:
        tick, end = cron.after(around - 86_400_000), min(stop, around + 2 * 86_400_000)
        while tick is not None and tick < end:
            assert cron.latest(tick) == tick
            later = cron.after(tick)
            assert later is not None
            assert later > tick
            assert cron.latest(later - 1) == tick
            tick = later


def test_an_expression_that_comes_no_more_has_no_tick() -> None:
    assert Cron("0 0 29 2 *", "UTC").after(at("9996-03-01T00:00Z")) is None


@pytest.mark.parametrize(
    ("cron", "tz", "said"),
    [
        ("61 * * * *", "UTC", "Bad minute"),
        ("* * * *", "UTC", "it has 4 fields"),
        ("0 * * * * *", "UTC", "it has 6 fields"),
        ("0 0 30 2 *", "UTC", "Bad day"),
        ("soon", "UTC", "it has 1 fields"),
        ("0 2 * * *", "Riga", "time zone 'Riga' is not known"),
        ("0 2 * * *", "../etc", "is not known"),
    ],
)
def test_what_is_no_schedule_is_refused_where_it_is_declared(tmp_path: Path, cron: str, tz: str, said: str) -> None:
    app = mp.App(f"sqlite:///{tmp_path / 's.db'}", workflows=[report])

    with pytest.raises(mp.InvalidDeclaration, match=said):
        app.schedule(report, cron, "x", tz=tz)


def test_a_schedule_is_declared_once_for_a_workflow_that_the_app_knows_with_an_input_that_can_be_stored(
    tmp_path: Path,
) -> None:
    app = mp.App(f"sqlite:///{tmp_path / 's.db'}", workflows=[report])
    app.schedule(report, "0 2 * * *", "x")

    with pytest.raises(mp.InvalidDeclaration, match="two schedules"):
        app.schedule(report, "0 3 * * *", "x")
    with pytest.raises(mp.InvalidDeclaration, match="catch_up"):
        app.schedule(report, "0 3 * * *", "x", key="other", catch_up="some")  # type: ignore[call-overload]
    with pytest.raises(mp.InvalidValue):
        app.schedule(report, "0 3 * * *", 1.5, key="other")  # type: ignore[arg-type]
    with pytest.raises(mp.UnknownWorkflow):
        mp.App(f"sqlite:///{tmp_path / 's.db'}").schedule(report, "0 3 * * *", "x")


def test_the_key_of_a_run_names_its_schedule_and_its_moment(tmp_path: Path) -> None:
    app = mp.App(f"sqlite:///{tmp_path / 's.db'}", workflows=[report])
    app.schedule(report, "0 2 * * *", lambda tick: f"{tick:%d}", key="nightly", tz="Europe/Riga", queue="slow")
    schedule = app._schedules["nightly"]

    assert schedule.key_of(at("2026-03-01T00:00Z")) == "nightly@2026-03-01T00:00:00Z"
    assert schedule.given(datetime(2026, 3, 7, tzinfo=UTC)) == "07"
    assert schedule.spec == '{"cron":"0 2 * * *","tz":"Europe/Riga","catch_up":"latest","queue":"slow"}'


def test_without_the_library_a_schedule_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    assert importlib.import_module("cronsim")
    monkeypatch.setattr(schedules, "import_module", missing)

    with pytest.raises(ExtraMissing, match=r"milepost\[cron\]"):
        Cron("0 2 * * *", "UTC")
