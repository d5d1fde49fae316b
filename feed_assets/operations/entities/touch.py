"""Touch: a new release with the same definition, from the next instance on."""

from collections.abc import Collection
from datetime import datetime

from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.lifecycle.redefinition import apply_plan, touch_process
from feed_assets.lifecycle.releases import ReleaseDecision
from feed_assets.operations.entities.registry import Registry, get_declared
from feed_assets.operations.entities.schedules import require_schedulable
from feed_assets.operations.entities.settling import load_governance
from feed_assets.operations.entities.verb_results import EntityOutcome, Outcome, VerbResult
from feed_assets.operations.safe_mode import Operation, require_mode
from feed_assets.timing.dates import render_datetime


def touch(
    registry: Registry,
    kind: Kind,
    name: str,
    clusters: Collection[str] | None = None,
    effective_from: datetime | None = None,
) -> VerbResult:
    """Begin a new release of a process, with the definitions as they are, from the first instance that is three minutes
    or more ahead, or from `effective_from` on. Where its validity is over by then, nothing happens. A feed has no
    releases.

    Raises:
        EntityNotFoundError: there is no such entity.
        NotSchedulableError: clusters and datasources cannot be touched.
        SafeModeError: safe mode forbids it.
    """
    require_mode(registry.database, Operation.TOUCH)
    registry.record()
    loaded = registry.load()
    entity = get_declared(loaded, kind, name)
    require_schedulable(loaded.bundle.bundle, entity, ())
    decisions: list[ReleaseDecision] = []
    notes = []
    assert isinstance(entity, Feed | Process)
    if isinstance(entity, Feed):
        notes.append("a feed has no releases: touch the processes that use it")
    else:
        governance = load_governance(registry, loaded.bundle)
        for cluster in entity.clusters:
            key = (name, cluster)
            record = governance.plan.processes.get(key)
            if record is None or (clusters is not None and cluster not in clusters):
                continue
            if record.sequence.ceil(effective_from or registry.now) is None:
                notes.append(f"on {cluster} its validity is over, nothing begins anew")
            elif not registry.dry_run:
                apply_plan(registry.database, governance, registry.now, registry.settings.definition_changes)
                decisions.append(touch_process(registry.database, governance, key, registry.now, effective_from))
    if decisions:
        begins = {each.cluster: _text(each.effective_from) for each in decisions}
        registry.audit(Operation.TOUCH.value, entity.label, effective_from=begins)
    is_done = bool(decisions) or (registry.dry_run and not notes)
    outcome = EntityOutcome(
        kind=entity.kind, name=name, outcome=Outcome.TOUCHED if is_done else Outcome.UNCHANGED, notes=tuple(notes)
    )
    return VerbResult(
        verb=Operation.TOUCH.value, outcomes=(outcome,), releases=tuple(decisions), dry_run=registry.dry_run
    )


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else render_datetime(moment)
