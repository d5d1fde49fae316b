"""Airflow's paths to assets, their events, what is queued, and `materialize`: its assets are feeds here, its DAGs
processes, and the id of either is its name. A partition is an instance, a DAG run an instance of a process.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any

from feed_assets.log.records import MESSAGE
from feed_assets.log.run_names import find_run
from feed_assets.server.aliases.records import Alias, Asked
from feed_assets.server.errors import RequestRefusedError

_Json = Mapping[str, Any]
_MOST_EVENTS, _MOST_BATCHES, _MOST_ASSETS = 1_000, 50, 10_000
_PAGE = 100
_SOURCES = ("source_dag_id", "source_task_id", "source_run_id")
_STATES = {"RUNNING": "running", "SUCCEEDED": "success", "FAILED": "failed", "KILLED": "failed", "TIMEDOUT": "failed"}
_ORDERS = ("id", "name", "uri")


def _refuse(status: HTTPStatus, text: str) -> RequestRefusedError:
    return RequestRefusedError(status, text)


def _parse_time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _read(asked: Asked, name: str, parse: Any, default: Any = None) -> Any:
    try:
        return parse(asked.one(name)) if name in asked.values else default
    except ValueError as exc:
        raise _refuse(HTTPStatus.UNPROCESSABLE_ENTITY, f"{name} cannot be {asked.one(name)[:40]!r}.") from exc


def _read_body(asked: Asked, types: Mapping[str, type]) -> _Json:
    body = {} if asked.body is None else asked.body
    is_known = isinstance(body, dict) and body.keys() <= types.keys()
    if not is_known or not all(value is None or isinstance(value, types[name]) for name, value in body.items()):
        text = f"The body is a JSON object with {', '.join(types)}, each of its type."
        raise _refuse(HTTPStatus.UNPROCESSABLE_ENTITY, text)
    return {name: value for name, value in body.items() if value is not None}


def _page(asked: Asked, name: str, items: list[Any]) -> _Json:
    offset, limit = _read(asked, "offset", int, 0), _read(asked, "limit", int, _PAGE)
    if offset < 0 or limit < 0:
        raise _refuse(HTTPStatus.UNPROCESSABLE_ENTITY, "offset and limit are 0 or more.")
    return {name: items[offset : offset + limit], "total_entries": len(items)}


def _near(asked: Asked, kind: str, name: str, tag: str) -> list[str]:
    """Return the neighbours of an entity that a tag tells: of a feed, those that it is an Input or Output of."""
    found = asked.ask("entity dependency", kind=kind, name=name)["dependencies"]
    return [each["name"] for each in found if tag in each["tags"]]


def _asset(asked: Asked, name: str) -> _Json:
    readers, makers = (_near(asked, "feed", name, tag) for tag in ("Input", "Output"))
    newest = asked.ask("feed events", feed=name, limit="1")["events"]
    return {
        "id": name,
        "name": name,
        "uri": name,
        "group": "asset",
        "extra": {},
        "aliases": [],
        "scheduled_dags": [{"dag_id": each} for each in readers],
        "consuming_tasks": [{"dag_id": each, "task_id": each} for each in readers],
        "producing_tasks": [{"dag_id": each, "task_id": each} for each in makers],
        "last_asset_event": next(({"id": each["seq"], "timestamp": each["recorded_at"]} for each in newest), None),
    }


def _list_assets(document: Any, asked: Asked) -> Any:
    order = asked.one("order_by", "id")
    if order.removeprefix("-") not in _ORDERS:
        raise _refuse(HTTPStatus.BAD_REQUEST, f"order_by {order!r} is not one of {', '.join(_ORDERS)}.")
    names = sorted((each["name"] for each in document["entities"]), reverse=order.startswith("-"))
    patterns = [asked.one(each) for each in ("uri_pattern", "name_pattern")]
    if dags := asked.values.get("dag_ids"):
        of_dags = [dags] if isinstance(dags, str) else dags
        near = {name for dag in of_dags for tag in ("Input", "Output") for name in _near(asked, "process", dag, tag)}
        names = [each for each in names if each in near]
    page = _page(asked, "assets", [name for name in names if all(each.strip("%") in name for each in patterns)])
    return {**page, "assets": [_asset(asked, name) for name in page["assets"]]}


def _event(event: _Json, runs: Mapping[int, Any]) -> _Json:
    process = event["payload"].get("process")
    return {
        "id": event["seq"],
        "asset_id": event["feed"],
        "name": event["feed"],
        "uri": event["feed"],
        "extra": event["payload"].get(MESSAGE) or {},
        "source_dag_id": process,
        "source_task_id": process,
        "source_map_index": -1,
        "source_run_id": find_run(event["origin"]) if process else None,
        "created_dagruns": runs.get(event["seq"], []),
        "timestamp": event["recorded_at"],
        "partition_key": event["nominal_time"],
    }


def _runs(asked: Asked, feed: str) -> Mapping[int, Any]:
    """Return the newest batches that have taken each event of a feed, by its number."""
    found: dict[int, list[_Json]] = defaultdict(list)
    for batch in asked.ask("batch list", feed=[feed], num_results=_MOST_BATCHES)["batches"]:
        where = {name: batch[name] for name in ("process", "cluster")}
        run = {"dag_id": batch["process"], "run_id": batch["run_id"], "logical_date": batch["batch"]}
        for each in asked.ask("batch show", instance=batch["batch"], **where)["events"]:
            found[each["event"]].append({**run, "state": _STATES.get(batch["status"], "queued")})
    return found


def _list_events(document: Any, asked: Asked) -> Any:
    runs = _runs(asked, asked.one("asset_id"))
    first, after, last, before = (_read(asked, f"timestamp_{each}", _parse_time) for each in ("gte", "gt", "lte", "lt"))
    found = []
    for each in (_event(event, runs) for event in document["events"]):
        moment = _parse_time(each["timestamp"])
        is_in_time = (first is None or moment >= first) and (last is None or moment <= last)
        is_within = (after is None or moment > after) and (before is None or moment < before)
        is_of_source = all(asked.one(name) == each[name] for name in _SOURCES if name in asked.values)
        if is_in_time and is_within and is_of_source and _read(asked, "source_map_index", int, -1) == -1:
            found.append(each)
    return _page(asked, "asset_events", found)


def _notify(asked: Asked) -> _Json:
    body = _read_body(asked, {"asset_id": str, "extra": dict, "partition_key": str})
    if "asset_id" not in body:
        raise _refuse(HTTPStatus.UNPROCESSABLE_ENTITY, "The body has no asset_id.")
    payload = {**body.get("extra", {}), "from_rest_api": True}
    return {"feed": body["asset_id"], "instance": body.get("partition_key"), "payload": payload}


def _show_notified(document: Any, asked: Asked) -> Any:
    found = asked.ask("feed events", feed=document["feed"], start=document["nominal_time"], limit=_MOST_EVENTS)[
        "events"
    ]
    return next(_event(each, {}) for each in found if each["nominal_time"] == document["nominal_time"])


def _iter_queued(asked: Asked) -> Iterator[tuple[_Json, _Json]]:
    """Yield the queues with what is pending in them for an asset, a DAG, or both."""
    asset, dag, before = asked.one("asset_id"), asked.one("dag_id"), _read(asked, "before", _parse_time)
    takers = asked.ask("queue consumers", feed=asset)["consumers"] if asset else asked.ask("queue list")["queues"]
    for process, cluster in sorted({(each["process"], each["cluster"]) for each in takers if each["pending"]}):
        if dag in ("", process):
            queue = {"process": process, "cluster": cluster}
            for event in asked.ask("queue show", **queue)["events"]:
                is_early = before is None or _parse_time(event["recorded_at"]) < before
                if asset in ("", event["feed"]) and is_early:
                    yield queue, event


def _show_queued(_: Any, asked: Asked) -> Any:
    first: dict[tuple[str, str], _Json] = {}
    for queue, event in _iter_queued(asked):
        told = {"asset_id": event["feed"], "dag_id": queue["process"], "created_at": event["recorded_at"]}
        first.setdefault((event["feed"], queue["process"]), told)
    if not first:
        raise _refuse(HTTPStatus.NOT_FOUND, "Nothing is queued.")
    listed = [*first.values()]
    is_one = "asset_id" in asked.values and "dag_id" in asked.values
    return listed[0] if is_one else {"queued_events": listed, "total_entries": len(listed)}


def _drop(asked: Asked) -> list[_Json]:
    events: dict[tuple[str, str], set[int]] = defaultdict(set)
    for queue, event in _iter_queued(asked):
        events[queue["process"], queue["cluster"]].add(event["event"])
    if not events:
        raise _refuse(HTTPStatus.NOT_FOUND, "Nothing is queued.")
    why = "dropped by a request for Airflow's queuedEvents"
    return [
        {"process": process, "cluster": cluster, "event": sorted(found), "reason": why}
        for (process, cluster), found in events.items()
    ]


def _materialize(asked: Asked) -> _Json:
    asset, body = asked.one("asset_id"), _read_body(asked, {"partition_key": str, "logical_date": str})
    makers = _near(asked, "feed", asset, "Output")
    if len(makers) != 1:
        status = HTTPStatus.CONFLICT if makers else HTTPStatus.NOT_FOUND
        raise _refuse(status, f"Asset {asset!r} is made by {' and '.join(makers) or 'no DAG'}; it must be one.")
    of_process = {"kind": "process", "name": makers[0]}
    found = asked.ask("instance list", **of_process, num_results=_PAGE)["instances"] if not body else []
    times = [*body.values()] or sorted((each["nominal_time"] for each in found), reverse=True)
    if not times:
        raise _refuse(HTTPStatus.CONFLICT, f"DAG {makers[0]!r} has no instance yet that can run again.")
    return {**of_process, "instance": times[0], "file": None}


def _show_run(document: Any, _: Asked) -> Any:
    if not document["changed"]:
        raise _refuse(HTTPStatus.CONFLICT, "The instance cannot run again now.")
    time = document["instances"][0]["nominal_time"]
    told = {"dag_id": document["process"], "dag_run_id": f"{document['process']}/{time}", "logical_date": time}
    return {**told, "partition_key": time, "state": "queued", "run_type": "manual"}


_UNPROCESSABLE = {int(HTTPStatus.BAD_REQUEST): int(HTTPStatus.UNPROCESSABLE_ENTITY)}
_PAGED = {"limit": "", "offset": ""}
_TIMED = {f"timestamp_{each}": "" for each in ("gte", "gt", "lte", "lt")}
_get = partial(Alias, "GET")
_queued = partial(_get, operation="queue list", names={"before": ""}, form=_show_queued)
_dropping = partial(Alias, "DELETE", operation="queue drop", names={"before": ""}, given=_drop, form=lambda _, __: None)

AIRFLOW: tuple[Alias, ...] = (
    _get(
        "/api/v2/assets",
        "entity list",
        names={**dict.fromkeys(("uri_pattern", "name_pattern", "dag_ids", "order_by"), ""), **_PAGED},
        given=lambda _: {"kind": "feed", "num_results": _MOST_ASSETS},
        form=_list_assets,
    ),
    _get(
        "/api/v2/assets/events",
        "feed events",
        names={"asset_id": "feed", **dict.fromkeys((*_SOURCES, "source_map_index"), ""), **_TIMED, **_PAGED},
        given=lambda _: {"limit": _MOST_EVENTS},
        form=_list_events,
    ),
    Alias("POST", "/api/v2/assets/events", "feed notify", given=_notify, form=_show_notified, statuses=_UNPROCESSABLE),
    *(
        row(f"/api/v2/{path}/queuedEvents")
        for path in ("assets/{asset_id}", "dags/{dag_id}/assets", "dags/{dag_id}/assets/{asset_id}")
        for row in (_queued, _dropping)
    ),
    Alias(
        "POST",
        "/api/v2/assets/{asset_id}/materialize",
        "instance rerun",
        given=_materialize,
        form=_show_run,
        statuses=_UNPROCESSABLE,
    ),
    _get(
        "/api/v2/assets/{asset_id}",
        "entity dependency",
        given=lambda asked: {"kind": "feed", "name": asked.one("asset_id")},
        form=lambda _, asked: _asset(asked, asked.one("asset_id")),
    ),
)
