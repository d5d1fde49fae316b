"""Write what happens in a run to its log: a few lines for each instance, and one for each when there are many."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from feed_assets.clock import Stopwatch
from feed_assets.instances.steps.attempt_steps import AttemptStep, StepKind, StepPart
from feed_assets.plan.rendering import counted
from feed_assets.timing.dates import render_datetime
from feed_assets.transfer.requests import Progress

DETAILED = 10
"""The number of instances of a run whose steps have lines of their own; each later instance has one line."""

PROGRESS_EVERY = 10.0
"""Seconds between two log lines about the progress of copies."""

_VERBS = {
    StepKind.INPUTS: "reads",
    StepKind.STEP: "made",
    StepKind.WORK: "staged",
    StepKind.VERIFICATION: "verified",
    StepKind.PUBLICATION: "published",
    StepKind.LEFT_OUT: "left out",
}


@dataclass(slots=True)
class RunLog:
    """The log of a run that works on instances of a process, one after the other; `say` writes a line of it."""

    say: Callable[[str], None]
    _now: datetime | None = None
    _begun: int = 0
    _held: list[str] = field(default_factory=list)
    _release: str | None = None
    _has_session: bool = False
    _session_seconds: float = 0.0
    _watch: Stopwatch = field(default_factory=Stopwatch)
    _progress_at: float = 0.0

    def begin(self, nominal_time: datetime, release: str | None) -> None:
        """Begin an instance; `release` tells the release that it follows, and is written when it is another one."""
        self.end()
        self._now, self._begun = nominal_time, self._begun + 1
        if release is not None and release != self._release:
            self._release = release
            self._hold(release)

    def step(self, step: AttemptStep) -> None:
        """Tell a step of the present instance; the seconds of work are those after the start of the session."""
        is_work = step.kind in (StepKind.STEP, StepKind.WORK)
        seconds = max(step.seconds - self._session_seconds, 0.0) if is_work else step.seconds
        self._hold(describe_parts(step) + ("" if step.kind is StepKind.LEFT_OUT else f" in {seconds:.1f} s"))
        if is_work:
            self._session_seconds = 0.0

    def session(self, seconds: float) -> None:
        """Tell once that the Spark session has started."""
        if not self._has_session:
            self._has_session, self._session_seconds = True, seconds
            self._hold(f"Spark session started in {seconds:.1f} s")

    def end(self) -> None:
        """Write what has been held back of the present instance."""
        if self._held and self._now is not None:
            self.say(f"{render_datetime(self._now)} {'; '.join(self._held)}")
        self._held.clear()

    def progress(self, progress: Progress) -> None:
        """Tell the progress of copies, at intervals."""
        if self._watch.seconds - self._progress_at >= PROGRESS_EVERY:
            self._progress_at = self._watch.seconds
            self.say(
                f"copied {progress.bytes:,} of {progress.all_bytes:,} bytes, {progress.files:,} of "
                f"{progress.all_files:,} files"
            )

    def _hold(self, text: str) -> None:
        self._held.append(text)
        if self._begun <= DETAILED:
            self.end()


def describe_parts(step: AttemptStep) -> str:
    """Return what a step was about, without its duration.

    >>> from datetime import UTC
    >>> numbers = StepPart(name="numbers", instances=1, files=2, bytes=2048)
    >>> step = AttemptStep(kind=StepKind.INPUTS, nominal_time=datetime(2026, 1, 1, tzinfo=UTC), seconds=0.1,
    ...                    parts=(numbers,))
    >>> describe_parts(step)
    'reads numbers (1 instance, 2 files, 2,048 bytes)'
    """
    subject = f"step {step.name} " if step.name else ""
    return f"{subject}{_VERBS[step.kind]} {', '.join(map(_describe_part, step.parts)) or 'nothing'}"


def _describe_part(part: StepPart) -> str:
    figures = (("row", part.rows), ("instance", part.instances), ("file", part.files), ("byte", part.bytes))
    texts = [counted(count, noun) for noun, count in figures if count is not None]
    return f"{part.name} ({', '.join(texts)})" if texts else part.name
