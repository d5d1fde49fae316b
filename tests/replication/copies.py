"""What the tests of `replication` share: replicated feeds as commands see them, and what they say of it."""

from datetime import datetime
from typing import Any

from feed_assets.clock import FrozenClock
from feed_assets.replication.auditing import CopyVerdict, Verified, verify
from feed_assets.replication.queries import AuditQuery
from feed_assets.replication.repairing import Repaired, RepairOutcome, repair
from feed_assets.replication.status import ReplicationStatus, find_status
from tests.context.contexts import context_of
from tests.instances.harness import LifecycleHarness, at

LATER = at("2030-01-01")
"""A real-time clock by which everything was written long ago."""


def query(**more: Any) -> AuditQuery:
    return AuditQuery(**{"feed": "clicks", **more})


def status(lifecycle: LifecycleHarness, as_of: datetime, **more: Any) -> ReplicationStatus:
    return find_status(context_of(lifecycle, as_of), query(**more))


def verified(lifecycle: LifecycleHarness, as_of: datetime, **more: Any) -> Verified:
    return verify(context_of(lifecycle, as_of, real_clock=FrozenClock(LATER)), query(**more))


def verdicts(lifecycle: LifecycleHarness, as_of: datetime, **more: Any) -> dict[datetime, CopyVerdict]:
    """What each instance was found to be, where one flow copies it."""
    return {each.nominal_time: each.verdict for each in verified(lifecycle, as_of, **more).copies}


def repaired(lifecycle: LifecycleHarness, as_of: datetime, *, dry_run: bool = False, **more: Any) -> Repaired:
    return repair(context_of(lifecycle, as_of).by("ann", dry_run=dry_run), query(**more))


def outcomes(done: Repaired) -> dict[datetime, RepairOutcome]:
    return {each.copy.nominal_time: each.outcome for each in done.copies}
