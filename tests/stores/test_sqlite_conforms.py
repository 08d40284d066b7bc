"""The SQLite store does what every store must do, and runs tools inside its transaction."""

from milepost.testing import store_conformance as conformance


class TestBreakers(conformance.Breakers): ...


class TestChildren(conformance.Children): ...


class TestChunks(conformance.Chunks): ...


class TestClaims(conformance.Claims): ...


class TestIdentities(conformance.Identities): ...


class TestInbox(conformance.Inbox): ...


class TestJournal(conformance.Journal): ...


class TestKeeping(conformance.Keeping): ...


class TestKilling(conformance.Killing): ...


class TestOpening(conformance.Opening): ...


class TestPools(conformance.Pools): ...


class TestProjections(conformance.Projections): ...


class TestRefusals(conformance.Refusals): ...


class TestSchedules(conformance.Schedules): ...


class TestSwitches(conformance.Switches): ...


class TestTransactions(conformance.Transactions): ...


class TestTurns(conformance.Turns): ...


class TestWaits(conformance.Waits): ...


def test_no_part_of_the_suite_is_left_out() -> None:
    run = {base for name, kind in globals().items() if name.startswith("Test") for base in kind.__bases__}

    assert run == {*conformance.ALL, conformance.Transactions}


def test_every_part_of_the_suite_proves_something() -> None:
    for part in (*conformance.ALL, conformance.Transactions):
        proofs = [name for name in vars(part) if name.startswith("test_")]
        assert len(proofs) >= 5, part
        assert len(set(proofs)) == len(proofs)
