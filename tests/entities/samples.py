"""A small set of entities that nothing is wrong with, and changed copies of it."""

import copy
from collections.abc import Mapping
from typing import Any

from feed_assets.entities.bundle import ENTITY_TYPES, AnyEntity, Bundle
from feed_assets.entities.common import Kind

REMOVED = object()
"""As a value of a change: the key goes."""

Documents = dict[str, dict[str, Any]]

_VALIDITY = {"start": "2015-01-01T00:00Z", "end": "2016-01-01T00:00Z"}

BASE: Documents = {
    "cluster primary": {"name": "primary", "colo": "nyc", "storage": "file:///data"},
    "cluster backup": {"name": "backup", "colo": "sfo", "storage": "file:///backup"},
    "datasource shop": {
        "name": "shop",
        "type": "postgres",
        "interfaces": {name: {"endpoint": "jdbc:postgresql://host/shop"} for name in ("readonly", "write")},
        "driver": {"class": "org.postgresql.Driver", "jars": ["postgresql.jar"]},
        "credential": {"user": "me", "password": "${env:SHOP_PASSWORD}"},
    },
    "feed clicks": {
        "name": "clicks",
        "frequency": "hours(1)",
        "late_arrival": {"cut_off": "hours(6)"},
        "locations": {"data": "/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}"},
        "partitions": ["country", "colo"],
        "clusters": {
            "primary": {"type": "source", "validity": dict(_VALIDITY), "retention": {"limit": "days(30)"}},
            "backup": {"type": "target", "validity": dict(_VALIDITY), "retention": {"limit": "days(90)"}},
        },
        "groups": ["web"],
    },
    "feed summary": {
        "name": "summary",
        "frequency": "days(1)",
        "locations": {"data": "/summary/${YEAR}/${MONTH}/${DAY}"},
        "clusters": {"primary": {"validity": dict(_VALIDITY)}},
    },
    "process daily": {
        "name": "daily",
        "frequency": "days(1)",
        "clusters": {"primary": {"validity": {"start": "2015-01-02T00:00Z", "end": "2015-12-31T00:00Z"}}},
        "timeout": "hours(12)",
        "inputs": {"clicks": {"feed": "clicks", "start": "yesterday(0,0)", "end": "today(0,-60)"}},
        "outputs": {"summary": {"feed": "summary", "instance": "yesterday(0,0)"}},
        "workflow": {"engine": "python", "path": "jobs.daily:summarize"},
    },
}


def documents(changes: Mapping[str, Any]) -> Documents:
    """The base with changes: `{"feed clicks/clusters/primary/delay": "hours(1)"}`; a whole entity without a slash."""
    changed = copy.deepcopy(BASE)
    for path, value in changes.items():
        label, *keys = path.split("/")
        if not keys:
            changed[label] = copy.deepcopy(value)
            continue
        place: Any = changed[label]
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        if value is REMOVED:
            del place[keys[-1]]
        else:
            place[keys[-1]] = copy.deepcopy(value)
    return changed


def build(label: str, document: Mapping[str, Any]) -> AnyEntity:
    """The entity of a document."""
    return ENTITY_TYPES[Kind(label.split()[0])].model_validate(document)


def bundle(changes: Mapping[str, Any] | None = None) -> Bundle:
    """The base with changes, as a bundle."""
    return Bundle(entities=tuple(build(label, document) for label, document in documents(changes or {}).items()))
