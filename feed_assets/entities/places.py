"""Give each place of data one identity, however its URL or path is written."""

import os
from collections.abc import Iterable

_VARIABLE = "${"
_LOCAL = "file"
_HERE = frozenset({"", "localhost"})


def canonical_place(text: str) -> str:
    """Return the URL of a place as one text: no `.`, `..`, doubled slashes or capital letters in the host.

    `text` is a URL or an absolute local path, with or without time variables. Of a local place, symbolic links before
    the first variable are resolved; nothing has to exist, and no other storage is contacted.

    >>> canonical_place("file://localhost/data/./a/../${YEAR}"), canonical_place("s3://Bucket//a/${YEAR}/")
    ('file:///data/${YEAR}', 's3://bucket/a/${YEAR}')
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = _LOCAL, f"/{text}"
    host, _, path = rest.partition("/")
    host = host.lower()
    segments = _plain(path.split("/"))
    if scheme.lower() == _LOCAL and host in _HERE:
        host = ""
        fixed = next((number for number, segment in enumerate(segments) if _VARIABLE in segment), len(segments))
        resolved = os.path.realpath("/" + "/".join(segments[:fixed]))
        segments = [*_plain(resolved.split("/")), *segments[fixed:]]
    return f"{scheme.lower()}://{host}/{'/'.join(segments)}"


def _plain(segments: Iterable[str]) -> list[str]:
    plain: list[str] = []
    for segment in segments:
        if segment == "..":
            plain = plain[:-1]
        elif segment not in ("", "."):
            plain.append(segment)
    return plain
