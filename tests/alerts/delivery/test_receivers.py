"""Which receivers a project has, and what each wants."""

from datetime import UTC, datetime
from typing import Any

import pytest

from feed_assets.alerts.delivery.receivers import Receiver, read_receivers
from feed_assets.errors import SettingsError
from feed_assets.log.messages.outbox import MessageHead
from feed_assets.masking import mask
from feed_assets.plan.location import declare_location
from feed_assets.receivers import MessageLevel, Topic
from feed_assets.settings import load_settings
from tests.instances.harness import START, feed, process

INFO, WARNING, ERROR = MessageLevel
HOOK = "https://hooks.example.org/T0123456789AB/token"


def settings_of(**notify: Any) -> Any:
    return load_settings({"notify": notify}, environ={}, start=None)


def head(topic: Topic, level: MessageLevel = INFO, entity: tuple[str, str] = ("process", "daily")) -> MessageHead:
    return MessageHead(1, topic, level, entity, datetime(2026, 1, 1, tzinfo=UTC))


def plan_of(**more: Any) -> Any:
    location = declare_location(
        [
            feed("clicks", tags={"team": "web"}),
            feed("counts"),
            process("daily", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}, **more),
            {"kind": "cluster"} if False else _cluster(),
        ],
    )
    return location.plan


def _cluster() -> Any:
    from feed_assets.entities.cluster import Cluster

    return Cluster(name="primary", storage="file:///data")


def receivers_of(settings: Any, environ: dict[str, str] | None = None, **more: Any) -> dict[str, Receiver]:
    found = read_receivers(settings, plan_of(**more), environ or {})
    assert not found.faults
    return dict(found.usable)


def test_a_receiver_of_the_settings_chooses_by_topic_level_and_tags() -> None:
    everything, some, web, arrivals = receivers_of(
        settings_of(
            every={"url": "http://localhost:1/x"},
            some={"url": "mailto:ann@example.org", "topics": ["instance", "retry"], "levels": ["error"]},
            web={"url": "command:/bin/true", "entities": {"team": "web"}},
            arrivals={"url": "http://localhost:1/y", "topics": ["arrival"]},
        )
    ).values()
    assert {topic for topic in Topic if not everything.wants(head(topic))} == {Topic.ARRIVAL, Topic.LINEAGE}
    assert arrivals.wants(head(Topic.ARRIVAL))
    assert some.wants(head(Topic.INSTANCE, ERROR))
    assert not some.wants(head(Topic.INSTANCE, WARNING))
    assert not some.wants(head(Topic.SWEEP, ERROR))
    assert web.wants(head(Topic.SLA, entity=("feed", "clicks")))
    assert not web.wants(head(Topic.SLA, entity=("feed", "counts")))


@pytest.mark.parametrize(
    ("notification", "wanted"),
    [
        ({}, [(Topic.INSTANCE, INFO), (Topic.INSTANCE, ERROR)]),
        ({"level": "attempt", "on": ["failure"]}, [(Topic.INSTANCE, WARNING), (Topic.INSTANCE, ERROR)]),
        ({"level": "instance", "on": ["failure"]}, [(Topic.INSTANCE, ERROR)]),
        (
            {"on": ["late", "retry", "sweep", "change"]},
            [(topic, level) for topic in (Topic.SLA, Topic.RETRY, Topic.SWEEP, Topic.ENTITY) for level in MessageLevel],
        ),
    ],
)
def test_an_entity_adds_its_own_receivers(
    notification: dict[str, Any], wanted: list[tuple[Topic, MessageLevel]]
) -> None:
    receivers = receivers_of(settings_of(), notification={"to": ["ann@example.org, bob@example.org"], **notification})
    assert list(receivers) == ["email:ann@example.org", "email:bob@example.org"]
    receiver = receivers["email:ann@example.org"]
    found = [(topic, level) for topic in Topic for level in MessageLevel if receiver.wants(head(topic, level))]
    assert sorted(found) == sorted(wanted)
    assert not receiver.wants(head(Topic.INSTANCE, ERROR, ("feed", "clicks")))


def test_an_entity_can_name_a_receiver_of_the_settings() -> None:
    settings = settings_of(ops={"url": HOOK, "topics": ["sweep"]})
    receivers = receivers_of(settings, notification={"type": "webhook", "to": ["ops", "nobody"], "on": ["failure"]})
    assert list(receivers) == ["ops"]
    assert receivers["ops"].wants(head(Topic.SWEEP, entity=("feed", "clicks")))
    assert receivers["ops"].wants(head(Topic.INSTANCE, ERROR))
    assert not receivers["ops"].wants(head(Topic.INSTANCE, INFO))


