from feed_assets.alerts.deadlines.messages import build_missed, first_of_each
from feed_assets.alerts.deadlines.records import SlaMiss
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.messages.payloads import SlaPayload
from tests.log.samples import hour


def miss(time: int, level: SlaLevel) -> SlaMiss:
    return SlaMiss(
        kind="feed",
        name="clicks",
        cluster="primary",
        nominal_time=hour(time),
        level=level,
        due_at=hour(time + 1),
        missed_at=hour(9),
        told_at=hour(9),
    )


def test_each_message_has_the_cause_of_its_own_oldest_instance() -> None:
    misses = [miss(6, SlaLevel.LOW), miss(5, SlaLevel.LOW), miss(3, SlaLevel.HIGH), miss(4, SlaLevel.HIGH)]
    asked = first_of_each(misses)
    assert [each.nominal_time for each in asked] == [hour(5), hour(3)]
    told = build_missed(misses, {each: f"of {each.nominal_time:%H}" for each in asked}, hour(9))
    found = [(each.sla, each.reason, each.count) for m in told if isinstance(each := m.payload, SlaPayload)]
    assert found == [(SlaLevel.LOW, "of 05", 2), (SlaLevel.HIGH, "of 03", 2)]
