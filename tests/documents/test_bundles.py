"""docs/bundles.md against the code: the parts of a bundle, its limits, and what an import makes."""

import zipfile
from io import BytesIO
from uuid import UUID

from feed_assets.definitions.bundles.archive import MOST_BYTES, MOST_FILES, BundleArchive, BundledEntity, render_archive
from feed_assets.definitions.bundles.importing import ImportOutcome
from feed_assets.entities.common import Kind
from tests.documents.markdown import ROOT, codes, plain, tables_of

DOCUMENT = "docs/bundles.md"
PAGE = " ".join((ROOT / DOCUMENT).read_text("utf-8").split())


def test_the_parts_of_a_bundle_are_named() -> None:
    (table,) = [table for table in tables_of(DOCUMENT) if table.header[0] == "part"]
    clicks = BundledEntity(kind=Kind.FEED, name="clicks", uid=UUID(int=1), file="entities/feed/clicks.yaml")
    content = render_archive(
        BundleArchive(entities=(clicks,), texts={clicks.file: b""}, files={"a": b""}, metadata=b"")
    )
    with zipfile.ZipFile(BytesIO(content)) as file:
        found = {name if "/" not in name else f"{name.partition('/')[0]}/" for name in file.namelist()}
        assert clicks.file in file.namelist()
        assert {each.compress_type for each in file.infolist()} == {zipfile.ZIP_STORED}
    assert {plain(row[0]) for row in table.rows} == found
    assert f"`{clicks.file}`" in PAGE


def test_outcomes_and_limits_are_those_of_the_code() -> None:
    (table,) = [table for table in tables_of(DOCUMENT) if table.header[0] == "here"]
    assert set(ImportOutcome) <= {code for row in table.rows for code in codes(row[1])}
    assert f"more than {MOST_FILES:,} files or {MOST_BYTES >> 20} MiB" in PAGE
