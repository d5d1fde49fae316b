"""The addresses of pages: each has all that its page shows."""

from collections.abc import Mapping
from urllib.parse import quote, urlencode, urlsplit

from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import declared_by, is_of_feed
from feed_assets.page_addresses import HOME, instance_address

__all__ = [
    "FILES",
    "HOME",
    "ICON",
    "OPERATIONS",
    "STYLE",
    "address_of",
    "described_address",
    "entity_address",
    "instance_address",
    "is_link",
    "is_of_dagster",
    "question_address",
    "version_address",
]

STYLE, ICON = f"{HOME}/style.css", f"{HOME}/icon.svg"
OPERATIONS = "/docs"
"""The page of all operations, for browsers, too."""
FILES = (STYLE, ICON)
"""What each page has beside it: for everybody."""
_KINDS = frozenset(Kind)
_OURS = frozenset({"api", "docs", "health", "metrics", "openapi.json", "ui", "v3"})


def address_of(*parts: str, **values: object) -> str:
    """Return the address of a page by the parts of its path; values that are None or empty are left out.

    >>> address_of("search", text="delay*", scope=None)
    '/ui/search?text=delay%2A'
    """
    query = urlencode({name: each for name, each in values.items() if each not in (None, "", ())}, doseq=True)
    return "/".join((HOME, *(quote(each, safe=":+,@=") for each in parts))) + (f"?{query}" if query else "")


def entity_address(kind: str, name: str) -> str:
    """Return the address of an entity; of a flow or transfer that of its feed.

    >>> entity_address("feed", "flights"), entity_address("process", "flights@east")
    ('/ui/feed/flights', '/ui/feed/flights')
    """
    return address_of(*declared_by(name)) if is_of_feed(name) else address_of(kind, name)


def version_address(kind: str, name: str, version: int | str) -> str:
    """Return the address of a version of an entity.

    >>> version_address("feed", "flights", 3)
    '/ui/feed/flights/version/3'
    """
    return address_of(kind, name, "version", str(version))


def described_address(path: str) -> str:
    """Return the address of what has words: of an entity, a column of a feed, a run, or of another thing by its path.

    >>> described_address("feed/flights/column/origin"), described_address("dashboard/otd")
    ('/ui/feed/flights/column/origin', '/ui/words?entity=dashboard%2Fotd')
    """
    kind, _, name = path.partition("/")
    if kind in _KINDS and name and "/" not in name:
        return entity_address(kind, name)
    if kind == Kind.FEED and name.split("/")[1:2] == ["column"] and name.count("/") > 1:
        return address_of(kind, *name.split("/", 2))
    return address_of("run", name) if kind == "run" and name else address_of("words", entity=path)


def question_address(operation: str, given: Mapping[str, object] | None = None, /, **more: object) -> str:
    """Return the address of what an operation finds.

    >>> question_address("queue show", process="load")
    '/ui/ask/queue/show?process=load'
    """
    return address_of("ask", *operation.split(" "), **(given or {}), **more)


def is_link(text: str) -> bool:
    """Return whether a text is an address that a browser may be led to.

    >>> is_link("https://a.example/x"), is_link("javascript:alert(1)"), is_link("http:x")
    (True, False, False)
    """
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc) and text.isprintable()


def is_of_dagster(path: str) -> bool:
    """Return whether a path is Dagster's, if it is served, too.

    >>> [is_of_dagster(each) for each in ("/", "/assets/here/clicks", "/graphql", "/api/v1/why", "/ui", "/health")]
    [True, True, True, False, False, False]
    """
    return path.lstrip("/").partition("/")[0] not in _OURS
