"""Rename a feed or process in all that is recorded, in one transaction.

Columns that name it say so (`sql/names.py`). What is made of names, and not one itself, is made anew here: the recorded
definitions, from which releases are compiled, fingerprints and signs of these, digests, words of the search, and what
Dagster is to be told.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from sqlalchemy import Connection, update

from feed_assets.catalog.reindexing import mend_index
from feed_assets.catalog.store import MetadataStore
from feed_assets.definitions.errors import DefinitionStoreError
from feed_assets.definitions.folder import digest_as_written, find_entity, find_version_entity
from feed_assets.definitions.renamed_texts import renamed_entity, renamed_text
from feed_assets.entities.bundle import Bundle
from feed_assets.entities.common import Kind
from feed_assets.loading.entity_files import Values
from feed_assets.loading.yaml_writer import render_yaml
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.changes import Changes
from feed_assets.log.definitions.records import DocumentFormat, Member, Release, Rename
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.events import EventLog
from feed_assets.log.instances.tables import process_instances
from feed_assets.log.records import EntityKey
from feed_assets.log.removals.chunks import digest_anew
from feed_assets.plan.compile import compile_plan
from feed_assets.plan.edges import Key, TriggerRecord, compile_trigger
from feed_assets.plan.records import DEFINITION_DIGITS, ProcessRecord
from feed_assets.plan.release_fingerprint import parse_fingerprint
from feed_assets.releases.store import Releases
from feed_assets.releases.timeline import ReleaseTimeline, note_changed_releases
from feed_assets.sql.database import lock_log, lock_queues
from feed_assets.sql.names import Renaming, rename_everywhere
from feed_assets.triggers.queue.store import rename_inputs


def rename_record(connection: Connection, rename: Rename, values: Values) -> None:
    """Write the new name wherever the former one is recorded. The caller holds the lock of the definitions."""
    lock_log(connection)
    lock_queues(connection)
    definitions = Definitions(connection)
    clusters = tuple(definitions.names_ever(Kind.CLUSTER))
    renaming = Renaming(kind=Kind(rename.kind), old=rename.former, new=rename.name, clusters=clusters)
    member = (rename.kind, rename.former)
    affected = [
        each
        for releases in Releases(connection).all().values()
        for each in releases
        if member in {(of.kind, of.name) for of in each.members}
    ]
    before, triggers = _compile(connection, affected, values), _compile_triggers(connection, values)
    rename_everywhere(connection, renaming)
    _rewrite_definitions(connection, renaming, values)
    EventLog(connection).rename(renaming)
    digest_anew(connection, rename.name)
    _follow_releases(connection, renaming, before, values)
    now = _compile_triggers(connection, values)
    for (process, cluster), trigger in triggers.items():
        key = EntityKey(renaming.replace(Kind.PROCESS, process), cluster)
        if key in now:
            rename_inputs(connection, key, trigger, now[key])
    described = MetadataStore(connection).below(f"{rename.kind}/{rename.name}")
    mend_index(connection, [each.id for each in described], dry_run=False)
    definitions.put_rename(rename)
    _note_assets(connection, rename, clusters)


def _compile(
    connection: Connection, releases: Iterable[Release], values: Values
) -> Mapping[tuple[Key, int], tuple[Release, ProcessRecord | None]]:
    """Return releases with their processes; None for definitions that cannot be read any more."""
    timeline = ReleaseTimeline(compile_plan(Bundle(entities=())), values)
    return {
        ((each.process, each.cluster), each.release): (each, timeline.compile_release(connection, each))
        for each in releases
    }


def _compile_triggers(connection: Connection, values: Values) -> Mapping[Key, TriggerRecord]:
    """Return the triggers of the recorded definitions, by process and cluster."""
    newest = [each for each in Definitions(connection).newest().values() if each.text is not None]
    members = [Member(kind=each.kind, name=each.name, version=each.version) for each in newest]
    timeline = ReleaseTimeline(compile_plan(Bundle(entities=())), values)
    bundle = timeline.load_recorded(connection, members).bundle
    return {
        (process.name, cluster): trigger
        for process in bundle.processes
        for cluster in process.clusters
        if bundle.find_cluster(cluster) and (trigger := compile_trigger(bundle, process, cluster)) is not None
    }


def _rewrite_definitions(connection: Connection, renaming: Renaming, values: Values) -> None:
    """Write the name into the recorded documents, and their new digests wherever these are noted."""
    definitions, noted = Definitions(connection), {}
    for version in definitions.all():
        key = (version.kind, version.name)
        is_it = key == (renaming.kind, renaming.new)
        written = (version.kind, renaming.old) if is_it else key
        if version.text is None or renaming.old not in version.text:
            if is_it:
                noted[written[0], written[1], version.digest] = (version.name, version.digest)
            continue
        entity = find_version_entity(version) or find_version_entity(version, values)
        try:
            text = renamed_text(version.text, written, version.format, renaming, values)
        except DefinitionStoreError:  # as in an anchor: then it is written anew
            if entity is None or version.format is DocumentFormat.XML:
                continue
            text = render_yaml(renamed_entity(entity, renaming), has_references=True)
        found = find_entity(text, version.format) or find_entity(text, version.format, values)
        digest = version.digest if found is None else digest_as_written(found, text, version.format)
        definitions.rewrite(version, text, digest)
        noted[written[0], written[1], version.digest] = (version.name, digest)
        if version.kind == Kind.PROCESS and version.digest and digest and version.digest != digest:
            column = process_instances.c.definition_digest
            is_its = (process_instances.c.process == version.name, column == version.digest[:DEFINITION_DIGITS])
            new = digest[:DEFINITION_DIGITS]
            connection.execute(update(process_instances).where(*is_its).values(definition_digest=new))
    Changes(connection).rewrite(noted)


def _follow_releases(
    connection: Connection,
    renaming: Renaming,
    before: Mapping[tuple[Key, int], tuple[Release, ProcessRecord | None]],
    values: Values,
) -> None:
    """Give releases the fingerprints that they have with the new name, so that a name alone makes no release."""
    names, releases = renaming.names(Kind.PROCESS), Releases(connection)
    renamed = {((names.get(key[0], key[0]), key[1]), number): old for (key, number), (_, old) in before.items()}
    standing = [each for listed in releases.all().values() for each in listed]
    is_affected = [each for each in standing if ((each.process, each.cluster), each.release) in renamed]
    for at, (release, new) in _compile(connection, is_affected, values).items():
        old = renamed[at]
        if old is None or new is None:
            continue
        fingerprint, facts = parse_fingerprint(release.fingerprint), parse_fingerprint(old.fingerprint).facts
        if fingerprint.facts == facts:
            followed = replace(fingerprint, facts=parse_fingerprint(new.fingerprint).facts)
            releases.put([replace(release, fingerprint=followed.render())])
    note_changed_releases(connection)


def _note_assets(connection: Connection, rename: Rename, clusters: Collection[str]) -> None:
    """Note for the ticks of each cluster what Dagster has shown under the former name, as `asset_places` has it."""
    cursors = Cursors(connection)
    for cluster in clusters:
        noted = cursors.get(f"assets/{cluster}/{rename.kind}/{rename.former}")
        if noted is not None:
            before = json.loads(cursors.get(renamed_on(cluster)) or "[]")
            assets = [path for path, _ in json.loads(noted)]
            new = [rename.kind, rename.former, rename.name, rename.renamed_at.isoformat(), assets]
            cursors.put(renamed_on(cluster), json.dumps([*before, new]))


def renamed_on(cluster: str) -> str:
    """Return the cursor with the renamed entities of a cluster of which Dagster is to be told: a list of kind, former
    and present name, time, and keys of the assets that have shown it.
    """
    return f"renamed/{cluster}"
