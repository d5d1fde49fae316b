"""Submit, update and delete entities, and bring the version of a cluster to those that name it: changes of the declared
entities, with all checks before them.

The versions of clusters and datasources grow with the fields that their users see. Feeds and processes name the cluster
version that they know in their own entries.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from feed_assets.access.rights import require_acts
from feed_assets.command_lines import command_line
from feed_assets.context.errors import EntityExistsError, EntityReferencedError, VerbRefusedError
from feed_assets.context.safe_mode import require_update_mode
from feed_assets.definitions.declaring import require_declares
from feed_assets.definitions.edits import KeyedDocuments, Put, Remove, read_documents
from feed_assets.definitions.errors import EditedHereError
from feed_assets.definitions.folder import digest_as_written, find_entity
from feed_assets.definitions.store import Check, Loaded
from feed_assets.definitions.verbs.context import (
    AppliedChange,
    EntityContext,
    allow,
    find_kind,
    get_declared,
    make_change,
    require_own,
    suggest,
)
from feed_assets.definitions.verbs.plan_effects import describe_left
from feed_assets.definitions.verbs.schedules import (
    end_work,
    find_held,
    keep_submitted,
    left_clusters,
    require_schedulable,
    set_state,
    settle_releases,
)
from feed_assets.definitions.verbs.verb_results import EntityOutcome, EntityVerb, VerbOutcome, VerbResult
from feed_assets.entities.bundle import AnyEntity, Bundle, entity_digest
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.differences import FieldChange, diff_entities
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.entities.feed import Feed
from feed_assets.entities.maps import FrozenMap
from feed_assets.entities.process import Process
from feed_assets.issues import EntityKey, FieldPath
from feed_assets.loading.bundles import LoadedBundle, parse_file
from feed_assets.loading.entity_files import EntityFile, Values
from feed_assets.loading.falcon.writing import render_falcon
from feed_assets.loading.yaml_writer import render_yaml
from feed_assets.log.definitions.records import DocumentFormat, ScheduleState
from feed_assets.log.definitions.schedules import ScheduleView
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.records import ProcessInstance
from feed_assets.plan.release_fingerprint import Weight, weigh
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.queue.inputs import TriggerInputs
from feed_assets.validation.compatibility import find_dependents

_SEEN = {
    Kind.CLUSTER: frozenset(
        {
            *("colo", "storage", "storage_options", "interfaces", "locations", "spark", "catalog", "catalog_options"),
            "properties",
        }
    ),
    Kind.DATASOURCE: frozenset({"driver", "interfaces", "credential", "properties", "timezone", "staging_schema"}),
}
"""The fields that users of a cluster or datasource see. Driver jars are left out: another jar is the same driver."""

_VERSION = "version"
_NUMBER = re.compile(r"""version["']?\s*:\s*["']?\d+["']?""")  # version: 3
_XML_VERSION = re.compile(r"""\sversion\s*=\s*(["'])\d*\1""")  # version="3"


def with_next_version(put: Put, before: AnyEntity | None, entity: AnyEntity, values: Values) -> tuple[Put, AnyEntity]:
    """Return a document with its version after an update. A feed or process keeps the version that it states."""
    if not isinstance(before, Cluster | Datasource):
        return put, entity
    is_other = _seen_of(before) != _seen_of(entity)
    version = before.version + 1 if is_other else before.version
    if entity.version == version:
        return put, entity
    text = with_version(put.text, put.format, (), version, values)
    return replace(put, text=text), entity.model_copy(update={_VERSION: version})


def with_cluster_version(
    put: Put, entity: AnyEntity, cluster: str, version: int, values: Values
) -> tuple[Put, AnyEntity]:
    """Return a document of a feed or process with another version in its entry for a cluster."""
    text = with_version(put.text, put.format, ("clusters", cluster), version, values)
    return replace(put, text=text), _changed(entity, ("clusters", cluster), version)


def with_version(text: str, format: DocumentFormat, path: FieldPath, version: int, values: Values) -> str:  # noqa: A002
    r"""Return the text of a document with one version changed: the entity's, or with the path `("clusters", name)` that
    of its entry for a cluster. The rest of the text stays as it is, unless the document can only be rendered anew.

    >>> cluster = "kind: cluster\nname: primary  # in New York\nstorage: file:///data\n"
    >>> with_version(cluster, DocumentFormat.YAML, (), 2, Values(variables={}, environ={}))
    'kind: cluster\nversion: 2\nname: primary  # in New York\nstorage: file:///data\n'
    """
    entity = find_entity(text, format, values)
    assert entity is not None
    expected = entity_digest(_changed(entity, path, version))
    tries = (
        _xml_tries(text, path, version) if format is DocumentFormat.XML else _yaml_tries(text, path, version, values)
    )
    for edited in tries:
        found = find_entity(edited, format, values)
        if found is not None and entity_digest(found) == expected:
            return edited
    written = find_entity(text, format)
    render = render_falcon if format is DocumentFormat.XML else render_yaml
    if written is not None:
        return render(_changed(written, path, version), has_references=True)
    return render(_changed(entity, path, version))


def find_outdated(cluster: Cluster, entities: Mapping[EntityKey, AnyEntity]) -> list[EntityKey]:
    """Return the feeds and processes whose entry for a cluster states another version, feeds first."""
    return sorted(
        key
        for key, entity in entities.items()
        if isinstance(entity, Feed | Process)
        and cluster.name in entity.clusters
        and entity.clusters[cluster.name].version != cluster.version
    )


def _seen_of(entity: AnyEntity) -> object:
    return _without_jars(entity.model_dump(include=set(_SEEN[entity.kind])))


def _without_jars(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _without_jars(item) for key, item in value.items() if key != "jars"}
    return value


def _changed(entity: AnyEntity, path: FieldPath, version: int) -> AnyEntity:
    if not path:
        return entity.model_copy(update={_VERSION: version})
    assert isinstance(entity, Feed | Process)
    entries = dict(entity.clusters.items())
    name = str(path[1])
    entries[name] = entries[name].model_copy(update={_VERSION: version})
    return entity.model_copy(update={"clusters": FrozenMap(entries)})


def _yaml_tries(text: str, path: FieldPath, version: int, values: Values) -> list[str]:
    """Return candidate texts: the number replaced, or a key in front of the map's first one, on its own line or inside
    braces.
    """
    parsed = parse_file(EntityFile(name="definition.yaml", content=text.encode()), values)
    if not parsed.documents:
        return []
    positions = parsed.documents[0].sources.positions
    lines = text.splitlines(keepends=True)
    if (place := positions.get((*path, _VERSION))) is not None:
        line, column = place[0] - 1, place[1] - 1
        replaced = _NUMBER.sub(f"{_VERSION}: {version}", lines[line][column:], count=1)
        return ["".join([*lines[:line], lines[line][:column] + replaced, *lines[line + 1 :]])]
    children = [place for key, place in positions.items() if len(key) == len(path) + 1 and key[: len(path)] == path]
    names = [place for key, place in positions.items() if not path and key == ("name",)]
    if not children:
        return []
    line, column = (names or [min(children)])[0]
    before, after = "".join(lines[: line - 1]), lines[line - 1 :]
    own_line = f"{' ' * (column - 1)}{_VERSION}: {version}\n"
    inside = after[0][: column - 1] + f"{_VERSION}: {version}, " + after[0][column - 1 :]
    return [before + own_line + "".join(after), before + inside + "".join(after[1:])]


def _xml_tries(text: str, path: FieldPath, version: int) -> list[str]:
    """Return candidate texts with the attribute set on the root, or on the cluster's element."""
    name = re.escape(str(path[1])) if path else ""
    named = rf"""(?=[^>]*\sname\s*=\s*["']{name}["'])""" if path else ""
    element = re.compile(rf"<(?:cluster|datasource){named}[^>]*?(?=/?>)")
    found = element.search(text)
    if found is None:
        return []
    tag = _XML_VERSION.sub("", found[0]).rstrip() + f' version="{version}"'
    return [text[: found.start()] + tag + text[found.end() :]]


def validate(context: EntityContext, files: Sequence[EntityFile]) -> VerbResult:
    """Check documents as `submit` or `update` would. Nothing is stored.

    Raises:
        DefinitionsError: a document, or an entity that depends on it, has errors; carries the issues.
    """
    documents = read_documents(files, context.store.values)
    puts = [put for put, _ in documents.values()]
    made = make_change(replace(context, dry_run=True), puts, documents.keys(), origin=EntityVerb.VALIDATE)
    outcomes = tuple(EntityOutcome(kind=kind, name=name, outcome=VerbOutcome.VALID) for kind, name in documents)
    return VerbResult(verb=EntityVerb.VALIDATE, outcomes=outcomes, warnings=made.warnings, dry_run=True)


def submit(
    context: EntityContext, files: Sequence[EntityFile], *, and_schedule: bool = False, folder: str | None = None
) -> VerbResult:
    """Declare entities, all or none. An entity that is already declared with the same content stays unchanged.

    Feeds and processes wait for `schedule`, or are scheduled at once; if scheduling is refused, they stay submitted.
    New definitions are written to `folder`; by default to the folder of their kind.

    Raises:
        EntityExistsError: another definition of that name is declared.
        DefinitionsError: a definition has errors; carries the issues.
        NotSchedulableError: a submitted entity cannot be scheduled.
    """
    verb = EntityVerb.SUBMIT_AND_SCHEDULE if and_schedule else EntityVerb.SUBMIT
    loaded = context.load()
    documents = {
        key: (replace(put, folder=folder), each)
        for key, (put, each) in read_documents(files, context.store.values).items()
    }
    for key in documents if and_schedule else ():
        require_own(loaded, key)
    require_acts(key for key in documents if and_schedule and key in loaded.documents)
    new = [key for key, found in documents.items() if not is_declared(loaded, key, *found)]

    def refuse(before: LoadedBundle, _: LoadedBundle) -> None:
        for key in new:
            known = before.bundle.find(key)
            is_same = known is not None and entity_digest(known) == entity_digest(documents[key][1])
            if key in before.broken or (known is not None and not is_same):
                source = before.sources.locate(key)
                raise EntityExistsError(
                    kind=key[0],
                    name=key[1],
                    place=source.render() if source else "the definitions",
                    files=[file.name for file in files],
                )

    after, result = _declare(context, verb, loaded, documents, new, VerbOutcome.SUBMITTED, refuse)
    entities = [entity for _, entity in documents.values() if isinstance(entity, Feed | Process)]
    return schedule_submitted(context, after, entities, result) if and_schedule else result


def update(context: EntityContext, files: Sequence[EntityFile]) -> VerbResult:
    """Change declared entities, all or none. See `require_updatable` for what an update may change.

    Added clusters wait for `schedule`; work on removed clusters stops. The version of a cluster grows with the fields
    that its users see; clusters are updated only in safe mode. What is declared with the same content stays
    unchanged, in any mode.

    Raises:
        EntityNotFoundError: one is not declared.
        DefinitionsError: a definition, or one that depends on it, has errors; carries the issues.
        VerbRefusedError: an update may not make this change.
        SafeModeError: safe mode forbids the update, or the update needs it.
    """
    documents = {**read_documents(files, context.store.values)}
    loaded = context.load()
    changed = []
    for key, (put, entity) in documents.items():
        before = loaded.bundle.bundle.find(key)
        if before is None and key not in loaded.bundle.broken:
            raise EntityNotFoundError(kind=key[0], name=key[1], suggestions=suggest(loaded, Kind(key[0]), key[1]))
        documents[key] = put, entity = with_next_version(put, before, entity, context.store.values)
        if not is_declared(loaded, key, put, entity):
            require_declares(loaded.bundle, {key: entity})
            require_update_mode(context.database, is_cluster=entity.kind is Kind.CLUSTER)
            require_updatable(context, before, entity)
            changed.append(key)
    return _declare(context, EntityVerb.UPDATE, loaded, documents, changed, VerbOutcome.UPDATED)[1]


def update_cluster_dependents(context: EntityContext, name: str) -> VerbResult:
    """Write the version of a cluster into every feed and process that names another version, all or none. Processes get
    a new release if the cluster differs for them. Repeating it changes nothing. What jobs of extensions have made is
    left to an update of the jobs, which the outcome of the cluster says.

    Raises:
        EntityNotFoundError: there is no such cluster.
        DefinitionsError: a feed or process would have errors; carries the issues.
    """
    loaded = context.load()
    cluster = get_declared(loaded, Kind.CLUSTER, name)
    assert isinstance(cluster, Cluster)
    entities = {entity.key: entity for entity in loaded.bundle.bundle.entities}
    documents, jobs = {}, set()
    for key in find_outdated(cluster, entities):
        document = loaded.documents[key]
        if document.job is not None:
            jobs.add(document.job)
            continue
        put = Put(text=document.text, format=document.format, source=document.file)
        documents[key] = with_cluster_version(put, entities[key], name, cluster.version, context.store.values)
    verb = EntityVerb.UPDATE_CLUSTER_DEPENDENTS
    notes = tuple(f"update its job: {command_line('extension', 'job', 'update', each)}" for each in sorted(jobs))
    left = EntityOutcome(kind=cluster.kind, name=name, outcome=VerbOutcome.UNCHANGED, notes=notes)
    if not documents:
        return finish(context, verb, [left])
    result = _declare(context, verb, loaded, documents, documents.keys(), VerbOutcome.UPDATED)[1]
    return replace(result, outcomes=(*result.outcomes, *([left] if notes else [])))


def delete(context: EntityContext, kind: Kind | None, names: Sequence[str]) -> VerbResult:
    """Remove entities from the declared ones, all or none. Unfinished instances are killed; ended instances and the
    versions stay in the record. Names of a given kind that are not declared are skipped.

    Raises:
        EntityNotFoundError: no kind is given, and none has one of the names.
        AmbiguousNameError: no kind is given, and several have one of the names.
        EntityReferencedError: other entities refer to one of them.
    """
    loaded = context.load()
    keys = [(find_kind(loaded, kind, name), name) for name in names]
    declared = [key for key in keys if key in loaded.documents or loaded.bundle.bundle.find(key) is not None]

    def refuse(before: LoadedBundle, _: LoadedBundle) -> None:
        for key, referrers in find_dependents(before.bundle, declared).items():
            raise EntityReferencedError(kind=key[0], name=key[1], referrers=[label_of(each) for each in referrers])

    made = make_change(
        context, [Remove(key=key) for key in declared], declared, origin=EntityVerb.DELETE, refuse=refuse
    )
    stopped: list[ProcessInstance] = []
    outcomes = []
    for of_kind, name in keys:
        with context.database.read() as connection:
            marks = TriggerInputs(connection).of_process(name) if of_kind is Kind.PROCESS else []
            left = list(describe_left(connection, marks))
        killed = end_work(context, of_kind, name, left_clusters(made.before.find((of_kind, name)), None), is_gone=True)
        stopped += killed
        is_declared = (of_kind, name) in declared
        notes = [] if is_declared else ["it is not declared: nothing to do"]
        notes += find_held(context, name) if of_kind is Kind.FEED else []
        notes += [f"killed unfinished instances: {len(killed)}"] if killed else []
        notes += [f"{message}. {remedy}" for message, remedy in left]
        outcome = VerbOutcome.DELETED if is_declared else VerbOutcome.MISSING
        outcomes.append(EntityOutcome(kind=of_kind, name=name, outcome=outcome, notes=tuple(notes)))
    return finish(context, EntityVerb.DELETE, outcomes, made, stopped)


def is_declared(loaded: Loaded, key: EntityKey, put: Put, entity: AnyEntity) -> bool:
    """Return whether a document equals the declared one, with references to outside values unresolved."""
    known = loaded.documents.get(key)
    return known is not None and known.digest == digest_as_written(entity, put.text, put.format)


def _declare(
    context: EntityContext,
    verb: EntityVerb,
    loaded: Loaded,
    documents: KeyedDocuments,
    changed: Collection[EntityKey],
    outcome: VerbOutcome,
    refuse: Check = allow,
) -> tuple[Bundle, VerbResult]:
    """Declare those documents that have `changed`, and end the work on clusters that they leave; the others stay as
    they are. New clusters wait for `schedule`. Returns the declared entities after the change, too.
    """

    def accept() -> None:
        keep_submitted(context, [documents[key][1] for key in changed], loaded.bundle.bundle)

    puts = [documents[key][0] for key in changed]
    made = make_change(context, puts, changed, origin=verb, refuse=refuse, accept=accept)
    outcomes: list[EntityOutcome] = []
    stopped: list[ProcessInstance] = []
    for key, (_, entity) in documents.items():
        kind, name = Kind(key[0]), key[1]
        if key not in changed or not made.is_done:  # or another command has made the same change meanwhile
            notes = _unrecorded(context, loaded, key)
            outcomes.append(EntityOutcome(kind=kind, name=name, outcome=VerbOutcome.UNCHANGED, notes=notes))
            continue
        before = made.before.find(key)
        stopped += end_work(context, kind, name, left_clusters(before, entity))
        changes = diff_entities(before, entity) if outcome is VerbOutcome.UPDATED else ()
        notes = () if before is None else tuple(_iter_notes(made.before, before, entity))
        outcomes.append(EntityOutcome(kind=kind, name=name, outcome=outcome, changes=changes, notes=notes))
    return made.after.bundle, finish(context, verb, outcomes, made, stopped)


def _unrecorded(context: EntityContext, loaded: Loaded, key: EntityKey) -> tuple[str, ...]:
    """Return a sentence on a document that the files have already, and the record has not.

    Raises:
        EditedHereError: what is declared comes from a front, which records only what it writes itself.
    """
    recorded, in_files = loaded.newest.get(key), loaded.documents.get(key)
    if in_files is None or (recorded is not None and recorded.digest == in_files.digest):
        return ()
    if context.store.has_front:
        version = None if recorded is None else recorded.version
        file = context.store.folder.shown(in_files.file)
        raise EditedHereError(file=file, kind=key[0], name=key[1], version=version)
    return ("the files say so already, and the next tick or `apply` records it",)


def _iter_notes(bundle: Bundle, before: AnyEntity, entity: AnyEntity) -> Iterator[str]:
    """Yield what an update of an entity leads to; `bundle` has the entities before it."""
    added, left = left_clusters(entity, before), left_clusters(before, entity)
    if added:
        yield f"on {', '.join(added)} it waits to be scheduled"
    if left:
        yield f"its work on {', '.join(left)} ends"
    if entity.kind is Kind.CLUSTER and entity.version != before.version:
        yield f"its version is {entity.version}; update-cluster-dependents applies it to feeds and processes"
    if entity.kind is Kind.DATASOURCE and entity.version != before.version:
        yield f"its version is {entity.version}"
        for user in find_dependents(bundle, [entity.key]).get(entity.key, ()):
            yield f"{label_of(user)} imports or exports by it from now on"


def finish(
    context: EntityContext,
    verb: EntityVerb,
    outcomes: Sequence[EntityOutcome],
    made: AppliedChange | None = None,
    stopped: Sequence[ProcessInstance] = (),
    *,
    digest: str | None = None,
) -> VerbResult:
    """Begin the releases of a change that was made, number the versions, and write an audit entry for each entity with
    the id of the change, or the `digest` of its plan.
    """
    is_made = made is not None and made.is_done and not context.dry_run
    releases = settle_releases(context, made.after) if made is not None and is_made else ()
    with context.database.read() as connection:
        newest = {each.label: Definitions(connection).find_newest(each.kind, each.name) for each in outcomes}
    numbered = []
    for each in outcomes:
        is_changed = is_made and each.outcome not in (VerbOutcome.UNCHANGED, VerbOutcome.MISSING)
        known = newest[each.label] if is_changed or each.outcome is VerbOutcome.UNCHANGED else None
        numbered.append(replace(each, version=known.version if known else None))
        if is_changed and made is not None:
            of = {"change": made.change.change_id} if made.change is not None and digest is None else {"digest": digest}
            context.audit(verb, each.label, outcome=each.outcome, **numbered[-1].audited, **of)
    return VerbResult(
        verb=verb,
        outcomes=tuple(numbered),
        warnings=made.warnings if made is not None else (),
        releases=releases,
        stopped=tuple(stopped),
        reload_needed=is_made,
        dry_run=context.dry_run,
    )


def schedule_submitted(
    context: EntityContext, after: Bundle, entities: Sequence[Feed | Process], result: VerbResult
) -> VerbResult:
    """Schedule entities of a result, including those that were submitted before and still wait."""
    for entity in entities:
        require_schedulable(after, entity, after.clusters_in(entity, context.settings.works_in))
    outcomes, view = {(each.kind, each.name): each for each in result.outcomes}, context.schedules()
    for entity in entities:
        clusters, before = after.clusters_in(entity, context.settings.works_in), outcomes[entity.key]
        done = set_state(context, view, entity, clusters, EntityVerb(result.verb))
        outcome = done.outcome if before.outcome is VerbOutcome.UNCHANGED else before.outcome
        outcomes[entity.key] = replace(before, outcome=outcome, clusters=done.clusters)
    return replace(result, outcomes=tuple(outcomes.values()))


def require_updatable(context: EntityContext, before: AnyEntity | None, after: AnyEntity) -> None:
    """Require that an update is allowed. There is no restriction if the entity before could not be read.

    Raises:
        VerbRefusedError: the type of a datasource changes, or the validity on a scheduled cluster would be over.
    """
    if isinstance(before, Datasource) and isinstance(after, Datasource) and before.type is not after.type:
        raise VerbRefusedError(
            subject=after.label,
            reason=f"its type cannot change from {before.type.value!r} to {after.type.value!r}",
            next_step="Submit another datasource, and change the feeds to it.",
        )
    if isinstance(before, Feed | Process) and isinstance(after, Feed | Process):
        for cluster in find_past_ends(before, after, context.schedules(), context.now):
            raise VerbRefusedError(
                subject=after.label,
                reason=(
                    f"its validity on {cluster} ends at {render_datetime(after.clusters[cluster].validity.end)}, "
                    "in the past, and it is scheduled there"
                ),
                next_step="Choose an end in the future; or delete it and submit it again.",
            )


def find_past_ends(
    before: Feed | Process, after: Feed | Process, schedules: ScheduleView, as_of: datetime
) -> list[str]:
    """Return the clusters on which a scheduled entity would change in more than soft fields, with its end in the
    past.
    """
    changes = diff_entities(before, after)
    return [
        name
        for name, entry in after.clusters.items()
        if name in before.clusters
        and entry.validity.end < as_of
        and schedules.state(after.kind, after.name, name) is not ScheduleState.SUBMITTED
        and any(_matters(after.kind, change, name) for change in changes)
    ]


def _matters(kind: Kind, change: FieldChange, cluster: str) -> bool:
    if change.path[0] == "clusters" and change.path[1:2] != (cluster,):
        return False
    return weigh(kind, change.path, change.before, change.after) is not Weight.SOFT
