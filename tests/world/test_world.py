"""The outside world that is shipped: services that know what they did, and a proxy that fails as it is told."""

import asyncio
import itertools
import smtplib
from collections.abc import Iterator
from contextlib import suppress
from email.message import EmailMessage
from pathlib import Path

import httpx
import pytest

from milepost.testing.check import Applied
from milepost.testing.world import Account, AccountClock, NotStarted, Rules, Toxic, World
from milepost.testing.world.process import Service
from milepost.testing.world.rules import SEEDED, WELL_BEHAVED_FROM, seeded
from tests.polling import eventually

HEARS_S = 30.0  # whoever is to get an answer waits for it, however busy the machine is
GIVES_UP_S = 0.5  # whoever is to get none
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("world")) as opened:
        yield opened
    logs = [path.read_text() for path in opened.folder.glob("*.log")]
    assert not [log for log in logs if "Traceback" in log], logs


@pytest.fixture
def account(world: World) -> Account:
    return world.account(f"account-{next(NUMBERS)}")


def ask(account: Account, kind: str, name: str = "one", method: str = "POST", **headers: str) -> httpx.Response:
    url, told = account.url(kind, "tool", name), {"Effect-Attempt": "1", **headers}
    return httpx.request(method, url, json={"name": name}, headers=told, timeout=HEARS_S, trust_env=False)


def ask_briefly(account: Account, name: str = "one", hears_s: float = GIVES_UP_S) -> httpx.Response:
    url, told = account.url("queryable", "tool", name), {"Effect-Attempt": "1"}
    return httpx.post(
        url, json={"name": name}, headers=told, timeout=httpx.Timeout(HEARS_S, read=hears_s), trust_env=False
    )


def look(account: Account, kind: str, name: str = "one") -> list[object]:
    answer = httpx.get(account.url(kind, "tool", name), timeout=HEARS_S, trust_env=False)
    found: list[object] = answer.json()["found"]
    return found


def mail(account: Account, hears_s: float = HEARS_S) -> None:
    message = EmailMessage()
    message["From"], message["To"] = "desk@desk.example", "ann@example.test"
    message["X-Account"], message["X-Effect-Key"] = account.name, "k-1"
    message["X-Args"] = '{"name": "ann"}'
    message.set_content("Hello.")
    with smtplib.SMTP("127.0.0.1", account.mail_port, local_hostname="desk.example", timeout=HEARS_S) as smtp:
        smtp.ehlo()
        assert smtp.sock is not None
        smtp.sock.settimeout(hears_s)
        smtp.send_message(message)


# ------------------------------------------------------------ the services


def test_a_keyed_effect_is_applied_once_for_a_key_and_answered_the_same_again(account: Account) -> None:
    first, again = (ask(account, "keyed", **{"Idempotency-Key": "k-1"}) for _ in range(2))
    other = ask(account, "keyed", name="two", **{"Idempotency-Key": "k-1"})

    assert first.json() == again.json()
    assert (first.status_code, other.status_code) == (200, 422)
    assert [(line.key, line.attempt, line.args) for line in account.lines()] == [("k-1", 1, {"name": "one"})]
    assert len(account.requests()) == 3


def test_a_key_is_forgotten_when_its_time_is_over(account: Account) -> None:
    ask(account, "keyed", **{"Idempotency-Key": "k-1"})
    account.advance("2d")
    ask(account, "keyed", **{"Idempotency-Key": "k-1"})

    assert len(account.lines()) == 2


def test_a_queryable_effect_shows_after_its_delay(account: Account) -> None:
    account.obey(Rules(shows_after_ms=90_000))
    ask(account, "queryable")

    assert look(account, "queryable") == []
    account.advance(91_000)
    assert len(look(account, "queryable")) == 1


def test_an_absolute_effect_is_refused_when_its_version_has_moved_on(account: Account) -> None:
    first = ask(account, "absolute", method="PUT", **{"If-Match": "0"})
    again = ask(account, "absolute", method="PUT", **{"If-Match": "0"})

    assert (first.status_code, again.status_code) == (200, 412)
    assert len(account.lines()) == 1


