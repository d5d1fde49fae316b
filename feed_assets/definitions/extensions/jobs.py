"""Jobs of extensions: what a recipe has made of some parameters. A job is one file of definitions, and each change of
it is one planned change of all its entities.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import ParamSpec, TypeVar

from pydantic import TypeAdapter, ValidationError

from feed_assets.access.rights import find_hidden, require_acts, require_reads
from feed_assets.command_lines import command_line
from feed_assets.context.errors import PlanOutdatedError, VerbRefusedError
from feed_assets.definitions.contents import StoredJob
from feed_assets.definitions.edits import Put, PutFile
from feed_assets.definitions.extensions.recipes import Given, MadeEntity, check_given, make_entities
from feed_assets.definitions.extensions.records import Extension, JobEntity, ShownJob
from feed_assets.definitions.extensions.registry import find_extension, find_jobs
from feed_assets.definitions.extensions.store import Extensions
from feed_assets.definitions.recording import is_gone
from feed_assets.definitions.store import Loaded
from feed_assets.definitions.verbs.changes import schedule_submitted, with_next_version
from feed_assets.definitions.verbs.context import EntityContext, get_declared
from feed_assets.definitions.verbs.planning import (
    OUTDATED_PLANS,
    PlannedChanges,
    apply_planned,
    plan_edits,
    require_digest,
)
from feed_assets.definitions.verbs.schedules import change_work_of, keep_submitted
from feed_assets.definitions.verbs.states import EntityProgress, entity_status
from feed_assets.definitions.verbs.verb_results import EntityOutcome, EntityVerb, VerbOutcome, VerbResult
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.feed import Feed
from feed_assets.entities.fields import Name
from feed_assets.entities.process import Process
from feed_assets.errors import Fault
from feed_assets.issues import FieldSources
from feed_assets.loading.job_files import FOLDER, UNKNOWN, Job, render_job
from feed_assets.loading.yaml_writer import render_plain
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import ScheduleView

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")
_NAME: TypeAdapter[str] = TypeAdapter(Name)
_JOB = "job"
_TAGS = ("_falcon_extension_name", "_falcon_extension_job")
"""Falcon's tags of what an extension has made: its name, and that of the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """What a job is to become: its file, and its entities then; `made_by` is for the audit."""

    job: str
    file: PutFile
    entities: tuple[AnyEntity, ...] = ()
    made_by: Mapping[str, str] = field(default_factory=dict)


