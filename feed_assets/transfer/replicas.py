"""The record of a source in the manifest of its copy, by which a later copy finds what is new."""

from dataclasses import dataclass

from feed_assets.storage.manifests import parse_json, render_json
from feed_assets.storage.paths import path_name

REPLICA = "replica:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """The record of a source in the manifest of its copy.

    `digest` is the digest of the copied content. `fingerprint` and `mark` are those of the source at that time (see
    `Survey`). `is_settled` means that every later change of the source changes the fingerprint.
    """

    url: str
    part: str
    digest: str
    fingerprint: str
    mark: str
    is_settled: bool

    def render(self) -> str:
        """Render the record as a value of a manifest's `extra`."""
        fields = [self.url, self.part, self.digest, self.fingerprint, self.mark, int(self.is_settled)]
        return render_json([1, *fields]).decode()


def parse_replica(text: str | None) -> Replica | None:
    """Parse the text of `Replica.render`; return None for any other text."""
    try:
        version, url, part, digest, fingerprint, mark, is_settled = parse_json(text or "null")
    except (ValueError, TypeError):
        return None
    if version != 1:
        return None
    return Replica(url=url, part=part, digest=digest, fingerprint=fingerprint, mark=mark, is_settled=bool(is_settled))


def replica_key(part: str) -> str:
    """Return the key in a manifest's `extra` for the source of a part of the instance."""
    return f"{REPLICA}{path_name(part) if part else 'whole'}"
