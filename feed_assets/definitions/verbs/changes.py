"""Submit, update and delete entities, and bring the version of a cluster to those that name it: changes of the declared
entities, with all checks before them.

The versions of clusters and datasources grow with the fields that their users see. Feeds and processes name the cluster
version that they know in their own entries.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from feed_assets.context.errors import EntityExistsError, EntityReferencedError, VerbRefusedError
from feed_assets.context.safe_mode import require_update_mode
from feed_assets.definitions.edits import Edit, Put, Remove, read_puts
from feed_assets.definitions.folder import digest_as_written, find_entity
from feed_assets.definitions.store import Loaded
from feed_assets.definitions.verbs.context import AppliedChange, EntityContext, find_kind, get_declared, make_change
from feed_assets.definitions.verbs.plan_effects import describe_left
from feed_assets.definitions.verbs.schedules import (
    DELETED,
    TAKEN_OFF,
    end_work,
    find_held,
    find_remains,
    keep_submitted,
    left_clusters,
    require_schedulable,
    set_state,
    settle_releases,
)
from feed_assets.definitions.verbs.verb_results import EntityOutcome, EntityVerb, VerbOutcome, VerbResult
from feed_assets.entities.bundle import AnyEntity, entity_digest
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.differences import FieldChange, diff_entities
from feed_assets.entities.errors import DefinitionsError, EntityNotFoundError
from feed_assets.entities.feed import Feed
from feed_assets.entities.maps import FrozenMap
from feed_assets.entities.process import Process
from feed_assets.issues import EntityKey, FieldPath, Issue
from feed_assets.loading.bundles import LoadedBundle, parse_file
from feed_assets.loading.entity_files import EntityFile, Values
from feed_assets.loading.falcon.writing import render_falcon
from feed_assets.loading.yaml_writer import render_yaml
from feed_assets.log.definitions.records import DocumentFormat, ScheduleState
from feed_assets.log.definitions.schedules import ScheduleView
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.records import ProcessInstance
from feed_assets.plan.release_fingerprint import Weight, weigh
from feed_assets.releases.decide_releases import ReleaseDecision
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
    Kind.DATASOURCE: frozenset({"driver", "interfaces", "credential", "properties"}),
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
    return Put(text=text, format=put.format, source=put.source), entity.model_copy(update={_VERSION: version})


def with_cluster_version(
    put: Put, entity: AnyEntity, cluster: str, version: int, values: Values
) -> tuple[Put, AnyEntity]:
    """Return a document of a feed or process with another version in its entry for a cluster."""
    text = with_version(put.text, put.format, ("clusters", cluster), version, values)
    return Put(text=text, format=put.format, source=put.source), _changed(entity, ("clusters", cluster), version)


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


KeyedDocuments = Mapping[EntityKey, tuple[Put, AnyEntity]]
"""Documents by the entity that they declare."""


def validate(context: EntityContext, files: Sequence[EntityFile]) -> VerbResult:
    """Check documents as `submit` or `update` would. Nothing is stored.

    Raises:
        DefinitionsError: a document, or an entity that depends on it, has errors; carries the issues.
    """
    dry = replace(context, dry_run=True)
    documents = read_documents(context, files)
    edits: list[Edit] = [put for put, _ in documents.values()]
    made = make_change(dry, edits, documents.keys(), origin=EntityVerb.VALIDATE, refuse=_allow)
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
    documents = read_documents(context, files)
    new = {key: found for key, found in documents.items() if not _is_declared(loaded, key, *found)}

    def refuse(before: LoadedBundle, _: LoadedBundle) -> None:
        for key in new:
            known = before.bundle.find(key)
            is_same = known is not None and entity_digest(known) == entity_digest(new[key][1])
            if key in before.broken or (known is not None and not is_same):
                source = before.sources.locate(key)
                raise EntityExistsError(
                    kind=key[0],
                    name=key[1],
                    place=source.render() if source else "the definitions",
                    files=[file.name for file in files],
                )

    def accept() -> None:
        keep_submitted(context, [entity for _, entity in new.values()], loaded.bundle.bundle)

    made = AppliedChange(before=loaded.bundle.bundle, after=loaded.bundle)
    if new:
        edits: list[Edit] = [replace(put, folder=folder) for put, _ in new.values()]
        made = make_change(context, edits, new.keys(), origin=verb, refuse=refuse, accept=accept)
        if not made.is_done(context):
            new = {}  # another command has submitted the same meanwhile
    outcomes = tuple(
        _outcome(made, loaded, key, entity, VerbOutcome.SUBMITTED if key in new else VerbOutcome.UNCHANGED)
        for key, (_, entity) in documents.items()
    )
    result = _finished(context, made, verb, outcomes)
    return _scheduled(context, made, documents, new, result) if and_schedule else result


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
    documents = read_documents(context, files)
    loaded = context.load()
    changed: dict[EntityKey, tuple[Put, AnyEntity]] = {}
    for key, (put, entity) in documents.items():
        before = loaded.bundle.bundle.find(key)
        if before is None and key not in loaded.bundle.broken:
            suggestions = loaded.bundle.bundle.suggest(Kind(key[0]), key[1])
            raise EntityNotFoundError(kind=key[0], name=key[1], suggestions=suggestions)
        put, entity = with_next_version(put, before, entity, context.store.values)
        if not _is_declared(loaded, key, put, entity):
            require_update_mode(context.database, is_cluster=entity.kind is Kind.CLUSTER)
            require_updatable(context, before, entity)
            changed[key] = (put, entity)
    made = AppliedChange(before=loaded.bundle.bundle, after=loaded.bundle)
    if changed:
        edits: list[Edit] = [put for put, _ in changed.values()]
        made = make_change(
            context,
            edits,
            changed.keys(),
            origin=EntityVerb.UPDATE,
            refuse=_allow,
            accept=lambda: keep_submitted(context, [entity for _, entity in changed.values()], loaded.bundle.bundle),
        )
        if not made.is_done(context):
            changed = {}
    stopped = [
        row
        for key, (_, entity) in changed.items()
        for row in end_work(context, Kind(key[0]), key[1], left_clusters(made.before.find(key), entity), TAKEN_OFF)
    ]
    outcomes = tuple(
        _outcome(made, loaded, key, entity, VerbOutcome.UPDATED if key in changed else VerbOutcome.UNCHANGED)
        for key, (_, entity) in {**documents, **changed}.items()
    )
    return _finished(context, made, EntityVerb.UPDATE, outcomes, stopped)


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

    made = AppliedChange(before=loaded.bundle.bundle)
    if declared:
        edits: list[Edit] = [Remove(key=key) for key in declared]
        made = make_change(context, edits, declared, origin=EntityVerb.DELETE, refuse=refuse)
    stopped: list[ProcessInstance] = []
    outcomes = []
    for key in keys:
        of_kind, name = key
        entity = made.before.find(key)
        clusters = set(entity.clusters) if isinstance(entity, Feed | Process) else set()
        concerned = sorted(clusters.union(find_remains(context, of_kind, name)))
        with context.database.read() as connection:
            marks = TriggerInputs(connection).of_process(name) if of_kind is Kind.PROCESS else []
            left = list(describe_left(connection, [mark for mark in marks if mark.cluster in concerned]))
        killed = end_work(context, of_kind, name, concerned, DELETED)
        stopped += killed
        notes = [] if key in declared else ["it is not declared: nothing to do"]
        notes += find_held(context, name) if of_kind is Kind.FEED else []
        notes += [f"killed unfinished instances: {len(killed)}"] if killed else []
        notes += [f"{message}. {remedy}" for message, remedy in left]
        outcome = VerbOutcome.DELETED if key in declared else VerbOutcome.MISSING
        outcomes.append(EntityOutcome(kind=of_kind, name=name, outcome=outcome, notes=tuple(notes)))
    return _finished(context, made, EntityVerb.DELETE, tuple(outcomes), stopped)


def read_documents(context: EntityContext, files: Sequence[EntityFile]) -> KeyedDocuments:
    """Read the documents of users' files.

    Raises:
        DefinitionsError: a document is not a valid entity, or two declare the same one; carries the issues.
    """
    found: dict[EntityKey, tuple[Put, AnyEntity]] = {}
    for file in files:
        parsed = parse_file(file, context.store.values)
        issues: list[Issue] = [*parsed.issues, *(issue for each in parsed.documents for issue in each.issues)]
        if issues or not parsed.documents:
            reason = None if issues else "it declares nothing"
            raise DefinitionsError(location=file.name, issues=issues, reason=reason)
        puts = read_puts(file, context.store.values)
        for document in parsed.documents:
            assert document.key is not None
            assert document.entity is not None
            if document.key in found:
                raise DefinitionsError(
                    location=file.name,
                    reason=f"{label_of(document.key)} is declared twice",
                    next_step="Give one document for each entity.",
                )
            found[document.key] = (puts[document.key], document.entity)
    return found


def _allow(_before: LoadedBundle, _after: LoadedBundle) -> None:
    """Accept every change: this verb has no check of its own."""


def _is_declared(loaded: Loaded, key: EntityKey, put: Put, entity: AnyEntity) -> bool:
    """Return whether a document equals the declared one, with references to outside values unresolved."""
    known = loaded.documents.get(key)
    return known is not None and known.digest == digest_as_written(entity, put.text, put.format)


def _outcome(
    made: AppliedChange, loaded: Loaded, key: EntityKey, entity: AnyEntity, outcome: VerbOutcome
) -> EntityOutcome:
    before = made.before.find(key)
    changes = diff_entities(before, entity) if outcome is VerbOutcome.UPDATED else ()
    notes, recorded = _notes(made, entity, outcome), loaded.newest.get(key)
    in_files = loaded.documents.get(key) if outcome is VerbOutcome.UNCHANGED else None
    if in_files is not None and (recorded is None or recorded.digest != in_files.digest):
        notes = ("the files say so already, and the next tick or `apply` records it",)
    return EntityOutcome(kind=key[0], name=key[1], outcome=outcome, changes=changes, notes=notes)


def _notes(made: AppliedChange, entity: AnyEntity, outcome: VerbOutcome) -> tuple[str, ...]:
    before = made.before.find(entity.key)
    if outcome is not VerbOutcome.UPDATED or before is None:
        return ()
    notes = []
    added, left = left_clusters(entity, before), left_clusters(before, entity)
    if added:
        notes.append(f"on {', '.join(added)} it waits to be scheduled")
    if left:
        notes.append(f"its work on {', '.join(left)} ends")
    if entity.kind is Kind.CLUSTER and entity.version != before.version:
        notes.append(f"its version is {entity.version}; update-cluster-dependents applies it to feeds and processes")
    if entity.kind is Kind.DATASOURCE and entity.version != before.version:
        users = find_dependents(made.before, [entity.key]).get(entity.key, ())
        notes.append(f"its version is {entity.version}")
        notes += [f"{label_of(user)} imports or exports by it from now on" for user in users]
    return tuple(notes)


def _finished(
    context: EntityContext,
    made: AppliedChange,
    verb: EntityVerb,
    outcomes: tuple[EntityOutcome, ...],
    stopped: Sequence[ProcessInstance] = (),
) -> VerbResult:
    """Number the versions, begin releases, and write the audit entry."""
    releases = settle_releases(context, made.after) if made.change is not None else ()
    with context.database.read() as connection:
        definitions = Definitions(connection)
        newest = {(each.kind, each.name): definitions.find_newest(each.kind, each.name) for each in outcomes}
    numbered = []
    for each in outcomes:
        is_done = made.change is not None and each.outcome not in (VerbOutcome.UNCHANGED, VerbOutcome.MISSING)
        is_known = is_done or each.outcome is VerbOutcome.UNCHANGED
        known = newest[each.kind, each.name] if is_known else None
        number = known.version if known else None
        numbered.append(replace(each, version=number))
        if is_done and made.change is not None:
            context.audit(verb.value, each.label, **numbered[-1].audited, change=made.change.change_id)
    return VerbResult(
        verb=verb.value,
        outcomes=tuple(numbered),
        warnings=made.warnings,
        releases=releases,
        stopped=tuple(stopped),
        reload_needed=made.change is not None,
        dry_run=context.dry_run,
    )


def _scheduled(
    context: EntityContext, made: AppliedChange, documents: KeyedDocuments, new: KeyedDocuments, result: VerbResult
) -> VerbResult:
    """Schedule the submitted entities, including those that were submitted before and still wait."""
    assert made.after is not None
    entities = [entity for _, entity in documents.values() if isinstance(entity, Feed | Process)]
    for entity in entities:
        require_schedulable(made.after.bundle, entity, list(entity.clusters))
    outcomes = {(each.kind, each.name): each for each in result.outcomes}
    view = context.schedules()
    for entity in entities:
        concerned = [
            name
            for name in entity.clusters
            if entity.key in new or view.state(entity.kind, entity.name, name) is ScheduleState.SUBMITTED
        ]
        done = set_state(context, view, entity, concerned, ScheduleState.SCHEDULED, EntityVerb.SUBMIT_AND_SCHEDULE)
        before = outcomes[entity.key]
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


def update_cluster_dependents(context: EntityContext, name: str) -> VerbResult:
    """Write the version of a cluster into every feed and process that names another version, all or none. Processes get
    a new release if the cluster differs for them. Repeating it changes nothing.

    Raises:
        EntityNotFoundError: there is no such cluster.
        DefinitionsError: a feed or process would have errors; carries the issues.
    """
    loaded = context.load()
    cluster = get_declared(loaded, Kind.CLUSTER, name)
    assert isinstance(cluster, Cluster)
    entities = {entity.key: entity for entity in loaded.bundle.bundle.entities}
    changed: dict[EntityKey, tuple[Put, AnyEntity]] = {}
    for key in find_outdated(cluster, entities):
        document = loaded.documents[key]
        put = Put(text=document.text, format=document.format, source=document.file)
        changed[key] = with_cluster_version(put, entities[key], name, cluster.version, context.store.values)
    outcomes = tuple(
        EntityOutcome(
            kind=kind, name=each, outcome=VerbOutcome.UPDATED, notes=(f"version {cluster.version} of {name}",)
        )
        for kind, each in changed
    )
    if not changed:
        unchanged = EntityOutcome(kind=cluster.kind, name=name, outcome=VerbOutcome.UNCHANGED)
        return VerbResult(
            verb=EntityVerb.UPDATE_CLUSTER_DEPENDENTS.value, outcomes=(unchanged,), dry_run=context.dry_run
        )
    edits: list[Edit] = [put for put, _ in changed.values()]
    made = make_change(context, edits, changed.keys(), origin=EntityVerb.UPDATE_CLUSTER_DEPENDENTS.value, refuse=_allow)
    releases: tuple[ReleaseDecision, ...] = ()
    if made.change is not None:
        releases = settle_releases(context, made.after)
        context.audit(
            EntityVerb.UPDATE_CLUSTER_DEPENDENTS.value, cluster.label, version=cluster.version, entities=len(changed)
        )
    return VerbResult(
        verb=EntityVerb.UPDATE_CLUSTER_DEPENDENTS.value,
        outcomes=outcomes,
        warnings=made.warnings,
        releases=releases,
        reload_needed=made.change is not None,
        dry_run=context.dry_run,
    )
