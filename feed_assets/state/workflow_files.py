"""Store the content of the files of workflows under its digest, once for all releases; nothing is ever removed."""

from collections.abc import Collection, Mapping

from sqlalchemy import select

from feed_assets.state.rows import TableStore
from feed_assets.state.schema import workflow_files
from feed_assets.state.upserts import build_insert_if_absent

_T = workflow_files.c


class WorkflowFiles(TableStore):
    """The contents as one transaction sees them."""

    def find(self, digest: str) -> bytes | None:
        """Return a content; None if it is not stored."""
        return self._connection.execute(select(_T.content).where(_T.digest == digest)).scalar()

    def known(self, digests: Collection[str]) -> frozenset[str]:
        """Return those of some digests whose content is stored."""
        found: set[str] = set()
        ordered = sorted(digests)
        for start in range(0, len(ordered), 500):
            statement = select(_T.digest).where(_T.digest.in_(ordered[start : start + 500]))
            found.update(self._connection.execute(statement).scalars())
        return frozenset(found)

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Store contents by their digests."""
        if contents:
            rows = [{"digest": digest, "content": content} for digest, content in sorted(contents.items())]
            self._connection.execute(build_insert_if_absent(self._dialect, workflow_files), rows)
