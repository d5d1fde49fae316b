"""Which instance `why` explains where nobody names one, or a day or a month."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import resolve_subject
from feed_assets.entities.common import Kind
from feed_assets.explain.choosing import choose_instance
from feed_assets.log.records import ProcessInstanceStatus
from tests.context.contexts import context_of, counting_harness, put, row
from tests.instances.harness import START, LifecycleHarness, at, feed

NOW = at("01T02:10")
FAILED, DONE = ProcessInstanceStatus.FAILED, ProcessInstanceStatus.SUCCEEDED


def chosen(
    lifecycle: LifecycleHarness, name: str, text: str | None = None, as_of: datetime = NOW, kind: Kind | None = None
) -> tuple[datetime, str]:
    context = context_of(lifecycle, as_of)
    subject, remark = choose_instance(context, resolve_subject(context, name, kind=kind), text)
    return subject.instance, remark


def test_without_an_instance_it_is_the_newest_that_waits_or_has_failed(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    put(lifecycle, *(row("count", at(f"01T0{n}"), status) for n, status in enumerate((FAILED, FAILED, DONE))))
    assert chosen(lifecycle, "count") == (at("01T01"), "the newest of 2 instances that wait or have failed")
    assert chosen(lifecycle, "count", as_of=at("01T03:10"))[0] == at("01T03")  # which no tick has created
    assert chosen(lifecycle, "clicks") == (at("01T02"), "the newest of 3 instances that wait or have failed")
    for hour in range(3):
        lifecycle.land("clicks", at(f"01T0{hour}"))
        lifecycle.flag("clicks", at(f"01T0{hour}"))
    lifecycle.tick(NOW)
    assert chosen(lifecycle, "clicks") == (at("01T02"), "no instance is missing; this is the newest")


def test_a_month_or_a_day_means_the_instance_in_it_or_the_newest_troubled_one(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("stocks", "months(1)"), feed("clicks"))
    stocks = START
    assert chosen(lifecycle, "stocks", "2013-11", at("20")) == (stocks, "")
    assert chosen(lifecycle, "stocks", "2013-12", at("20"))[0] == at("01") + timedelta(days=30)
    assert chosen(lifecycle, "clicks", "2013-11-02", at("20"))[0] == at("02T23")
    assert chosen(lifecycle, "clicks", "2013-11-02-05:00", at("20")) == (at("02T05"), "")
    lifecycle.land("clicks", at("02T23"))
    lifecycle.tick(at("03"))
    assert chosen(lifecycle, "clicks", "2013-11-02", at("20"))[0] == at("02T22")


def test_what_has_no_instance_yet_is_refused(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    with pytest.raises(InstanceQueryError, match="it has no instance yet"):
        chosen(lifecycle, "count", as_of=START - timedelta(hours=1))


def test_of_days_to_come_none_is_due_yet(tmp_path: Path) -> None:
    with pytest.raises(
        InstanceQueryError, match=r"no instance in 2013-11-09 that is due yet. Wait for it, or name an ea"
    ):
        chosen(counting_harness(tmp_path), "clicks", "2013-11-09")
