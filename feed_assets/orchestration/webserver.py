"""Ask Dagster's webserver over GraphQL to reload the code locations of feed-assets."""

import json
from typing import Any
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
    repositories = (_ask(webserver, _SENSORS, {}).get("repositoriesOrError") or {}).get("nodes", ())
    names = sorted(
        {
            str(repository["location"]["name"])
            for repository in repositories
            if any(sensor["name"].startswith(SENSOR_PREFIX) for sensor in repository["sensors"])
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
    answer = _ask(webserver, _RELOAD, {"name": name})["reloadRepositoryLocation"]
    loaded = answer.get("locationOrLoadError") or {}
    if loaded.get("__typename") != "RepositoryLocation":
        reason = str(loaded.get("message") or answer.get("message") or answer.get("__typename")).strip()
        raise WebserverError(
            url=webserver,
            reason=f"location {name!r} was not loaded: {reason.splitlines()[0]}",
            next_step="Correct it, or reload it there by hand.",
        )


def _ask(webserver: str, query: str, variables: dict[str, str]) -> dict[str, Any]:
    """Return the data of an answer. What Dagster answers has the form that the query asks for."""
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
    told = answer if isinstance(answer, dict) else {}
    data = told.get("data")
    if not isinstance(data, dict):
        reason, next_step = f"it refused: {told.get('errors')}", "Reload the location there by hand."
        raise WebserverError(url=webserver, reason=reason, next_step=next_step)
    return data
