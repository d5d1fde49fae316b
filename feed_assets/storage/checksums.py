"""Checksums of the content of files, as manifests have them: `<algorithm>:<hex>`.

New ones are BLAKE3 (https://github.com/BLAKE3-team/BLAKE3-specs): a hash that nobody can forge either, several times
faster than SHA-256, so that a copy which is verified takes hardly longer than one which isn't. Where a manifest has
SHA-256 of a file, its content is compared by SHA-256.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from blake3 import blake3

_BLAKE3: Final = "blake3:"
_SHA256: Final = "sha256:"


class Checksum:
    """The checksum of a content that comes in pieces: `update` with each of them, then `render`.

    It is of the algorithm of `like`, which is a checksum or "".

    >>> one, two = Checksum(), Checksum(like="sha256:00")
    >>> one.update(b"a"), two.update(b"a")
    (None, None)
    >>> one.render()[:15], two.render()[:15]
    ('blake3:17762fdd', 'sha256:ca978112')
    """

    __slots__ = ("_hash",)

    def __init__(self, like: str = "") -> None:
        self._hash: blake3 | hashlib._Hash = hashlib.sha256() if like.startswith(_SHA256) else blake3()

    def update(self, data: bytes | memoryview) -> None:
        """Go on with these bytes."""
        self._hash.update(data)

    def render(self) -> str:
        """The checksum of all bytes so far."""
        return f"{self._hash.name}:{self._hash.hexdigest()}"


def checksum_of(chunks: Iterable[bytes | memoryview], like: str = "") -> str:
    """The checksum of a content in pieces; see `Checksum`.

    >>> checksum_of([b"a", b"b"]) == checksum_of([b"ab"])
    True
    """
    checksum = Checksum(like)
    for chunk in chunks:
        checksum.update(chunk)
    return checksum.render()


def checksum_of_bytes(data: bytes, like: str = "") -> str:
    """The checksum of a content that is in memory; short, because it is asked of many files.

    >>> checksum_of_bytes(b"ab") == checksum_of([b"ab"])
    True
    """
    if like.startswith(_SHA256):
        return _SHA256 + hashlib.sha256(data).hexdigest()
    return _BLAKE3 + blake3(data).hexdigest()


def is_of_content(checksum: str) -> bool:
    """Whether a checksum is one of ours, of the whole content of a file; others are those that storages tell.

    >>> is_of_content("blake3:17"), is_of_content("sha256:ca"), is_of_content("etag:0c"), is_of_content("")
    (True, True, False, False)
    """
    return checksum.startswith((_BLAKE3, _SHA256))