def test_an_entity_that_names_a_receiver_names_each_of_its_addresses() -> None:
    settings = settings_of(ops={"url": "mailto:ann@x.org,bob@x.org", "topics": ["sweep"]})
    receivers = receivers_of(settings, notification={"type": "webhook", "to": ["ops"], "on": ["failure"]})
    assert list(receivers) == ["ops:ann@x.org", "ops:bob@x.org"]
    assert all(receiver.wants(head(Topic.INSTANCE, ERROR)) for receiver in receivers.values())


def test_secrets_of_receivers_are_in_no_text() -> None:
    settings = settings_of(
        hook={"url": HOOK, "secret": "${env:HOOK_SECRET}"},
        chat={"url": "slack://TokenAlpha/TokenBeta1/TokenGamma1"},
    )
    receivers = receivers_of(settings, {"HOOK_SECRET": "very-secret-value"})
    assert receivers["hook"].secret == "very-secret-value"
    assert receivers["hook"].shown_address == "https://hooks.example.org/…"
    assert receivers["chat"].shown_address == "slack://…"
    shown = f"{receivers} {settings!r}"
    for secret in ("T0123456789AB", "very-secret-value", "TokenBeta1"):
        assert secret not in shown
    said = mask(f"{HOOK} refuses; very-secret-value; slack://TokenAlpha/TokenBeta1/TokenGamma1")
    assert said == "https://hooks.example.org/***/token refuses; ${env:HOOK_SECRET}; slack://***"


def test_a_variable_that_is_missing_is_the_fault_of_one_way_only() -> None:
    settings = settings_of(a={"url": "https://x.org/${env:MISSING}"}, b={"url": "https://y.org/hook"})
    found = read_receivers(settings, plan_of(), {})
    assert list(found.usable) == ["b"]
    assert str(found.faults["a"]) == (
        "receiver 'notify.a.url': the environment has no MISSING. Set the variable, or write another."
    )


@pytest.mark.parametrize(
    ("notify", "reason"),
    [
        (
            {"ops": {"url": "not-an-address"}},
            "'notify.ops.url': its value is not the URL of a receiver: mailto:, http(s)://",
        ),
        ({"ops": {"url": "mailto:not-an-address"}}, "is not the URL of a receiver: mailto:, http(s)://"),
        ({"ops": {"url": "http://"}}, "is not the URL of a receiver"),
        ({"ops": {"url": "command:"}}, "is not the URL of a receiver"),
        ({"ops": {"url": 'command:/bin/echo "unbalanced'}}, "its quotes are not closed"),
        ({"ops": {"url": "http://host/höok"}}, "what is not ASCII must be percent-encoded"),
        ({"ops": {"url": "http://host/a hook"}}, "it is no URL like https://example.com/hook"),
        ({"ops": {"url": "http://x.org", "topics": ["gossip"]}}, "'gossip' is not 'eviction', 'metadata', 'instance'"),
        ({"ops": {"url": "http://x.org", "levels": ["loud"]}}, "'loud' is not 'info', 'warning' or 'error'"),
        ({"ops": {}}, "'notify.ops.url': it is missing"),
        ({"ops": {"url": "openlineage+ftp://x.org/a"}}, "it is no URL like openlineage+https://host/api/v1/lineage"),
        ({"ops": {"url": "openlineage+https://x.org"}}, "or openlineage+file:///var/lineage.ndjson"),
        ({"ops": {"url": "openlineage+file://host/a"}}, "'notify.ops.url': its value is not the URL of a receiver"),
        ({"ops": {"url": "openlineage:/var/a"}}, "openlineage+http(s)://, openlineage+file:/// or apprise's"),
        ({"ops": {"url": "openlineage:/var/a"}}, "it is no URL like openlineage+https://host/api/v1/lineage"),
        (
            {"ops": {"url": "openlineage+file:///a", "levels": ["error"]}},
            "'notify.ops': its value is not right: a receiver of OpenLineage gets begin and end of everything",
        ),
    ],
)
def test_a_receiver_that_is_none_is_refused_with_the_settings(notify: Any, reason: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings_of(**notify)
    assert reason in str(caught.value)
    assert START
