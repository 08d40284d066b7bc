"""The trace of a run: one id for all that is known of it, made from the run's own id.

So whoever holds the record can name the trace, and every process that works on a run, before a crash and after it, and
every outside service that was called, means the same one. The forms are those of W3C Trace Context.
"""

from __future__ import annotations

from hashlib import sha256

TRACE_DIGITS = 32
SPAN_DIGITS = 16


def trace_of(run_id: str) -> str:
    """Return the id of a run's trace: 32 hexadecimal digits."""
    return sha256(f"milepost trace\0{run_id}".encode()).hexdigest()[:TRACE_DIGITS]


def span_of(run_id: str, *what: str | int) -> str:
    """Return the id of one part of a run's trace, 16 hexadecimal digits: the same in every process."""
    return sha256("\0".join(["milepost span", run_id, *map(str, what)]).encode()).hexdigest()[:SPAN_DIGITS]


def attempt_span(run_id: str, visit: int, step: str, attempt: int) -> str:
    """Return the id of the span of one attempt of a step."""
    return span_of(run_id, "attempt", visit, step, attempt)


def traceparent(trace: str, span: str) -> str:
    """Return the header `traceparent` that says: what you do belongs to this span. W3C Trace Context, 3.2."""
    return f"00-{trace}-{span}-01"
