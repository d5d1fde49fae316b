"""Digest the parts of a feed's retention that decide what is removed: a plan is valid while the digest is the same."""

import hashlib
import json

from feed_assets.plan.records import FeedRecord, RetentionRecord

_VERSION = 1


def digest_policy(record: FeedRecord) -> str:
    """Return `sha256:<hex>` over the rules of eligibility and the locations; "" for a feed without retention.

    The cadence, the lifetime of the trash and the limits of a sweep are not included.
    """
    policy = record.retention
    return "" if policy is None else f"sha256:{hashlib.sha256(_render(record, policy).encode()).hexdigest()}"


def _render(record: FeedRecord, policy: RetentionRecord) -> str:
    sequence = record.sequence
    archive = None if policy.archive is None else [policy.archive[0].url, policy.archive[1].text]
    return json.dumps(
        {
            "version": _VERSION,
            "sequence": [sequence.start.isoformat(), str(sequence.frequency), sequence.timezone.key],
            "paths": record.template.zone.key,
            "limit": None if policy.limit is None else str(policy.limit),
            "action": policy.action.value,
            "keep_newest": policy.keep_newest,
            "max_instances": policy.max_instances,
            "max_bytes": policy.max_bytes,
            "until_read_by": policy.until_read_by,
            "until_replicated_to": policy.until_replicated_to,
            "stops_at": None if policy.stops_at is None else policy.stops_at.isoformat(),
            "archive": archive,
            "partition": None if policy.partition is None else policy.partition.text,
            "locations": [
                [each.kind.value, each.store.url, each.template.text, each.obstacle] for each in policy.locations
            ],
        }
    )
