"""Why an instance, or a sweep of them, cannot take its next step."""

from collections.abc import Mapping
from datetime import datetime

from feed_assets.entities.flow_names import describe_process
from feed_assets.errors import FeedAssetsError, render_some


class LifecycleError(FeedAssetsError):
    """An instance cannot take its next step."""


class InputsMissingError(LifecycleError):
    """Mandatory input instances are missing; `missing` has their URLs by input (none where unresolved)."""

    def __init__(self, *, process: str, nominal_time: datetime, missing: Mapping[str, tuple[str, ...]]) -> None:
        self.process = process
        self.nominal_time = nominal_time
        self.missing = missing
        parts = [
            f"{name} lacks {render_some(urls)}" if urls else f"{name} cannot be resolved yet"
            for name, urls in missing.items()
        ]
        super().__init__(
            f"{describe_process(process)} at {nominal_time:%Y-%m-%dT%H:%MZ} has not all its mandatory inputs: "
            f"{'; '.join(parts)}. Land the data (with its availability flag, where the feed has one) "
            "and run the instance again."
        )


class OutputOutsideValidityError(LifecycleError):
    """A process instance would write outside the validity of the feed."""

    def __init__(self, *, process: str, output: str, feed: str, nominal_time: datetime) -> None:
        self.process = process
        self.output = output
        self.feed = feed
        super().__init__(
            f"{describe_process(process)} at {nominal_time:%Y-%m-%dT%H:%MZ}: output {output!r} is outside the validity "
            f"of feed {feed!r}. Widen the feed's validity, or shorten the process's."
        )


class ReleaseError(LifecycleError):
    """The releases of a process cannot go on as asked."""

    def __init__(self, *, process: str, cluster: str, reason: str) -> None:
        self.process = process
        self.cluster = cluster
        self.reason = reason
        super().__init__(
            f"{describe_process(process)} on {cluster!r}: no new release: {reason}. "
            "Look at what is declared with `feed-assets entity definition`."
        )


class SweepRefusedError(LifecycleError):
    """What is asked of a sweep cannot be done as things stand; nothing was moved."""

    def __init__(self, *, sweep: str, reason: str, next_step: str) -> None:
        self.sweep = sweep
        self.reason = reason
        super().__init__(f"sweep {sweep}: {reason}. {next_step}")


class ReplicationError(LifecycleError):
    """An instance cannot be copied; what stands at the target was not touched."""


class SourceNotAvailableError(ReplicationError):
    """There is no whole instance at the source."""

    def __init__(self, *, url: str, availability: str, flag: str | None) -> None:
        self.url = url
        self.availability = availability
        wanted = f" with its availability flag {flag!r}" if flag else ""
        super().__init__(
            f"{url}: there is no instance to be copied: it is {availability}. Copy it when it is there{wanted}; if it "
            "should be, look whether the storage is mounted."
        )


class SourceEmptiedError(ReplicationError):
    """A source without files would empty a target, and nothing proves that it is meant to be empty."""

    def __init__(self, *, url: str, target: str, files: int) -> None:
        self.url = url
        self.target = target
        super().__init__(
            f"{url}: it has no files, no availability flag and no manifest, and {target} has {files:,} files that "
            "would go. Look whether the storage is mounted; if it is meant to be empty, allow the emptying."
        )


class SourceChangingError(ReplicationError):
    """A source that changed during every try to copy it."""

    def __init__(self, *, url: str, tries: int, reason: str) -> None:
        self.url = url
        super().__init__(
            f"{url}: it changed while it was copied, {tries} times: {reason}. Copy it when nobody writes to it; what "
            "was copied of files that stay is used again."
        )


class SourceDamagedError(ReplicationError):
    """A file of the source is not what the manifest of its publication says."""

    def __init__(self, *, url: str, file: str) -> None:
        self.url = url
        self.file = file
        super().__init__(
            f"{url}: {file!r} is not what its manifest says, and was not written since by its time: it is damaged, or "
            "was replaced by hand. Produce the instance again, or repair it from a replica."
        )


