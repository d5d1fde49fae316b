"""The receivers of a project: those of its settings, and those that its entities name in `notification`."""

import hashlib
import os
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from feed_assets.alerts.delivery.errors import ReceiverError
from feed_assets.alerts.delivery.store import FORGOTTEN_AFTER, ReceiverState, ReceiverStates
from feed_assets.entities.common import Level, Notification, Occasion
from feed_assets.errors import SettingsError
from feed_assets.issues import EntityKey
from feed_assets.log.messages.outbox import MessageHead, Outbox
from feed_assets.log.messages.payloads import InstanceOperation, InstancePayload
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.masking import remember_credentials, remember_unnamed
from feed_assets.plan.facts import EntityFacts
from feed_assets.plan.records import Plan
from feed_assets.receivers import (
    OPENLINEAGE,
    Channel,
    MailSettings,
    MessageLevel,
    ReceiverSettings,
    Topic,
    describe_receiver,
    find_fault,
    split_addresses,
)
from feed_assets.settings import Settings, resolve_references
from feed_assets.sql.database import Database

ANY_VALUE = "*"
_ONLY_NAMED = frozenset({Topic.ARRIVAL, Topic.LINEAGE})  # nobody else gets them

_TOKEN = re.compile(r"(?=[^/?&=]*\d)[^/?&=]{12,}")  # T0123ABCDEFG of https://hooks.example.com/T0123ABCDEFG
_SHORTEST_SECRET = 8
_SEEN_EVERY = FORGOTTEN_AFTER / 24
_TOPICS = {
    Occasion.LATE: Topic.SLA,
    Occasion.RETRY: Topic.RETRY,
    Occasion.SWEEP: Topic.SWEEP,
    Occasion.CHANGE: Topic.ENTITY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """Who gets messages, on which channel, and which ones.

    Each address of a setting is a receiver of its own, so that nobody waits for another; `setting` is its name.
    The messages are those of `topics` (without any, all but arrivals), `levels` and `subjects`
    (None is all of them), unless it `is_chosen_only`; and those that the entities in `chosen` want it to get. One of
    OpenLineage gets the lineage alone, in the words of the `plan`.
    """

    name: str
    channel: Channel
    address: str = field(repr=False)
    setting: str | None = None
    topics: frozenset[Topic] = frozenset()
    levels: frozenset[MessageLevel] = frozenset()
    subjects: Set[EntityKey] | None = None
    is_chosen_only: bool = False
    chosen: Mapping[EntityKey, Notification] = field(default_factory=dict)
    secret: str | None = field(default=None, repr=False)
    mail: MailSettings = field(default_factory=MailSettings, repr=False)
    webserver: str | None = None
    namespace: str | None = None
    plan: Plan | None = field(default=None, repr=False, compare=False)

    @property
    def shown_address(self) -> str:
        """The address without what may be a secret."""
        return describe_receiver(self.channel, self.address)

    def wants(self, head: MessageHead) -> bool:
        """Return whether it may want a message, by what can be told without its content."""
        known = self.chosen.get(head.subject) if self.channel is not Channel.OPENLINEAGE else None
        return self._covers(head) or (known is not None and _chooses(known, head.topic, head.level))

    def accepts(self, message: OutboxMessage) -> bool:
        """Return whether it wants a message of which `wants` is true: an entity tells nobody of each evicted path."""
        payload = message.payload
        is_eviction = isinstance(payload, InstancePayload) and payload.operation is InstanceOperation.DELETE
        return not is_eviction or not self.is_chosen_only

    def _covers(self, head: MessageHead) -> bool:
        return (
            not self.is_chosen_only
            and (head.topic in self.topics if self.topics else head.topic not in _ONLY_NAMED)
            and (not self.levels or head.level in self.levels)
            and (self.subjects is None or head.subject in self.subjects)
        )


def _chooses(record: Notification, topic: Topic, level: MessageLevel | None) -> bool:
    if topic is not Topic.INSTANCE:
        return any(_TOPICS.get(occasion) is topic for occasion in record.on)
    if level is MessageLevel.INFO:
        return Occasion.SUCCESS in record.on
    return Occasion.FAILURE in record.on and (level is MessageLevel.ERROR or record.level is Level.ATTEMPT)


class Receivers(NamedTuple):
    """The receivers by name, and why some of the settings cannot be used."""

    usable: Mapping[str, Receiver]
    faults: Mapping[str, ReceiverError]


def read_receivers(settings: Settings, plan: Plan, environ: Mapping[str, str] | None = None) -> Receivers:
    """Return the receivers; their secrets are hidden from now on.

    An entity's own receivers have names such as `email:ann@example.org`. One that an entity names and the settings do
    not have is left out: validation refuses it. A receiver whose variable the environment lacks has a fault.
    """
    environ = os.environ if environ is None else environ
    receivers: dict[str, Receiver] = {}
    faults: dict[str, ReceiverError] = {}
    mail = settings.mail
    try:
        mail = mail.model_copy(update={"password": _resolve("mail.password", mail.password, environ)})
    except ReceiverError as exc:
        faults["mail"] = exc
    remember_credentials(mail.model_dump(mode="json"), environ)
    for name, found in settings.notify.items():
        try:
            receivers |= {receiver.name: receiver for receiver in _read_setting(name, found, plan, mail, environ)}
        except ReceiverError as exc:
            faults[name] = exc
    for key, facts in sorted(plan.facts.items()):
        if facts.notification is not None:
            for receiver in _receivers_of(key, facts.notification, receivers, mail):
                receivers[receiver.name] = receiver
    more: dict[str, Any] = {"webserver": settings.webserver, "namespace": settings.namespace, "plan": plan}
    return Receivers({name: replace(each, **more) for name, each in receivers.items()}, faults)


def _read_setting(
    name: str, found: ReceiverSettings, plan: Plan, mail: MailSettings, environ: Mapping[str, str]
) -> list[Receiver]:
    address = _resolve(f"notify.{name}.url", found.url, environ) or ""
    fault = find_fault(found.channel, address)
    if fault is not None:
        raise ReceiverError(name=name, reason=fault, next_step=f"Correct notify.{name}.url in the settings.")
    secret = _resolve(f"notify.{name}.secret", found.secret, environ)
    _hide(found.channel, address, secret)
    addresses = split_addresses(address) if found.channel is Channel.EMAIL else (address,)
    receiver = Receiver(
        name=name,
        channel=found.channel,
        address=addresses[0],
        setting=name,
        topics=frozenset(found.topics or ({Topic.LINEAGE} if found.channel is Channel.OPENLINEAGE else ())),
        levels=frozenset(found.levels),
        subjects=_with_tags(plan.facts, found.entities) if found.entities else None,
        secret=secret,
        mail=mail,
    )
    return (
        [receiver]
        if len(addresses) == 1
        else [replace(receiver, name=f"{name}:{each}", address=each) for each in addresses]
    )


def _receivers_of(
    key: EntityKey, record: Notification, known: Mapping[str, Receiver], mail: MailSettings
) -> list[Receiver]:
    """Return the receivers that an entity names, each with what it was before."""
    found = []
    is_mail = record.type is Channel.EMAIL
    texts = [part for text in record.to for part in (split_addresses(text) if is_mail else (text,))]
    for text in texts:
        receivers = [receiver for receiver in known.values() if receiver.setting == text]
        if not receivers:
            if find_fault(record.type, text) is not None:
                continue
            _hide(record.type, text, None)
            name = _name_of(record.type, text)
            new = Receiver(name=name, channel=record.type, address=text, is_chosen_only=True, mail=mail)
            receivers = [known.get(name, new)]
        found += [replace(receiver, chosen={**receiver.chosen, key: record}) for receiver in receivers]
    return found


def _name_of(channel: Channel, text: str) -> str:
    if channel is Channel.EMAIL:
        return f"{channel.value}:{text}"
    shown = describe_receiver(channel, text).partition("://")
    host = shown[0] if channel is Channel.CHAT else shown[2].removesuffix("/…")
    return f"{channel.value}:{host}#{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _with_tags(facts: Mapping[EntityKey, EntityFacts], wanted: Mapping[str, str]) -> frozenset[EntityKey]:
    """Return the entities that have all tags."""

    def has_tags(found: EntityFacts) -> bool:
        tags = dict(found.tags)
        return all(name in tags and value in (tags[name], ANY_VALUE) for name, value in wanted.items())

    return frozenset(key for key, found in facts.items() if has_tags(found))


def _resolve(setting: str, text: str | None, environ: Mapping[str, str]) -> str | None:
    try:
        return resolve_references(setting, text, environ)
    except SettingsError as exc:
        raise ReceiverError(name=setting, reason=exc.reason, next_step=exc.next_step) from exc


def _hide(channel: Channel, address: str, secret: str | None) -> None:
    """Hide what may be a secret: of a chat all after the scheme, of a URL long parts with digits."""
    remember_credentials([address])
    if secret is not None:
        remember_unnamed(secret)
    rest = address.partition("://")[2]
    if channel is Channel.CHAT:
        hidden = [rest, *(part for part in re.split(r"[/?@:]", rest) if _may_be_token(part))]
    else:
        is_web = channel is Channel.WEBHOOK or address.startswith(f"{OPENLINEAGE}http")
        hidden = _TOKEN.findall(rest.partition("/")[2]) if is_web else []
    for each in hidden:
        remember_unnamed(each)


def _may_be_token(part: str) -> bool:
    return len(part) >= _SHORTEST_SECRET and "." not in part  # no host


def apply_receivers(database: Database, receivers: Mapping[str, Receiver], now: datetime) -> None:
    """Let new receivers begin with the next message, and forget those that nobody has declared for a day.

    A declared receiver is written at most once an hour.
    """
    with database.read() as connection:
        states = ReceiverStates(connection).all()
    gone = [name for name, state in states.items() if state.seen_at + FORGOTTEN_AFTER < now]
    new = [name for name in receivers if name not in states or name in gone]
    seen = [name for name in receivers if name in states and states[name].seen_at + _SEEN_EVERY <= now]
    if not gone and not new and not seen:
        return
    with database.begin() as connection:
        store, last = ReceiverStates(connection), Outbox(connection).last_seq()
        store.remove(gone)
        store.add(ReceiverState(name=name, cursor=last, seen_at=now) for name in new)
        store.note_seen(set(seen) - set(gone), now)
