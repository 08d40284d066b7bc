"""The trace of a run is made from its id, so every process names the same one."""

from milepost.core.tracing import attempt_span, span_of, trace_of, traceparent


def test_a_run_has_one_trace_and_another_run_another() -> None:
    assert trace_of("run-1") == trace_of("run-1") != trace_of("run-2")
    assert len(bytes.fromhex(trace_of("run-1"))) == 16


def test_each_part_of_a_run_has_a_span_of_its_own() -> None:
    parts = [
        span_of("run-1", "run"),
        span_of("run-2", "run"),
        attempt_span("run-1", 0, "m:0", 1),
        attempt_span("run-1", 0, "m:0", 2),
        attempt_span("run-1", 0, "m:1", 1),
        attempt_span("run-1", 1, "m:0", 1),
    ]

    assert len(set(parts)) == len(parts)
    assert {len(bytes.fromhex(part)) for part in parts} == {8}


def test_what_is_made_of_a_run_and_a_part_does_not_depend_on_where_one_ends_and_the_other_begins() -> None:
    assert span_of("run", "a", "b") != span_of("run", "ab") != span_of("runa", "b")


def test_a_header_says_the_trace_and_the_span_and_that_they_are_recorded() -> None:
    assert traceparent("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331") == (
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    )


def test_an_older_version_has_made_the_same_ids() -> None:
    """A trace goes on over an upgrade, so these digits are as fixed as a column's name."""
    assert trace_of("run-1") == "c441373cea7441f684683f4026efb1ea"
    assert span_of("run-1", "run") == "2ba17e63f1bc4bdb"
    assert attempt_span("run-1", 2, ":0", 3) == "bbc2d29b0bd2c6b8"