def test_an_irreversible_effect_is_applied_each_time_and_answers_no_question(account: Account) -> None:
    ask(account, "irreversible")
    ask(account, "irreversible")
    question = httpx.get(account.url("irreversible", "tool", "one"), timeout=HEARS_S, trust_env=False)

    assert question.status_code == 405
    assert len(account.lines()) == 2


def test_a_mail_and_a_file_have_their_line_in_the_ledger(account: Account) -> None:
    mail(account)
    account.files.put(account.name, "deliver", "one", "k-2", 1, {"name": "one"})
    eventually(lambda: len(account.lines()) == 2)

    assert [(line.tool, line.key) for line in account.applied()] == [("mail", "k-1"), ("deliver", "k-2")]
    assert account.files.find(account.name, "deliver", "one")
    assert not account.files.find(account.name, "deliver", "two")


def test_the_ledger_speaks_as_the_checker_reads_it(account: Account) -> None:
    ask(account, "queryable", **{"Effect-Key": "k-1"})
    (line,) = account.applied()

    assert line == Applied("tool", "k-1", 1, line.at, {"name": "one"})


def test_the_clock_of_an_account_is_moved_from_outside(account: Account) -> None:
    clock = AccountClock(account.folder, account.name)
    before = clock.now()
    account.advance("3d")

    assert clock.now() - before >= 3 * 86_400_000


def test_a_service_that_does_not_start_says_so(tmp_path: Path) -> None:
    service = Service("milepost.testing.world.proxy", tmp_path)

    with pytest.raises(NotStarted, match="--origin"):
        service.port()
    service.stop()


# ------------------------------------------------------------ the proxy


@pytest.mark.parametrize(
    ("toxic", "raised", "applied"),
    [
        (Toxic("drop"), httpx.ReadTimeout, 1),
        (Toxic("reset", forward=True), httpx.ReadError, 1),
        (Toxic("reset", forward=False), httpx.ReadError, 0),
        (Toxic("truncate"), httpx.RemoteProtocolError, 1),
        (Toxic("late", ms=3_600_000), httpx.ReadTimeout, 0),
    ],
    ids=lambda value: value.name if isinstance(value, Toxic) else None,
)
def test_a_proxy_breaks_an_exchange_as_it_is_told(
    account: Account, toxic: Toxic, raised: type[Exception], applied: int
) -> None:
    account.obey(Rules(script=(toxic,)))

    with pytest.raises(raised):
        ask_briefly(account, hears_s=GIVES_UP_S if raised is httpx.ReadTimeout else HEARS_S)

    eventually(account.met, saying="the proxy has met it")
    eventually(lambda: len(account.lines()) >= applied, saying="what is let through is applied")
    assert len(account.lines()) == applied
    assert account.met() == [toxic.name]


@pytest.mark.parametrize("forward", [True, False])
def test_a_proxy_invents_an_answer_with_and_without_the_origin(account: Account, *, forward: bool) -> None:
    account.obey(Rules(script=(Toxic("gateway", status=504, forward=forward),)))

    assert ask(account, "queryable").status_code == 504
    assert len(account.lines()) == int(forward)


def test_a_slow_answer_is_whole_in_the_end(account: Account) -> None:
    account.obey(Rules(script=(Toxic("trickle", ms=1), Toxic("delay", ms=50))))

    assert ask(account, "queryable").json()["args"] == {"name": "one"}
    assert ask(account, "queryable").json()["args"] == {"name": "one"}


def test_a_request_that_is_held_back_lands_when_the_clock_says_so(account: Account) -> None:
    account.obey(Rules(script=(Toxic("late", ms=60_000),)))
    with pytest.raises(httpx.ReadTimeout):
        ask_briefly(account)
    eventually(account.met, saying="the proxy holds it back")

    assert account.lines() == []
    account.advance(61_000)
    eventually(account.lines)


def test_after_its_script_a_proxy_lets_everything_pass(account: Account) -> None:
    account.obey(Rules(script=(Toxic("gateway"),)))

    assert [ask(account, "queryable").status_code for _ in range(3)] == [502, 200, 200]
    assert look(account, "queryable")


