import pytest
from sqlalchemy import text

from feed_assets.sql.database import Database
from feed_assets.triggers.queues import verify_queues
from tests.triggers.harness import CLUSTER, Queues, build_plan


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        ("DELETE FROM fa_batches WHERE to_seq = 2", "events 1 to 2 are in no batch and were not passed over"),
        ("UPDATE fa_batches SET after_seq = 1 WHERE to_seq = 3", "events 2 to 2 are in two batches"),
        ("UPDATE fa_batches SET count = 5 WHERE to_seq = 2", "5 events from 1 to 2 were taken, but there are 2"),
        ("UPDATE fa_trigger_inputs SET pending = 7", "its mark says that 7 events are pending, but there are 1"),
        ("UPDATE fa_trigger_inputs SET taken_seq = 4", "events 4 to 4 are in no batch and were not passed over"),
        ("DELETE FROM fa_process_instances", "which is gone"),
        ("UPDATE fa_triggers SET wake_at = NULL", "enough has come for a batch, but no tick will look at it"),
    ],
)
def test_a_row_that_is_spoilt_by_hand_is_named(database: Database, spoil: str, sentence: str) -> None:
    queues = Queues(database=database, plan=build_plan(["d1"], {"p": {"when": "d1"}}))
    queues.tick()
    for count in (2, 1):
        queues.come(*["d1"] * count)
        queues.tick()
        queues.end()
    queues.come("d1")
    queues.tick(is_held=True)
    with database.read() as connection:
        assert verify_queues(connection, queues.plan, CLUSTER, queues.now) == []
    with database.begin() as connection:
        connection.execute(text(spoil))
    with database.read() as connection:
        assert sentence in "; ".join(
            fault.message for fault in verify_queues(connection, queues.plan, CLUSTER, queues.now)
        )
