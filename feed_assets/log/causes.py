"""Name the causes of state changes of process instances, and describe them in sentences."""

from enum import StrEnum


class Cause(StrEnum):
    """The cause of a process instance's last transition, or of an attempt at it.

    Decisions depend on the cause, never on its sentence.
    """

    INPUTS = "INPUTS"
    BY_HAND = "BY_HAND"
    REPAIR = "REPAIR"
    ELSEWHERE = "ELSEWHERE"
    COMMAND = "COMMAND"
    RETRY = "RETRY"
    LATE_DATA = "LATE_DATA"
    LATE_DATA_REFUSED = "LATE_DATA_REFUSED"
    UPDATED = "UPDATED"
    UPDATE_REFUSED = "UPDATE_REFUSED"
    SUPERSEDED = "SUPERSEDED"
    MISSED = "MISSED"
    OVERTAKEN = "OVERTAKEN"
    TIMED_OUT = "TIMED_OUT"
    INCOMPLETE = "INCOMPLETE"
    FAILURE = "FAILURE"
    OUTAGE = "OUTAGE"
    RETRIES_EXHAUSTED = "RETRIES_EXHAUSTED"
    INTERRUPTED = "INTERRUPTED"
    RUN_CANCELLED = "RUN_CANCELLED"
    RUN_LOST = "RUN_LOST"
    WORKERS_LOST = "WORKERS_LOST"
    UNDECLARED = "UNDECLARED"
    REMOVED = "REMOVED"
    REBUILT = "REBUILT"


_SENTENCES = {
    Cause.INPUTS: "its inputs are there",
    Cause.BY_HAND: "a run that was started by hand",
    Cause.SUPERSEDED: "a newer instance exists, and the order is LAST_ONLY",
    Cause.MISSED: "it was due while no sensor was running, and catch_up is none",
    Cause.OVERTAKEN: "it and a newer instance were due while no sensor was running, and catch_up is latest",
    Cause.TIMED_OUT: "its mandatory inputs did not all become available in time",
    Cause.INCOMPLETE: "its mandatory inputs did not all become available in time, and it runs with what is there",
    Cause.RUN_CANCELLED: "its run was cancelled",
    Cause.RUN_LOST: "its run ended without recording a result",
    Cause.UNDECLARED: "it is not declared any more",
    Cause.REBUILT: "its outputs on storage name it; the state was rebuilt from them",
}


def describe_cause(cause: Cause | None, detail: str | None) -> str | None:
    """Return the sentence for people: the detail if there is one; None if nothing is known.

    >>> describe_cause(Cause.RUN_CANCELLED, None)
    'its run was cancelled'
    >>> describe_cause(Cause.COMMAND, "killed by ann")
    'killed by ann'
    """
    if detail or cause is None:
        return detail or None
    return _SENTENCES.get(cause)