def _planned_anew(make: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Let a change without a digest be planned anew if another one comes before: nobody has seen its plan."""

    @wraps(make)
    def repeat(*args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        for _ in range(OUTDATED_PLANS):
            try:
                return make(*args, **kwargs)
            except PlanOutdatedError:
                if kwargs.get("digest") is not None:
                    raise
        return make(*args, **kwargs)

    return repeat


def validate_job(context: EntityContext, extension: str, name: str, given: Given) -> PlannedChanges:
    """Plan a job as `submit_job` or `update_jobs` would, and change nothing. Raises as they do."""
    loaded = context.load()
    return _plan(context, loaded, [_compose(context, loaded, find_extension(context, extension), name, given)])[1]


@_planned_anew
def submit_job(
    context: EntityContext,
    extension: str,
    name: str,
    given: Given,
    *,
    is_scheduled: bool = False,
    digest: str | None = None,
) -> VerbResult | PlannedChanges:
    """Make the entities of a job, all or none. They wait for `schedule`; or are scheduled, and stay submitted if that
    is refused. Repeating it changes nothing. With `digest` only that plan is made.

    Raises:
        VerbRefusedError: there is another job of this name, or the extension is disabled.
        DefinitionsError: what is given, or an entity, has mistakes; carries the issues.
        PlanOutdatedError: the digest is that of another plan.
    """
    loaded = context.load()
    change = _compose(context, loaded, _find_enabled(context, extension), name, given)
    known = loaded.jobs.get(name)
    if known is not None and known.job.extension != UNKNOWN and known.text != change.file.text:
        update = command_line("extension", "job", "update", name)
        reason = "it is there already, with other parameters or of another version"
        raise VerbRefusedError(subject=label_of((_JOB, name)), reason=reason, next_step=f"Update it: {update}")
    return _apply(context, EntityVerb.SUBMIT, loaded, [change], digest, is_scheduled=is_scheduled)


@_planned_anew
def update_jobs(
    context: EntityContext, names: Sequence[str], given: Given | None, *, digest: str | None = None
) -> VerbResult | PlannedChanges:
    """Make the entities of jobs anew, all or none, by the extensions as they are now: new ones come, and those that are
    not made any more go. New ones are scheduled if others of their job are. Single values of `given` replace those
    of the job; what a file gives replaces all of them. Raises as `submit_job`.
    """
    loaded, changes = context.load(), []
    for name in names:
        stored = _get(loaded, name)
        told = Given(values=stored.job.parameters, sources=FieldSources(file=stored.file, positions={}))
        if given is not None:
            told = given if given.is_whole else replace(told, values={**told.values, **given.values})
        changes.append(_compose(context, loaded, _find_enabled(context, stored.job.extension), name, told))
    return _apply(context, EntityVerb.UPDATE, loaded, changes, digest)


def update_all(context: EntityContext, extension: str, *, digest: str | None = None) -> VerbResult | PlannedChanges:
    """Update all jobs of an extension, which keep their parameters, as one change. Raises as `update_jobs`."""
    names = find_jobs(context.load(), find_extension(context, extension).name)
    return update_jobs(context, names, None, digest=digest)


@_planned_anew
def delete_job(context: EntityContext, name: str, *, digest: str | None = None) -> VerbResult | PlannedChanges:
    """Remove the entities of a job, all or none, and its file; of a job that is not there nothing is done.

    Raises:
        DefinitionsError: others refer to one of them; carries the issues.
        PlanOutdatedError: the digest is that of another plan.
    """
    loaded = context.load()
    if name not in loaded.jobs:
        notes = ("it is not there: nothing to do",)
        missing = EntityOutcome(kind=_JOB, name=name, outcome=VerbOutcome.MISSING, notes=notes)
        return VerbResult(verb=EntityVerb.DELETE, outcomes=(missing,), dry_run=context.dry_run)
    change = _Change(job=name, file=PutFile(name=loaded.jobs[name].file, text=None))
    return _apply(context, EntityVerb.DELETE, loaded, [change], digest)


def change_job(context: EntityContext, name: str, verb: EntityVerb) -> VerbResult:
    """Schedule the feeds and processes of a job, or suspend or resume those that are scheduled. With `resume`, those
    are scheduled that have come meanwhile.

    Raises:
        VerbRefusedError: there is no such job, none of them is scheduled, or its extension is not there or disabled.
        DefinitionsError: one of them has errors; carries the issues.
        NotSchedulableError: no engine here can do the work.
    """
    loaded, view = context.load(), context.schedules()
    stored = _get(loaded, name)
    entities = _entities_of(loaded, stored)
    require_acts(each.key for each in entities)
    if verb is EntityVerb.SCHEDULE:
        _find_enabled(context, stored.job.extension)
        return change_work_of(context, verb, loaded, entities)
    active = [each for each in entities if _states_of(view, each) - {ScheduleState.SUBMITTED}]
    if not active:
        first = f"Schedule it first: {command_line('extension', 'job', 'schedule', name)}"
        raise VerbRefusedError(subject=label_of((_JOB, name)), reason="it is not scheduled", next_step=first)
    done = change_work_of(context, verb, loaded, active)
    if verb is EntityVerb.SUSPEND:
        return done
    waiting = [each for each in entities if ScheduleState.SUBMITTED in _states_of(view, each)]
    more = change_work_of(context, EntityVerb.SCHEDULE, loaded, waiting)
    return replace(done, outcomes=(*done.outcomes, *more.outcomes))


def list_jobs(context: EntityContext, extension: str | None = None) -> tuple[ShownJob, ...]:
    """Return the jobs of an extension, by default of all, by name."""
    loaded, progress = context.load(), context.progress()
    found = [each for _, each in sorted(loaded.jobs.items()) if extension in (None, each.job.extension)]
    found = [each for each in found if find_hidden().keys().isdisjoint(each.keys)]
    return tuple(_show(context, loaded, progress, each) for each in found)


def show_job(context: EntityContext, name: str) -> ShownJob:
    """Return a job. Raises VerbRefusedError if there is none."""
    loaded = context.load()
    require_reads(_get(loaded, name).keys)
    return _show(context, loaded, context.progress(), _get(loaded, name))


def _show(context: EntityContext, loaded: Loaded, progress: EntityProgress, stored: StoredJob) -> ShownJob:
    bundle, entities = loaded.bundle.bundle, []
    for kind, name in stored.keys:
        entity = bundle.find((kind, name))
        status = "ERROR" if entity is None else entity_status(bundle, progress, entity, context.now).state
        entities.append(JobEntity(kind=kind, name=name, status=status))
    with context.database.read() as connection:
        is_current = Extensions(connection).look(stored.job.extension).made_by == stored.job.made_by
    file = context.store.folder.shown(stored.file)
    return ShownJob(job=stored.job, current=is_current, file=file, entities=tuple(entities))


def _compose(context: EntityContext, loaded: Loaded, extension: Extension, name: str, given: Given) -> _Change:
    """Return what an extension makes of what is given, with the file of the job."""
    _require_place(context, name)
    parameters = check_given(extension.recipe, given, name)
    made = make_entities(extension, parameters, context.store.values, name)
    job = Job(name=name, extension=extension.name, made_by=extension.made_by, parameters=parameters)
    text = render_job(job, [_render(context, loaded, each, job) for each in made])
    known = loaded.jobs.get(name)
    file = f"{FOLDER}/{name}.yaml" if known is None else known.file
    return _Change(
        job=name,
        file=PutFile(name=file, text=text),
        entities=tuple(each.entity for each in made),
        made_by={"extension": extension.name, "made_by": extension.made_by},
    )


def _render(context: EntityContext, loaded: Loaded, made: MadeEntity, job: Job) -> str:
    """Return the document of an entity: with the tags of its job, and the versions of clusters as they are now."""
    content = {"kind": made.entity.kind.value, "name": made.entity.name, **made.content}
    bundle, said = loaded.bundle.bundle, made.content.get("tags")
    own = dict(zip(_TAGS, (job.extension, job.name), strict=True))
    content["tags"] = (
        ",".join([said, *map("=".join, own.items())]) if isinstance(said, str) else {**(said or {}), **own}
    )
    if isinstance(clusters := content.get("clusters"), Mapping):
        known = {name: bundle.find((Kind.CLUSTER, name)) for name in clusters}
        versions = {name: {"version": each.version} for name, each in known.items() if each and each.version}
        content["clusters"] = {name: {**versions.get(name, {}), **entry} for name, entry in clusters.items()}
    put = Put(text=render_plain(content))
    return with_next_version(put, bundle.find(made.entity.key), made.entity, context.store.values)[0].text


def _plan(context: EntityContext, loaded: Loaded, changes: Sequence[_Change]) -> tuple[EntityContext, PlannedChanges]:
    """Return the plan of the changes of jobs, and the context that may make it."""
    context = replace(context, jobs=frozenset(each.job for each in changes))
    texts = {name: each.text for name, each in loaded.jobs.items()}
    return context, plan_edits(context, [each.file for each in changes if each.file.text != texts.get(each.job)])


def _apply(
    context: EntityContext,
    verb: EntityVerb,
    loaded: Loaded,
    changes: Sequence[_Change],
    digest: str | None,
    *,
    is_scheduled: bool = False,
) -> VerbResult | PlannedChanges:
    context, planned = _plan(context, loaded, changes)
    if digest is not None and planned.edits:
        require_digest(planned.digest, digest)
    if context.dry_run:
        return planned
    bundle, entities = loaded.bundle.bundle, [each for change in changes for each in change.entities]
    begun = [each for change in changes for each in _find_begun(context, loaded, change, is_scheduled=is_scheduled)]
    require_acts(each.key for each in begun if each.key in loaded.documents)
    kept = [
        each
        for change in changes
        for each in change.entities
        if not _is_known(loaded, change, each) or bundle.find(each.key) is not None
    ]
    done = apply_planned(context, planned, may_delete_all=True, accept=lambda: keep_submitted(context, kept, bundle))
    if planned.edits:
        for change in changes:
            label = label_of((_JOB, change.job))
            context.audit(f"extension-job-{verb}", label, digest=planned.digest, **change.made_by)
    changed = {(each.kind, each.name) for each in done.outcomes}
    others = (each for each in entities if each.key not in changed)
    unchanged = (EntityOutcome(kind=each.kind, name=each.name, outcome=VerbOutcome.UNCHANGED) for each in others)
    done = replace(done, verb=EntityVerb.SCHEDULE, outcomes=(*done.outcomes, *unchanged))
    after = context.load().bundle.bundle if begun else bundle
    return replace(schedule_submitted(context, after, begun, done), verb=verb)


def _find_begun(context: EntityContext, loaded: Loaded, change: _Change, *, is_scheduled: bool) -> list[Feed | Process]:
    """Return the entities of a job that are to be scheduled: all, or those that are not yet if others of it are."""
    found = [each for each in change.entities if isinstance(each, Feed | Process)]
    known = loaded.jobs.get(change.job)
    if is_scheduled or known is None:
        return found if is_scheduled else []
    view = context.schedules()
    before = [each for each in map(loaded.bundle.bundle.find, known.keys) if isinstance(each, Feed | Process)]
    declared = [*before, *(each for each in found if _is_known(loaded, change, each))]
    if all(ScheduleState.SCHEDULED not in _states_of(view, each) for each in declared):
        return []
    return [
        each
        for each in found
        if not _is_known(loaded, change, each) or ScheduleState.SUBMITTED in _states_of(view, each)
    ]


def _is_known(loaded: Loaded, change: _Change, entity: AnyEntity) -> bool:
    """Return whether an entity has a state, be it that the file of its job cannot be read."""
    return entity.key in loaded.documents or (change.job in loaded.jobs and not is_gone(loaded.newest.get(entity.key)))


def _states_of(view: ScheduleView, entity: Feed | Process) -> set[ScheduleState]:
    return {view.state(entity.kind, entity.name, on) for on in entity.clusters}


def _entities_of(loaded: Loaded, job: StoredJob) -> list[Feed | Process]:
    """Return the feeds and processes of a job. Raises DefinitionsError if one of its entities has errors."""
    found = (get_declared(loaded, Kind(kind), name) for kind, name in job.keys)
    return [each for each in found if isinstance(each, Feed | Process)]


def _get(loaded: Loaded, name: str) -> StoredJob:
    if name not in loaded.jobs:
        reason, known = "there is none of this name", f"Jobs are: {', '.join(sorted(loaded.jobs)) or 'none'}."
        raise VerbRefusedError(subject=label_of((_JOB, name)), reason=reason, next_step=known, fault=Fault.MISSING)
    return loaded.jobs[name]


def _find_enabled(context: EntityContext, name: str) -> Extension:
    extension = find_extension(context, name)
    if not extension.is_enabled:
        reason = "it is disabled: its jobs are neither submitted nor scheduled nor updated"
        enable = f"Enable it: {command_line('extension', 'enable', name)}"
        raise VerbRefusedError(subject=label_of(("extension", name)), reason=reason, next_step=enable)
    return extension


def _require_place(context: EntityContext, name: str) -> None:
    """Require that a job can have its name, and a file of its own."""
    reason, remedy = "", ""
    if context.store.folder.only_file is not None:
        reason, remedy = "all definitions are in one file", "Set 'entities' to a folder."
    try:
        _NAME.validate_python(name)
    except ValidationError:
        reason, remedy = "no job can have this name", "Begin with a letter; use letters, digits and -."
    if reason:
        raise VerbRefusedError(subject=label_of((_JOB, name)), reason=reason, next_step=remedy, fault=Fault.ASKED)
