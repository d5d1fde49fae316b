"""Rules for the inboxes of feeds."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from feed_assets.entities.feed import Feed, Inbox
from feed_assets.entities.locations.overlaps import FixedPlace
from feed_assets.timing.errors import TemplateError
from feed_assets.timing.templates import parse_path_template
from feed_assets.validation.rules_feed import find_only_writer
from feed_assets.validation.rules_paths import REFUSED_SEGMENTS
from feed_assets.validation.scope import Complaint, Scope, complain, with_cluster

_DIRECTORY = ("inbox", "directory")


def check_inbox(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """An inbox is a directory outside of all instances, from which files go into a feed that nobody else writes."""
    inbox = feed.inbox
    if inbox is None or feed.is_expected or not feed.has_data:
        return
    if feed.watch is not None:
        remedy = "Remove watch: what is taken from the inbox is known."
        yield Complaint(path=("watch",), message="both watch and inbox are written", remedy=remedy)
    if "/" in inbox.pattern:
        message = f"pattern {inbox.pattern!r} has a slash, but only files in the directory itself are taken"
        yield Complaint(path=("inbox", "pattern"), message=message, remedy="Write a pattern of names, such as *.json.")
    if tables := [name for name in feed.clusters if feed.table_on(name) is not None]:
        message = f"an inbox cannot fill a table, such as that on {tables[0]}"
        remedy = "Write locations, and let a process load the table."
        yield Complaint(path=("inbox",), message=message, remedy=remedy)
    if (writer := find_only_writer(scope, feed)) is not None:
        yield Complaint(path=("inbox",), message=f"inbox has no meaning: {writer}", remedy="Remove it.")
    for name in feed.clusters:
        complaint = _check_directory(scope, feed, inbox, name)
        if complaint is not None:
            yield complaint
            return


def _check_directory(scope: Scope, feed: Feed, inbox: Inbox, cluster: str) -> Complaint | None:
    text, found = inbox.directory, scope.bundle.find_cluster(cluster)
    if not (text.startswith("/") and text.strip("/")) and "://" not in text:
        return Complaint(
            path=_DIRECTORY,
            message=f"directory {text!r} is no directory below a storage",
            remedy="Write one such as /in/orders.",
        )
    if refused := REFUSED_SEGMENTS.intersection(text.split("/")):
        return Complaint(
            path=_DIRECTORY,
            message=f"directory {text!r} has the segment {min(refused)!r}",
            remedy="Write a path without it.",
        )
    try:
        template = parse_path_template(text) if found is None else with_cluster(parse_path_template(text), found)
    except TemplateError as exc:
        return complain(_DIRECTORY, exc)
    if not template.is_static:
        return Complaint(
            path=_DIRECTORY,
            message=f"directory {text!r} has a time in it, but an inbox is one directory",
            remedy="Write one such as /in/orders.",
        )
    if (overlap := scope.overlaps.find(feed.name, cluster, FixedPlace.INBOX)) is not None:
        return Complaint(
            path=_DIRECTORY,
            message=f"the inbox on {cluster} overlaps other data: {overlap}",
            remedy="Use another directory.",
        )
    for other, theirs in scope.inboxes[text.rstrip("/")]:
        if other.name < feed.name and cluster in other.clusters and _share_files(inbox, theirs):
            where = scope.where(other.key, _DIRECTORY)
            message = f"feed {other.name!r}{where} takes the same files from {text} on {cluster}"
            return Complaint(path=_DIRECTORY, message=message, remedy="Write patterns that no file fits both.")
    return None


def _share_files(one: Inbox, other: Inbox) -> bool:
    """Return whether one of two patterns is seen to fit what the other one does."""
    return fnmatchcase(one.pattern, other.pattern) or fnmatchcase(other.pattern, one.pattern)