class CopyDamagedError(ReplicationError):
    """What was read back at the target is not what had been read at the source."""

    def __init__(self, *, url: str, files: tuple[str, ...], tries: int) -> None:
        self.url = url
        self.files = files
        super().__init__(
            f"{url}: the copies of {render_some(files)} were not what had been read, {tries} times. "
            "Check the storage of the target for faults, and repeat."
        )


class TargetDamagedError(ReplicationError):
    """Files that stand at the target and shall stay are not what its manifest says."""

    def __init__(self, *, url: str, files: tuple[str, ...]) -> None:
        self.url = url
        self.files = files
        super().__init__(
            f"{url}: {render_some(files)} should stay as they are, and are not what the manifest says; this source "
            "does not have them. Copy them from where they came, or copy without keeping what the source does not have."
        )


class FilesFailedError(ReplicationError):
    """Files of a source could not be read; the others are copied and wait for the next try, nothing is published."""

    def __init__(self, *, url: str, failures: Mapping[str, str]) -> None:
        self.url = url
        self.failures = failures
        named = tuple(f"{file}: {reason}" for file, reason in failures.items())
        super().__init__(
            f"{url}: {len(failures):,} files could not be copied ({render_some(named)}), so nothing was published. "
            "Repair them at the source and repeat the copy; the others are not copied again."
        )


class ReplicaLostError(ReplicationError):
    """What stood at the target when a copy began is not there any more."""

    def __init__(self, *, url: str) -> None:
        self.url = url
        super().__init__(f"{url} was there and is gone. Repeat the copy.")


class CopyIncompleteError(ReplicationError):
    """Parts of a copy have not been done."""

    def __init__(self, *, url: str, files: tuple[str, ...]) -> None:
        self.url = url
        self.files = files
        super().__init__(
            f"{url}: nobody has copied {render_some(files)}. Repeat the copy; what was copied is used again."
        )


class CopyForbiddenError(ReplicationError):
    """What a worker process raises of a copy that the process it works for has forbidden, which knows why."""

    def __init__(self) -> None:
        super().__init__("The process that had this copy made has forbidden it.")


class CopyWorkerLostError(ReplicationError):
    """A process that made copies has ended before they were done."""

    def __init__(self, *, code: int) -> None:
        self.code = code
        why = f"was ended by signal {-code}" if code < 0 else f"has ended with {code}"
        super().__init__(
            f"A process that made copies {why}. What it had not finished was not published. See its last words on "
            "standard error, and whether the machine had run out of memory; then repeat the copy, which goes on with "
            "what was copied."
        )


class MirrorEmptiedError(ReplicationError):
    """The source of a mirror has no files, its target has, and nobody has said that this is meant."""

    def __init__(self, *, url: str, target: str, files: int) -> None:
        self.url = url
        self.target = target
        self.files = files
        super().__init__(
            f"{url}: there are no files in it, and {target}, its mirror, has {files:,}. Nothing was changed. Look "
            "whether the storage is mounted, and whether include names something; if it is meant to be empty, write "
            "allow_emptying: true."
        )


class RemovalLimitError(ReplicationError):
    """A run of a mirror would remove more files than it may without asking."""

    def __init__(self, *, target: str, removed: int, standing: int, limit: str, approval: str) -> None:
        self.target = target
        self.removed = removed
        super().__init__(
            f"{target}: {removed:,} of the {standing:,} files there would be removed, {limit}. Nothing was changed. "
            "Look at what would go with `feed-assets mirror plan`. If it is meant, let this instance do it with "
            f"`feed-assets instance rerun … --property {approval}`, or raise the limits of the mirror."
        )


class TargetRefusedError(ReplicationError):
    """What stands at the target of a mirror cannot be replaced as a whole."""

    def __init__(self, *, url: str, reason: str) -> None:
        self.url = url
        super().__init__(f"{url} cannot be replaced: {reason}. Name a plain directory, or one that does not exist yet.")


class MirrorFailedError(ReplicationError):
    """Some of several directories could not be mirrored."""

    def __init__(self, *, failures: Mapping[str, Exception], total: int) -> None:
        self.failures = failures
        others = f" The other {total - len(failures)} are mirrored." if len(failures) < total else ""
        first = next(iter(failures.values()))
        super().__init__(
            f"{len(failures)} of {total} directories could not be mirrored ({', '.join(failures)}): {first}{others}"
        )
