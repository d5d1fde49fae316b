"""docs/mirroring.md against the code: figures, properties, numbers, and what is refused."""

import re
from datetime import UTC, datetime, timedelta

from feed_assets.entities.copies.mirror import Mirror, MirrorSnapshots, RemovalLimits
from feed_assets.entities.copies.options import Verification
from feed_assets.orchestration import names
from feed_assets.replication.mirrors.templates import KNOWN, read_properties
from feed_assets.storage.copy_port import SNAPSHOTS_FOLDER
from feed_assets.storage.paths import CONTROL_FOLDER, MANIFEST_NAME
from feed_assets.storage.records import Displaced
from feed_assets.transfer.errors import APPROVAL
from feed_assets.transfer.executors import WORTH_BYTES, WORTH_FILES
from feed_assets.transfer.mirroring import SnapshotResult, describe_mirror, snapshot_name
from feed_assets.transfer.requests import Copied, CopyStatus
from feed_assets.transfer.running import Failure
from tests.documents.markdown import ROOT, codes, plain, tables_of

DOCUMENT = "docs/mirroring.md"
PAGE = " ".join((ROOT / DOCUMENT).read_text("utf-8").split())


def column(header: str) -> list[str]:
    (table,) = [table for table in tables_of(DOCUMENT) if table.header[0] == header]
    return [plain(row[0]) for row in table.rows]


def test_the_figures_are_those_that_a_run_tells() -> None:
    failure = Failure(file="a", reason="unreadable", is_change=False)
    copied = Copied(
        status=CopyStatus.INCOMPLETE,
        source_url="file:///a",
        target_url="file:///b",
        resumed=1,
        displaced=Displaced(sweep="1", store="file:///b", path="b", paths=("b/c",), files=1),
        verification=Verification.WHOLE,
        failures=(failure,),
    )
    told = describe_mirror([copied], [SnapshotResult(name="models.1", pruned=("source/models.0",))])
    assert column("figure") == list(told)
    assert f"`{names.META_DETAIL}`" in PAGE
    for status in CopyStatus:
        assert f"`{status.value}`" in PAGE


def test_every_property_of_falcons_extensions_is_named_and_translated() -> None:
    translated = column("property")
    left_out = [name for name in codes(PAGE.partition("| `preserveReplicationNumber` |")[2]) if name in KNOWN]
    assert sorted({*translated, *left_out}) == sorted(KNOWN)
    for name in translated:
        assert read_properties({name: "true"})[0], name
    for name in set(KNOWN) - set(translated):
        assert read_properties({name: "true"}) == ({}, (f"{name}=true is left out: it has no meaning here",))


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"Less than {WORTH_BYTES >> 20} MiB in less than {WORTH_FILES:,} files" in PAGE
    limits = RemovalLimits()
    assert (limits.share, limits.files) == (0.5, 10_000)
    assert "half of them and 10,000 unless declared" in PAGE
    assert Mirror.model_fields["max_tasks"].default == 5
    assert "Five copies at once" in PAGE
    assert f"--property {APPROVAL}=1234" in PAGE
    begun = datetime(2013, 11, 1, 6, 0, 5, 123_000, tzinfo=UTC)
    assert f"`{snapshot_name('models', begun - timedelta(seconds=5.123), begun)}`" in PAGE


def test_names_in_storage_are_those_of_the_code() -> None:
    assert f"`{MANIFEST_NAME}`" in PAGE
    assert f"`{CONTROL_FOLDER}/{SNAPSHOTS_FOLDER}/`" in PAGE


def test_every_option_that_is_spoken_of_exists() -> None:
    _, _, prose = PAGE.partition("## What a run does")
    spoken = {re.split(r"[:.]", code)[0] for code in codes(prose.partition("## What a partition says")[0])}
    options = {"removed_files", "limits", "allow_emptying", "ignore_errors", "hidden"}
    assert options <= spoken
    assert options <= set(Mirror.model_fields)
    assert {"source_keep", "target_keep", "source_age", "target_age"} == set(MirrorSnapshots.model_fields) & spoken
