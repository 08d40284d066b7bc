"""What a boundary holds: everything that recovery needs of a run, and all that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from milepost.core import entries as e
from milepost.core.chunks import split
from milepost.core.provenance import heard
from milepost.core.steps import Effect, Read
from milepost.runtime import starting

if TYPE_CHECKING:
    from milepost.core.state import RunState
    from milepost.runtime.session import Session

_json = msgspec.json.Encoder(order="deterministic")
MARKERS_IN_PLACE = 500
CHILDREN_IN_PLACE = 100


def make_boundary(
    session: Session,
    chunks: dict[str, bytes],
    segment: str | None,
    state: msgspec.Raw,
    root: str | None,
    *,
    finished: str | None = None,
) -> e.Boundary:
    """Return the boundary after the current visit; chunks that it names are added to `chunks`."""
    s = session.state
    left = s.segment or finished or ""
    visits = _visits(session, left)
    about = _place_about(session, chunks)
    digest, manifest = session.engine.manifest_chunk(session.workflow)
    if digest != s.manifest_digest:
        chunks[digest] = manifest
    markers, finished_root = _place_markers([*s.reopened, *_markers(session)], chunks)
    return e.Boundary(
        about=about,
        manifest=digest,
        visit=s.visit + 1,
        segment=segment,
        state=state,
        state_root=root,
        finished_segment=left or None,
        finished=markers,
        finished_root=finished_root,
        visits=visits,
        granted=s.ledger.granted,
        spent=s.ledger.spent,
        overspent=s.overspent,
        words=s.words,
        signals=tuple(s.signals),
        children=_children(s),
        heard=heard(s),
        cancel=s.cancel,
        epoch=s.epoch,
        owner=s.owner,
    )


def migrated_boundary(
    session: Session, chunks: dict[str, bytes], segment: str, state: msgspec.Raw, root: str | None
) -> e.Boundary:
    """Return the boundary that a migration makes of the present one: nothing was finished, and nothing is forgotten."""
    s = session.state
    digest, manifest = session.engine.manifest_chunk(session.workflow)
    chunks[digest] = manifest
    visits = dict(s.visits)
    if s.generation:  # what failed and was given up had keys here: another visit has other keys
        visits[segment] = visits.get(segment, 0) + 1
    return e.Boundary(
        about=_place_about(session, chunks),
        manifest=digest,
        visit=s.visit + 1,
        segment=segment,
        state=state,
        state_root=root,
        finished_segment=s.finished_segment,
        finished=(*s.finished, *s.reopened),
        finished_root=s.finished_root,
        visits=visits,
        granted=s.ledger.granted,
        spent=s.ledger.spent,
        overspent=s.overspent,
        words=s.words,
        signals=tuple(s.signals),
        children=_children(s),
        heard=heard(s),
        cancel=s.cancel,
        epoch=s.epoch,
        owner=s.owner,
    )


def made_again(session: Session, chunks: dict[str, bytes], target: e.Boundary) -> e.Boundary:
    """Return the boundary after the current visit that goes on where an earlier one stood.

    From the earlier one come the segment, its state and what had finished before it, under the manifest that the state
    was written with. What permits or limits is the run's of now. What failed since is kept, against late evidence.
    """
    s = session.state
    failed = tuple(marker for marker in s.finished if marker.outcome == "failed" and marker not in target.finished)
    return msgspec.structs.replace(
        target,
        about=_place_about(session, chunks),
        visit=s.visit + 1,
        finished=(*target.finished, *failed),
        visits=_visits(session, s.segment or ""),
        heard=heard(s),
        granted=s.ledger.granted,
        spent=s.ledger.spent,
        overspent=s.overspent,
        words=s.words,
        signals=tuple(s.signals),
        children=_children(s),
        cancel=s.cancel,
        epoch=s.epoch,
        owner=s.owner,
    )


def _children(s: RunState) -> dict[str, str]:
    """Return the children that run, unless they are very many: the store knows them by their parent."""
    running = {child: status for child, status in s.children.items() if status == "running"}
    return running if len(running) <= CHILDREN_IN_PLACE else {}


def _visits(session: Session, left: str) -> dict[str, int]:
    visits = session.state.visits
    return {**visits, left: visits.get(left, 0) + 1} if left else dict(visits)


def _place_about(session: Session, chunks: dict[str, bytes]) -> str:
    """Return the digest of what is true of the run, with the scopes that were granted and without those revoked."""
    s, about = session.state, session.about
    held = s.held(about.authority) if s.scopes or s.revoked else about.authority
    if set(held.scopes) != set(about.authority.scopes):
        about = msgspec.structs.replace(about, authority=held)
        session.about = about
        s.about_digest = starting.put_chunk(chunks, _json.encode(about))
    return s.about_digest


def _place_markers(markers: list[e.Marker], chunks: dict[str, bytes]) -> tuple[tuple[e.Marker, ...], str | None]:
    """Return the markers in place, or the failed ones and the root of all of them where they are very many."""
    if len(markers) <= MARKERS_IN_PLACE:
        return tuple(markers), None
    root, parts = split(_json.encode(markers))
    chunks.update(parts)
    return tuple(marker for marker in markers if marker.outcome == "failed"), root


def _markers(session: Session) -> list[e.Marker]:
    markers = []
    for record in session.state.steps.values():
        if type(record) is Effect:
            output = record.result if record.result is not None else msgspec.Raw(_json.encode(record.why))
            key = record.key if record.outcome == "failed" else ""
            markers.append(e.Marker(record.path, record.outcome, record.digest, output, key))
        elif type(record) is Read and record.status in {"returned", "failed"}:
            output = record.result if record.result is not None else msgspec.Raw(_json.encode(record.why))
            outcome = "confirmed" if record.status == "returned" else "failed"
            markers.append(e.Marker(record.path, outcome, record.digest, output))
    return markers
