"""Ask Dagster's webserver over GraphQL to reload the code locations of feed-assets."""

import json
from urllib.error import URLError
from urllib.request import Request, urlopen

from feed_assets.orchestration.errors import WebserverError

TIMEOUT_SECONDS = 60.0
SENSOR_PREFIX = "arrival_"

_SENSORS = "query {repositoriesOrError {... on RepositoryConnection {nodes {location {name} sensors {name}}}}}"
_RELOAD = """
mutation ($name: String!) {
  reloadRepositoryLocation(repositoryLocationName: $name) {
    __typename
    ... on WorkspaceLocationEntry {locationOrLoadError {__typename ... on PythonError {message}}}
    ... on PythonError {message}
  }
}
"""


def reload_locations(webserver: str) -> tuple[str, ...]:
    """Reload each code location of feed-assets on a webserver, and return their names.

    Raises:
        WebserverError: it cannot be reached, has no location of feed-assets, or cannot load one.
    """
    found = _ask(webserver, _SENSORS, {})
    repositories = _dicts(_dict(found.get("repositoriesOrError")).get("nodes"))
    names = sorted(
        {
            str(_dict(repository.get("location")).get("name"))
            for repository in repositories
            if any(str(sensor.get("name")).startswith(SENSOR_PREFIX) for sensor in _dicts(repository.get("sensors")))
        }
    )
    if not names:
        raise WebserverError(
            url=webserver, reason="it shows no location of feed-assets", next_step="Reload the location there by hand."
        )
    for name in names:
        _reload(webserver, name)
    return tuple(names)


def _reload(webserver: str, name: str) -> None:
    answer = _dict(_ask(webserver, _RELOAD, {"name": name}).get("reloadRepositoryLocation"))
    loaded = _dict(answer.get("locationOrLoadError"))
    if loaded.get("__typename") != "RepositoryLocation":
        reason = str(loaded.get("message") or answer.get("message") or answer.get("__typename")).strip()
        raise WebserverError(
            url=webserver,
            reason=f"location {name!r} was not loaded: {reason.splitlines()[0]}",
            next_step="Correct it, or reload it there by hand.",
        )


def _ask(webserver: str, query: str, variables: dict[str, str]) -> dict[str, object]:
    url = f"{webserver.rstrip('/')}/graphql"
    body = json.dumps({"query": query, "variables": variables}).encode()
    if not url.startswith(("http://", "https://")):
        raise WebserverError(url=webserver, reason="it is not an http address", next_step="Write http://host:port.")
    request = Request(url, data=body, headers={"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            answer = json.load(response)
    except (URLError, OSError, ValueError) as exc:
        reason = f"it does not answer: {getattr(exc, 'reason', exc)}"
        next_step = "Start it, or correct the setting 'webserver'; the daemon notices the change anyway."
        raise WebserverError(url=webserver, reason=reason, next_step=next_step) from exc
    data = _dict(answer).get("data")
    if not isinstance(data, dict):
        raise WebserverError(
            url=webserver,
            reason=f"it refused: {_dict(answer).get('errors')}",
            next_step="Reload the location there by hand.",
        )
    return data


def _dict(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _dicts(value: object) -> list[dict[str, object]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
