"""Errors of sweeps."""

from collections.abc import Mapping

from feed_assets.errors import Fault, LifecycleError


class FeedsUnsweptError(LifecycleError):
    """Paths of several feeds of a sweep could not be removed."""

    def __init__(self, *, sweep: str, failures: Mapping[str, Exception]) -> None:
        reasons = " ".join(f"Feed {feed!r}: {error}" for feed, error in failures.items())
        super().__init__(f"sweep {sweep} is not complete. {reasons} Run it again: it continues.")


class FeedsUnrestoredError(LifecycleError):
    """Paths of some feeds of a sweep could not be restored; the others are, `restored` in number."""

    def __init__(self, *, sweep: str, restored: int, failures: Mapping[str, Exception]) -> None:
        reasons = " ".join(f"Feed {feed!r}: {error}" for feed, error in failures.items())
        super().__init__(
            f"the undo of {sweep} has restored {restored:,} paths and is not complete. {reasons} "
            "Repeat it then: it continues."
        )


class SweepRefusedError(LifecycleError):
    """The requested operation on a sweep is not possible in its state; nothing was moved."""

    def __init__(self, *, sweep: str, reason: str, next_step: str, fault: Fault = Fault.STATE) -> None:  # noqa: ARG002 - a fact
        super().__init__(f"sweep {sweep}: {reason}. {next_step}")
