"""Whether a killed run is equal to its unkilled twin, and that one to the suite's own plain execution."""

from dataclasses import dataclass

from evaluation.killing import Finished, Kill, Stage, WorkerError
from evaluation.task import Suite, Task, canonical

HEADINGS = ("task", "calls", "killed in", "the request was", "the record says", "applied", "utility", "equal")


@dataclass(frozen=True)
class Judged:
    """One line of the table, and the reasons, if any, why the killed run is not equal to the unkilled one."""

    cells: tuple[str, ...]
    differences: tuple[str, ...]


def kill_of(task: Task, moment: str) -> Kill:
    """Where the task's worker is to die: in its last consequential call or, where it has none, in its last read."""
    return Kill(task.consequential[-1] if task.consequential else len(task.calls) - 1, moment)


def judge(stage: Stage, task: Task, kill: Kill) -> Judged:
    """Run the task undisturbed, run it with the kill, and compare."""
    moment = kill.moment if kill.position in task.consequential else f"a read, {kill.moment}"
    try:
        unkilled = stage.play(task, f"{task.id}-unkilled")
        killed = stage.play(task, f"{task.id}-killed", kill)
    except WorkerError as failure:
        return Judged((task.id, str(len(task.calls)), "-", moment, "-", "-", "-", "no"), (str(failure),))
    useful = stage.suite.utility(task, stage.suite.initial_environment(task), killed.books.environment)
    differences = differences_of(stage.suite, task, unkilled, killed)
    if not useful:
        differences += ("the suite's utility check says that the task is not solved",)
    cells = (
        task.id,
        str(len(task.calls)),
        killed.killed_at,
        moment,
        " → ".join(killed.said),
        f"{len(killed.books.ledger)} of {len(task.consequential)}",
        "pass" if useful else "fail",
        "no" if differences else "yes",
    )
    return Judged(cells, differences)


def differences_of(suite: Suite, task: Task, unkilled: Finished, killed: Finished) -> tuple[str, ...]:
    """Where the killed run differs from the unkilled one, or the unkilled one from the suite's own plain execution."""
    plain_environment, plain_answers = suite.initial_environment(task), list[str]()
    for call in task.calls:
        plain_environment, answer = suite.call_function(plain_environment, call.function, call.args)
        plain_answers.append(canonical(answer))
    expected = [f"{task.calls[at].function} {canonical(task.calls[at].args)}" for at in task.consequential]
    claims = {
        "the environment differs from the unkilled run's": killed.books.environment == unkilled.books.environment,
        "the answers differ from the unkilled run's": killed.answers == unkilled.answers,
        "the bank's ledger differs from the unkilled run's": killed.books.applied == unkilled.books.applied,
        "a reference was applied twice": killed.books.references == len(killed.books.ledger),
        "the step it died in is not unknown next": killed.said[:2] == ("started", "unknown"),
        "the step it died in is not confirmed at last": killed.settled == "confirmed",
        f"its record is damaged: {killed.damage}": killed.damage is None,
        "the unkilled environment differs from the suite's": unkilled.books.environment == plain_environment,
        "the unkilled answers differ from the suite's": unkilled.answers == plain_answers,
        "the unkilled ledger differs from the ground truth": unkilled.books.applied == expected,
    }
    return tuple(claim for claim, holds in claims.items() if not holds)
