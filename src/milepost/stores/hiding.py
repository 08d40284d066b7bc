"""Encryption at the edge of the store: operations are encrypted before they are written, rows decrypted when read.

Entries alone are encrypted where they are numbered (`writing`), since each is bound to its number. All that stands
beside them is replaced here, in a copy of the operation: what the caller holds is never changed.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from milepost.errors import MilepostError, Refused
from milepost.stores.api import (
    Append,
    ApprovalRow,
    Create,
    Created,
    Deliver,
    EffectRow,
    Emit,
    Kill,
    NewRun,
    Once,
    OnceRow,
    OnceSettled,
    OnceTaken,
    OpenEffect,
    Post,
    RunRow,
    Status,
)
from milepost.stores.encryption import MAGIC, KeyMissing, WrongKeyFile, reveal, shown
from milepost.stores.fleet import Tick
from milepost.stores.keeping import TakeIn
from milepost.stores.waits import once_of_scope, once_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from milepost.stores.api import Operation
    from milepost.stores.encryption import Cipher
    from milepost.stores.statements import Statements

T = TypeVar("T")
ON = "encryption"


def is_on(sql: Statements, cipher: Cipher | None = None, place: str = "") -> bool:
    """Say whether a store is encrypted. Raises WrongKeyFile for a cipher that is not its own."""
    found = sql.run("get_meta", ON)
    if found and cipher is not None and found[0][0] != cipher.mark:
        raise WrongKeyFile(place)
    return bool(found)


def turn_on(sql: Statements, cipher: Cipher) -> None:
    """Encrypt a store from here on, in the transaction of the caller, and let the database refuse what is plain.

    Identities that were claimed before are hidden now: a claim that is not found would be a second claim. What else was
    written before stays as it is, for history is never rewritten.
    """
    if is_on(sql, cipher):
        return
    for table in ("entries", "chunks", "messages"):
        sql.do(f"refuse_plain_{table}")
    for tenant, tool, value, digest, result in sql.run("all_once"):
        identity = cipher.identity(str(tenant), str(tool), str(value))
        settled = None if result is None else cipher.seal("", identity, cast("bytes", result))
        sql.do("hide_once", identity, cipher.seal_text("", identity, str(digest)), settled, tenant, tool, value)
    sql.do("put_meta", ON, cipher.mark)


def commit(
    cipher: Cipher | None,
    operations: Sequence[Operation],
    turn_on: Callable[[Cipher], None],
    write: Callable[[Sequence[Operation]], list[Any]],
) -> list[Any]:
    """Commit to an encrypted store: `write` gets what may be stored, the caller answers that it can read."""
    if cipher is None:
        return [KeyMissing("") for _ in operations]  # nothing was tried, so nothing failed
    turn_on(cipher)
    refused: dict[int, MilepostError] = {}
    hidden: list[Operation] = []
    for place, operation in enumerate(operations):
        try:
            hidden.append(hide(cipher, operation))
        except MilepostError as error:
            refused[place] = error
    answers = iter(write(hidden))
    return [
        refused[place] if place in refused else answered(cipher, operation, next(answers))
        for place, operation in enumerate(operations)
    ]


# ---------------------------------------------------------------- before it is written


def hide(cipher: Cipher, operation: Operation) -> Operation:
    """Return an operation whose values are encrypted, all but entries that are numbered later."""
    match operation:
        case Append():
            return _append(cipher, operation)
        case Create(run=run):
            return Create(_new(cipher, run))
        case Tick(runs=runs):
            return _with(operation, runs=[_new(cipher, run) for run in runs])
        case Deliver(post=post):
            return Deliver(_post(cipher, post))
        case Kill(tell=tell):
            return _with(operation, tell=lambda parent: _post(cipher, tell(parent)))
        case Emit(events=events):
            return Emit([(run_id, at, cipher.seal(run_id, "event", body)) for run_id, at, body in events])
        case TakeIn():
            return _take_in(cipher, operation)
        case _:
            return operation


def _with(original: T, **changes: Any) -> T:
    """Return a copy with other values, of a row or an operation of whatever kind."""
    changed = copy(original)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


def _new(cipher: Cipher, run: NewRun) -> NewRun:
    return _with(
        run,
        entry=cipher.seal(run.id, "entry 1", run.entry),
        digest=cipher.seal_text(run.id, "digest", run.digest),
        chunks=_chunks(cipher, run.id, run.chunks),
    )


def _append(cipher: Cipher, append: Append) -> Append:
    run_id = append.head.run_id

    def effect(row: EffectRow) -> EffectRow:
        place = f"effect {row.step}"
        return _with(row, why=_text(cipher, run_id, place, row.why), person=_text(cipher, run_id, place, row.person))

    status, once = append.status, append.once
    hidden = _with(
        append,
        effects=[effect(row) for row in append.effects],
        chunks=None if append.chunks is None else _chunks(cipher, run_id, append.chunks),
        posts=[_post(cipher, post) for post in append.posts],
        approvals=[_with(row, args=cipher.seal(run_id, f"approval {row.id}", row.args)) for row in append.approvals],
        once_settled=[_settled(cipher, one) for one in append.once_settled],
        waits=[replace(one, scope=_scope(cipher, one.scope)) for one in append.waits],
    )
    if status is not None:
        ask, why = _text(cipher, run_id, "ask", status.ask), _text(cipher, run_id, "why", status.why)
        hidden.status = Status(status.status, status.at, status.reason, status.until, ask, why)
    if once is not None:
        identity = cipher.identity(once.tenant, once.tool, once.value)
        digest = cipher.seal_text("", identity, once.digest)
        hidden.once = Once(once.tenant, once.tool, identity, once.step, digest, once.again)
    return hidden


def _scope(cipher: Cipher, scope: str) -> str:
    """Return what a run waits for; a business identity among it is named as its row is."""
    identity = once_of_scope(scope)
    if identity is None:
        return scope
    tenant, tool, value = identity
    return once_scope(tenant, tool, cipher.identity(tenant, tool, value))


def _settled(cipher: Cipher, one: OnceSettled) -> OnceSettled:
    identity = cipher.identity(one.tenant, one.tool, one.value)
    result = None if one.result is None else cipher.seal("", identity, one.result)
    return _with(one, value=identity, result=result)


def _take_in(cipher: Cipher, operation: TakeIn) -> TakeIn:
    given = operation.copy
    if not all(body.startswith(MAGIC) for body in (*given.bodies, *given.chunks.values())):
        raise Refused(f"run {given.run_id} is not encrypted, and this store is: it can only come in where nothing is.")
    if operation.stop is None:
        return operation
    stop = cipher.seal(given.run_id, f"entry {given.seq + 1}", operation.stop)
    return _with(operation, stop=stop, why=cipher.seal_text(given.run_id, "why", operation.why))


def _chunks(cipher: Cipher, run_id: str, chunks: Mapping[str, bytes]) -> dict[str, bytes]:
    hidden = {}
    for digest, body in chunks.items():
        name = cipher.chunk_name(run_id, digest)
        hidden[name] = cipher.seal(run_id, f"chunk {name}", body)
    return hidden


def _post(cipher: Cipher, post: Post) -> Post:
    return _with(post, body=cipher.seal(post.run_id, "message", post.body))


def _text(cipher: Cipher, run_id: str, place: str, text: str | None) -> str | None:
    return None if text is None else cipher.seal_text(run_id, place, text)


# ---------------------------------------------------------------- as it is read


def answered(cipher: Cipher, operation: Operation, answer: Any) -> Any:
    """Return an answer as the caller is to see it."""
    if isinstance(answer, OnceTaken) and isinstance(operation, Append) and operation.once is not None:
        once = operation.once
        return OnceTaken(once_row(cipher, cipher.identity(once.tenant, once.tool, once.value), answer.row))
    if isinstance(answer, Created):
        return _with(answer, digest=cipher.open_text(answer.id, "digest", answer.digest))
    return answer


def opener(cipher: Cipher | None, run_id: str) -> Callable[[int, bytes], bytes]:
    """Return what reads a run's entries."""
    return lambda seq, body: reveal(cipher, run_id, f"entry {seq}", body)


def once_row(cipher: Cipher | None, identity: str, row: OnceRow) -> OnceRow:
    """Return who holds an identity, readable."""
    result = None if row.result is None else reveal(cipher, "", identity, row.result)
    return _with(row, digest=shown(cipher, "", identity, row.digest) or "", result=result)


def run_row(cipher: Cipher | None, row: RunRow) -> RunRow:
    """Return a run's row, readable."""
    row.ask, row.why = shown(cipher, row.id, "ask", row.ask), shown(cipher, row.id, "why", row.why)
    return row


def open_effect(cipher: Cipher | None, row: OpenEffect) -> OpenEffect:
    """Return an open effect, readable."""
    place = f"effect {row.step}"
    row.why, row.person = shown(cipher, row.run_id, place, row.why), shown(cipher, row.run_id, place, row.person)
    return row


def approval(cipher: Cipher | None, row: ApprovalRow) -> ApprovalRow:
    """Return an approval, readable. Raises KeyMissing: what is approved must be seen."""
    row.args = reveal(cipher, row.run_id, f"approval {row.id}", row.args)
    return row
