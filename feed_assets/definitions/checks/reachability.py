"""Reachability of everything that entities name: the table of live checks, run in parallel with a deadline. Nothing is
changed, except that a submission makes the absent working folder of a cluster.
"""

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from feed_assets.clock import TimeBudget
from feed_assets.definitions.checks import live_checks
from feed_assets.definitions.checks.live_checks import Probe
from feed_assets.definitions.checks.services import Outside
from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.common import Kind
from feed_assets.errors import FeedAssetsError
from feed_assets.issues import EntityKey, Issue, SourceMap, order_of, split_error
from feed_assets.validation.scope import Complaint

SECONDS = 30.0
"""The time limit of a check. Starting Java on a cold and busy machine alone can take ten seconds."""
AT_ONCE = 16
"""The number of checks that run at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCheck:
    """One check: its code, its kind of entity, and the function that yields the probes of an entity."""

    code: str
    kind: Kind
    probes: Callable[[Outside, Any], Iterator[Probe]]


LIVE_CHECKS: tuple[LiveCheck, ...] = (
    LiveCheck(code="storage-unreachable", kind=Kind.CLUSTER, probes=live_checks.check_storage),
    LiveCheck(code="work-folder", kind=Kind.CLUSTER, probes=live_checks.check_folders),
    LiveCheck(code="spark-unreachable", kind=Kind.CLUSTER, probes=live_checks.check_spark),
    LiveCheck(code="catalog-unreachable", kind=Kind.CLUSTER, probes=live_checks.check_catalog),
    LiveCheck(code="database-unreachable", kind=Kind.DATASOURCE, probes=live_checks.check_database),
    LiveCheck(code="table-missing", kind=Kind.FEED, probes=live_checks.check_tables),
    LiveCheck(code="workflow-missing", kind=Kind.PROCESS, probes=live_checks.check_workflows),
    LiveCheck(code="mirror-unreachable", kind=Kind.PROCESS, probes=live_checks.check_mirrors),
)


def check_reachability(
    bundle: Bundle,
    keys: Collection[EntityKey] | None = None,
    *,
    sources: SourceMap,
    root: Path,
    environ: Mapping[str, str] | None = None,
    prepare: bool = False,
    seconds: float = SECONDS,
) -> list[Issue]:
    """Apply the live checks. Issues are ordered by file and line.

    Args:
        bundle: all entities; the checked ones may refer to the others.
        keys: the entities to check; None for all.
        sources: the files and lines of the entities.
        root: the project's folder, for relative paths.
        environ: the environment; the process's own if None.
        prepare: make the absent working folder of a cluster, as a submission does.
        seconds: the time limit of a check; after that it has failed.
    """
    environ = os.environ if environ is None else environ
    outside = Outside(bundle, root=root, environ=environ, prepares=prepare)
    try:
        entities = [entity for entity in bundle.entities if keys is None or entity.key in keys]
        tasks = iter([task for entity in entities for task in _tasks(outside, entity)])
        issues: list[Issue] = []
        while batch := list(islice(tasks, AT_ONCE)):
            for task, complaints in _run(batch, seconds):
                issues.extend(_issue(task, complaint, sources) for complaint in complaints)
    finally:
        outside.close()
    return sorted(issues, key=order_of)


@dataclass(slots=True, kw_only=True)
class _Task:
    """A probe in its own thread, which is abandoned if it does not end."""

    check: LiveCheck
    entity: AnyEntity
    probe: Probe
    complaints: list[Complaint] = field(default_factory=list)
    mistake: Exception | None = None

    def run(self) -> None:
        try:
            self.complaints = list(self.probe.ask())
        except FeedAssetsError as exc:
            finding = split_error(exc)
            self.complaints = [self._failed(finding.message, finding.remedy)]
        except OSError as exc:
            self.complaints = [self._failed(str(exc), "Check that it exists, and that this user may use it.")]
        except Exception as exc:  # noqa: BLE001 - raised again in the calling thread
            self.mistake = exc

    def timeout_complaint(self, seconds: float) -> Complaint:
        return self._failed(f"no answer within {seconds:g} seconds", "Check that it runs and can be reached.")

    def _failed(self, reason: str, remedy: str) -> Complaint:
        return Complaint(path=self.probe.path, message=f"{self.probe.what} cannot be used: {reason}", remedy=remedy)


def _tasks(outside: Outside, entity: AnyEntity) -> Iterator[_Task]:
    for check in LIVE_CHECKS:
        if check.kind is entity.kind:
            yield from (_Task(check=check, entity=entity, probe=probe) for probe in check.probes(outside, entity))


def _run(tasks: Sequence[_Task], seconds: float) -> Iterator[tuple[_Task, Sequence[Complaint]]]:
    threads = [threading.Thread(target=task.run, daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    budget = TimeBudget(seconds)
    for task, thread in zip(tasks, threads, strict=True):
        thread.join(max(0.0, budget.left))
        if thread.is_alive():
            yield task, [task.timeout_complaint(seconds)]
            continue
        if task.mistake is not None:
            raise task.mistake
        yield task, task.complaints


def _issue(task: _Task, complaint: Complaint, sources: SourceMap) -> Issue:
    return Issue(
        severity=complaint.severity,
        code=task.check.code,
        entity=task.entity.label,
        message=complaint.message,
        remedy=complaint.remedy,
        source=complaint.source or sources.locate(task.entity.key, complaint.path),
    )
