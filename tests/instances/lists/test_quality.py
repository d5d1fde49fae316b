"""The quality of a replicated feed: its source is asked, where a process writes it."""

from pathlib import Path

import pytest

from feed_assets.catalog.run_metadata import Facts
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import resolve_subject
from feed_assets.instances.lists.quality import show_quality
from feed_assets.log.records import ProcessKey
from tests.context.contexts import context_of
from tests.instances.harness import START, process
from tests.replication.test_flows import harness_of, replicated

SAID = {
    "records.count": "10",
    "good.records.count": "9",
    "rejected.records.count": "1",
    "good.records.percent": "90",
    "good.records.threshold": "80",
    "did.dq.pass": "true",
}


def test_the_source_is_asked_and_a_replica_names_it(tmp_path: Path) -> None:
    lifecycle = harness_of(tmp_path, replicated(), process("made", outputs={"clicks": "now(0,0)"}))
    context = context_of(lifecycle, START)
    with lifecycle.database.begin() as connection:
        for name, cluster, output in (("made", "primary", "clicks"), ("clicks@primary", "backup", "clicks")):
            Facts(connection).add(ProcessKey(name, cluster, START), 1, f"quality/{output}", SAID, START)
    (found,) = show_quality(context, resolve_subject(context, "clicks", START))
    assert (found.cluster, found.process) == ("primary", "made")
    with pytest.raises(InstanceQueryError, match=r"on backup: no process writes it.* on primary: ask there"):
        show_quality(context, resolve_subject(context, "clicks", START, clusters=("backup",)))
