"""Compute checksums of file content in the form of manifests: `<algorithm>:<hex>`.

New checksums are BLAKE3 (https://github.com/BLAKE3-team/BLAKE3-specs). It is a cryptographic hash like SHA-256 and
several times faster, so verification hardly slows a copy. A file whose manifest has a SHA-256 is compared by SHA-256.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from blake3 import blake3

_BLAKE3: Final = "blake3:"
_SHA256: Final = "sha256:"


class Checksum:
    """The checksum of content that comes in chunks: call `update` with each chunk, then `render`.

    The algorithm is that of the checksum `like`; BLAKE3 if `like` is "".

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
        """Add these bytes."""
        self._hash.update(data)

    def render(self) -> str:
        """Return the checksum of all bytes so far."""
        return f"{self._hash.name}:{self._hash.hexdigest()}"


def checksum_of(chunks: Iterable[bytes | memoryview], like: str = "") -> str:
    """Return the checksum of content in chunks; see `Checksum`.

    >>> checksum_of([b"a", b"b"]) == checksum_of([b"ab"])
    True
    """
    checksum = Checksum(like)
    for chunk in chunks:
        checksum.update(chunk)
    return checksum.render()


def is_of_content(checksum: str) -> bool:
    """Return whether feed-assets computed a checksum from the complete content of a file.

    Other checksums come from the storage.

    >>> is_of_content("blake3:17"), is_of_content("sha256:ca"), is_of_content("etag:0c"), is_of_content("")
    (True, True, False, False)
    """
    return checksum.startswith((_BLAKE3, _SHA256))