@pytest.mark.parametrize(
    ("toxic", "applied"),
    [(Toxic("drop"), 1), (Toxic("reset", forward=False), 0), (Toxic("gateway"), 1), (Toxic("truncate"), 1)],
    ids=lambda value: value.name if isinstance(value, Toxic) else None,
)
def test_the_end_of_a_mail_is_broken_as_it_is_told(account: Account, toxic: Toxic, applied: int) -> None:
    account.obey(Rules(script=(toxic,)))

    with pytest.raises((smtplib.SMTPException, OSError)):
        mail(account, hears_s=2.0 if toxic.kind == "drop" else HEARS_S)  # the words before its end are answered

    eventually(account.met, saying="the proxy has met it")
    eventually(lambda: len(account.lines()) >= applied, saying="what is let through is applied")
    assert len(account.lines()) == applied
    assert account.met() == [toxic.name]


# ------------------------------------------------------------ seeds


def test_a_seed_chooses_the_same_again_whatever_the_order() -> None:
    what = [f"POST queryable/tool/{number}" for number in range(200)]
    chosen = {one: seeded(7, one, 0) for one in what}

    assert {one: seeded(7, one, 0) for one in reversed(what)} == chosen
    assert {one: seeded(8, one, 0) for one in what} != chosen
    assert {toxic.kind for toxic in chosen.values()} >= {toxic.kind for _, toxic in SEEDED} - {"trickle", "truncate"}


def test_the_same_thing_is_treated_well_in_the_end(account: Account) -> None:
    account.obey(Rules(seed=3))
    for _ in range(WELL_BEHAVED_FROM):
        try:
            ask_briefly(account)
        except httpx.HTTPError:
            continue

    assert ask(account, "queryable").status_code == 200


def test_a_failing_seed_replays_exactly(world: World) -> None:
    met = []
    for name in ("first", "second"):
        account = world.account(f"replayed-{name}")
        account.obey(Rules(seed=11))
        for number in range(12):
            with suppress(httpx.HTTPError):
                ask_briefly(account, name=str(number))
            eventually(lambda: len(account.met()) > number, saying="the proxy has met it")  # noqa: B023  called at once
        met.append(account.met())

    assert met[0] == met[1]
    assert len(set(met[0])) > 2


def test_what_a_seed_spares_is_left_alone() -> None:
    rules = Rules(seed=5, spares=("irreversible",))
    names = [f"POST irreversible/press/{number}" for number in range(50)]

    assert {rules.toxic(name, 0, 0).kind for name in names} == {"none"}
    assert {Rules(seed=5).toxic(name, 0, 0).kind for name in names} != {"none"}


def test_two_accounts_do_not_touch_each_other(world: World) -> None:
    one, other = world.account("this"), world.account("that")
    one.obey(Rules(script=(Toxic("gateway"),)))

    assert ask(other, "queryable").status_code == 200
    assert (one.lines(), len(other.lines())) == ([], 1)


def test_the_world_ends_with_whoever_opened_it(tmp_path: Path) -> None:
    with World(tmp_path / "world", mail=False) as world:
        account = world.account("short")
        assert ask(account, "queryable").status_code == 200

    with pytest.raises(httpx.ConnectError):
        ask(account, "queryable")


def test_many_at_once_are_served(account: Account) -> None:
    async def all_of_them() -> list[int]:
        async with httpx.AsyncClient(trust_env=False, timeout=HEARS_S) as client:
            urls = [account.url("queryable", "tool", str(number)) for number in range(30)]
            answers = await asyncio.gather(*(client.post(url, json={}) for url in urls))
        return [answer.status_code for answer in answers]

    assert set(asyncio.run(all_of_them())) == {200}
    assert len(account.lines()) == 30


def test_a_file_that_was_sent_stands_in_the_books_of_whoever_looks_next(world: World) -> None:
    account = world.account("prompt")
    for number in range(20):
        account.files.put("prompt", "deliver", f"parcel-{number}", "a" * 64, 1, {})

        assert len(account.lines()) == number + 1
