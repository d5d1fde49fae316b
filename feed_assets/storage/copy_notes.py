"""The journal of an assembly: a line for each time that something was noted, with all the stretches of it."""

from collections.abc import Iterable
from contextlib import suppress

from feed_assets.storage.copy_port import Written
from feed_assets.storage.manifests import parse_json, render_json


def render_notes(written: Iterable[Written]) -> bytes:
    """One line of JSON.

    >>> render_notes([Written(file="a", offset=0, size=2, checksum="crc32:1", sign="s", is_settled=True)])
    b'[["a",0,2,"crc32:1","s",true,""]]\\n'
    """
    return render_json([list(each) for each in written]) + b"\n"


def parse_notes(text: bytes) -> list[Written]:
    """Read what `render_notes` wrote; lines that were torn are passed over.

    >>> [note.file for note in parse_notes(b'[["a",0,2,"crc32:1","s",true]]\\n[["b",0,')]
    ['a']
    """
    found: list[Written] = []
    for line in text.splitlines():
        with suppress(ValueError, TypeError):
            found += [Written(*fields) for fields in parse_json(line)]
    return found
