"""Touch: a new release with unchanged definitions, from the next instance on."""

from collections.abc import Collection
from datetime import datetime

from feed_assets.context.safe_mode import Operation, require_mode
from feed_assets.definitions.verbs.context import EntityContext, get_declared
from feed_assets.definitions.verbs.schedules import require_schedulable
from feed_assets.definitions.verbs.settling import apply_releases, load_timeline
from feed_assets.definitions.verbs.verb_results import EntityOutcome, VerbOutcome, VerbResult
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.instances.gates.plan_changes import touch_process
from feed_assets.releases.decide_releases import ReleaseDecision
from feed_assets.timing.dates import render_datetime


def touch(
    context: EntityContext,
    kind: Kind | None,
    name: str,
    clusters: Collection[str] | None = None,
    effective_from: datetime | None = None,
) -> VerbResult:
    """Begin a new release of a process, with unchanged definitions, at the first instance that is at least three
    minutes ahead, or at `effective_from`. Nothing happens if the validity is over by then. A feed has no releases.

    Raises:
        EntityNotFoundError: there is no such entity.
        NotSchedulableError: clusters and datasources cannot be touched.
        SafeModeError: safe mode forbids it.
    """
    require_mode(context.database, Operation.TOUCH)
    context.record()
    loaded = context.load()
    entity = get_declared(loaded, kind, name)
    require_schedulable(loaded.bundle.bundle, entity, ())
    decisions: list[ReleaseDecision] = []
    notes = []
    assert isinstance(entity, Feed | Process)
    if isinstance(entity, Feed):
        notes.append("a feed has no releases: touch the processes that use it")
    else:
        timeline = load_timeline(context, loaded.bundle)
        for cluster in entity.clusters:
            key = (name, cluster)
            record = timeline.plan.processes.get(key)
            if record is None or (clusters is not None and cluster not in clusters):
                continue
            if record.sequence.ceil(effective_from or context.now) is None:
                notes.append(f"on {cluster} its validity is over: no new release")
            elif not context.dry_run:
                apply_releases(context, timeline)
                decisions.append(touch_process(context.database, timeline, key, context.now, effective_from))
    if decisions:
        begins = {each.cluster: each.effective_from and render_datetime(each.effective_from) for each in decisions}
        context.audit(Operation.TOUCH.value, entity.label, effective_from=begins)
    is_done = bool(decisions) or (context.dry_run and not notes)
    outcome = EntityOutcome(
        kind=entity.kind,
        name=name,
        outcome=VerbOutcome.TOUCHED if is_done else VerbOutcome.UNCHANGED,
        notes=tuple(notes),
    )
    return VerbResult(
        verb=Operation.TOUCH.value, outcomes=(outcome,), releases=tuple(decisions), dry_run=context.dry_run
    )
