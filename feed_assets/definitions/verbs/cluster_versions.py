"""Version numbers of clusters and datasources, which grow with the fields that their users see. Feeds and processes
name the cluster version that they know in their own entries.
"""

import re
from collections.abc import Mapping

from feed_assets.definitions.documents import find_entity
from feed_assets.definitions.edits import Put
from feed_assets.entities.bundle import AnyEntity, entity_digest
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import Kind
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.feed import Feed
from feed_assets.entities.maps import FrozenMap
from feed_assets.entities.process import Process
from feed_assets.issues import EntityKey, FieldPath
from feed_assets.loading.bundles import parse_file
from feed_assets.loading.entity_files import EntityFile
from feed_assets.loading.falcon.writing import render_falcon
from feed_assets.loading.interpolation import Values
from feed_assets.loading.yaml_writer import render_yaml
from feed_assets.log.definitions.records import DocumentFormat

_SEEN = {
    Kind.CLUSTER: frozenset(
        {"colo", "storage", "storage_options", "interfaces", "locations", "spark", "catalog", "properties"}
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
