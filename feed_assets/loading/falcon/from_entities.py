"""Convert values of our models to values in the structure of Falcon's documents.

Values that Falcon requires and our models may lack are filled in. Values for which Falcon has no element are left to
reserved properties.
"""

from collections.abc import Mapping
from typing import Any, assert_never

from feed_assets.entities.common import Kind, RetentionAction
from feed_assets.entities.feed import LIMIT_PROPERTY
from feed_assets.entities.replication import Replication, render_properties
from feed_assets.loading.falcon import reserved
from feed_assets.loading.falcon.spark_options import render_spark_options
from feed_assets.loading.falcon.to_entities import ENGINES

_NOBODY = {"owner": "nobody", "group": "nobody"}
_NOWHERE = {"location": "/none", "provider": "none"}
_STAGING = {"staging": "/none"}
_FOR_EVER = "months(9999)"
_KEEP = {"limit": _FOR_EVER, "action": RetentionAction.DELETE.value}
_KEEP_STAGE = {"retention_stage": {"properties": {LIMIT_PROPERTY: _FOR_EVER}}}
_FAR = "2099-12-31T00:00Z"
"""The end of a validity without an end, and the last time that the schema of feeds allows, to the day."""
_WHOLE_TABLE = {"type": "full", "merge_policy": "snapshot"}
_NO_DRIVER = {"class": "none", "jars": ["none"]}
_NO_JAR = "none"
_NO_PATH = "/none"
_FALCONS = {own: falcon for falcon, own in ENGINES.items()}
_VERSION = "0.0"
_SECONDS, _FINEST = "seconds(", "minutes(1)"
_OWN_TIME = "now(0,0)"


def unconvert(kind: Kind, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values for a document. `content` is the JSON form of an entity without its defaults."""
    values: dict[str, Any] = _copy(content)
    properties = values.pop("properties", {})
    values["properties"] = {name: value for name, value in properties.items() if not name.startswith(reserved.PREFIX)}
    if "tags" in values:
        values["tags"] = ",".join(f"{key}={value}" for key, value in values["tags"].items())
    match kind:
        case Kind.CLUSTER:
            _cluster(values)
        case Kind.DATASOURCE:
            _datasource(values)
        case Kind.FEED:
            _feed(values)
        case Kind.PROCESS:
            _process(values)
        case _:
            assert_never(kind)
    return values


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list | tuple) else value


def _cluster(values: dict[str, Any]) -> None:
    values.setdefault("colo", "default")
    values["locations"] = values.get("locations") or dict(_STAGING)
    interfaces = values.setdefault("interfaces", {})
    for name in ("readonly", "write", "execute"):
        endpoint = values["storage"] if name != "execute" else "none"
        interfaces.setdefault(name, {"endpoint": endpoint, "version": _VERSION})


def _datasource(values: dict[str, Any]) -> None:
    values.setdefault("colo", "default")
    values.setdefault("driver", _NO_DRIVER)
    for holder in (values, *values["interfaces"].values()):
        if "credential" in holder:
            credential = holder["credential"]
            way = next(key for key in ("password_file", "password", "password_alias") if key in credential)
            credential["type"] = {"password": "password-text"}.get(way, way.replace("_", "-"))


def _frequency(values: dict[str, Any]) -> None:
    """Fill in a frequency that Falcon knows, where it is missing, or seconds."""
    if values.get("frequency", _SECONDS).startswith(_SECONDS):
        values["frequency"] = _FINEST


def _feed(values: dict[str, Any]) -> None:
    _frequency(values)
    values.setdefault("acl", _NOBODY)
    values.setdefault("schema_source", _NOWHERE)
    values.pop("schema", None)
    if "table" not in values:
        values.setdefault("locations", {})
    _join(values, "groups")
    _notification(values)
    if "replication" in values:
        values["properties"] = {
            **render_properties(Replication.model_validate(values["replication"])),
            **values["properties"],
        }
    _limit_validity(values)
    for entry in values["clusters"].values():
        _retention(entry, has_lifecycle="lifecycle" in entry or "lifecycle" in values)
        if "import" in entry:
            entry["import"]["source"].setdefault("extract", _WHOLE_TABLE)


def _retention(entry: dict[str, Any], *, has_lifecycle: bool) -> None:
    """Fill in the retention. Falcon can only delete: what is archived here is never removed there."""
    entry["retention"] = _KEEP | entry.get("retention", {})
    if entry["retention"]["action"] == RetentionAction.ARCHIVE:
        entry["retention"] |= _KEEP
        if has_lifecycle:
            entry["lifecycle"] = _KEEP_STAGE


def _limit_validity(values: dict[str, Any]) -> None:
    for entry in values["clusters"].values():
        entry["validity"] = {key: min(entry["validity"].get(key, _FAR), _FAR) for key in ("start", "end")}


def _process(values: dict[str, Any]) -> None:
    _frequency(values)
    for item in values.get("inputs", {}).values():
        for end in ("start", "end"):
            item.setdefault(end, _OWN_TIME)
    values.setdefault("parallel", 1)
    values.setdefault("order", "FIFO")
    _limit_validity(values)
    _join(values, "pipelines")
    _notification(values)
    workflow = values["workflow"]
    engine = workflow.get("engine", "python")
    path = workflow.setdefault("path", _NO_PATH)
    late = values.get("late_process", {}).get("inputs", {})
    for name, own in late.items():
        late[name] = path if own is None else own.get("path", _NO_PATH)
    if "lib" in workflow:
        workflow["lib"] = ",".join(workflow["lib"])
    workflow["engine"] = _FALCONS.get(engine)
    if engine == "spark-submit":
        submit = dict(workflow.get("submit", {}))
        values["spark_attributes"] = {
            "master": workflow.get("master"),
            "mode": workflow.get("deploy_mode"),
            "name": submit.pop("name", None) or values["name"],
            "class": workflow.get("main_class"),
            "jar": _NO_JAR if "," in path else path,
            "spark_opts": render_spark_options(workflow.get("conf", {}), submit) or None,
            "args": workflow.get("args", []),
        }


def _notification(values: dict[str, Any]) -> None:
    if "notification" in values:
        values["notification"].setdefault("type", "email")
        _join(values["notification"], "to")


def _join(holder: dict[str, Any], key: str) -> None:
    if key in holder:
        holder[key] = ",".join(holder[key])
