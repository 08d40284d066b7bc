"""The outside world: what becomes of bytes that left, and what it says when it is asked.

The author of a tool declared when an effect can no longer turn up: `visible_within` after the attempt is quiet. Until
then a request may land at any moment, and what landed may or may not be found; from then on it is found. Where nothing
is declared, it may land at any time. A provider that knows keys applies each key once as long as it remembers it.
"""

from __future__ import annotations

from collections.abc import Iterator

from milepost.core.outcome import Facts
from tests.model.places import Applied, Request, State

KEY_MARGIN_MS = 1_000


class Outside:
    """One provider, known by what the tool declares."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield what may become of each request that is on its way."""
        for request in state.requests:
            if request.fate != "out":
                continue
            what = f"attempt {request.number} of run {request.run + 1}"
            if self._may_land(state, request):
                yield f"{what} lands", self._landed(state, request, late=False)
            elif state.may("lie"):
                yield f"{what} lands later than declared", self._landed(state.spend("lie"), request, late=True)
            if state.may("rejected") and request.quiet is None:
                yield f"{what} is rejected", self._fate(state.spend("rejected"), request, "refused")

    def _may_land(self, state: State, request: Request) -> bool:
        facts = self._facts
        if facts.effect == "keyed" and facts.key_ttl_ms is not None and state.now > request.sent + KEY_MARGIN_MS:
            return False  # the margin is for this: what left in time arrives in time
        bound = facts.visible_ms
        return request.quiet is None or bound is None or state.now < request.quiet + bound

    def _landed(self, state: State, request: Request, *, late: bool) -> State:
        state = self._fate(state, request, "landed")
        facts = self._facts
        if facts.effect == "keyed" and facts.key_ttl_ms is not None:
            first = next((applied for applied in state.ledger if applied.key == request.key), None)
            if first is not None and state.now < first.at + facts.key_ttl_ms:
                return state  # the same key again: the same answer
        return state._replace(ledger=(*state.ledger, Applied(request.key, state.now, late)))

    @staticmethod
    def _fate(state: State, request: Request, fate: str) -> State:
        requests = tuple(r._replace(fate=fate) if r == request else r for r in state.requests)
        return state._replace(requests=requests)

    @staticmethod
    def silenced(state: State, worker: str) -> State:
        """A process died: what it sent is quiet from now on."""
        requests = tuple(
            r._replace(quiet=state.now) if r.worker == worker and r.quiet is None else r for r in state.requests
        )
        return state._replace(requests=requests)

    def findings(self, state: State, key: str) -> list[str]:
        """Return what may be heard when it is asked about a key, the fullest answer last."""
        applied = [one for one in state.ledger if one.key == key]
        certain = [one for one in applied if one.late or self._shows(state, one)]
        answers = {0: "did not happen", 1: "happened"}
        heard = [answers.get(count, "conflict") for count in range(min(2, len(certain)), min(2, len(applied)) + 1)]
        if state.may("stale read") and len(certain) == 1:
            heard.insert(0, "did not happen, from a stale copy")
        return (["still unknown"] if state.may("still unknown") else []) + heard

    def _shows(self, state: State, applied: Applied) -> bool:
        bound = self._facts.visible_ms
        if bound is None:
            return False
        quiet = [r.quiet for r in state.requests if r.key == applied.key and r.fate == "landed"]
        return all(moment is not None and state.now >= moment + bound for moment in quiet)
