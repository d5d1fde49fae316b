"""What the code of a process says of entities and of its run: who sees it, when it counts, and what it cannot say."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.catalog.editing import get_metadata, list_changes
from feed_assets.catalog.run_metadata import Facts, apply_reported
from feed_assets.catalog.store import MetadataStore
from feed_assets.engines.port import Context
from feed_assets.engines.run_metadata import ReportedMetadata
from feed_assets.entities.errors import EntityNotFoundError, MetadataRefusedError
from feed_assets.entities.metadata import Scope
from feed_assets.errors import Fault
from feed_assets.log.records import ProcessKey
from tests.context.contexts import context_of
from tests.instances.harness import START, LifecycleHarness, at, counted_statements, feed, process

AS_OF = at("02T00:00")
INSTANCE = "process/count/cluster/primary/instance/2013-11-01T00:00Z"
MADE = "feed/counts/cluster/primary/instance/2013-11-01T00:00Z"
COLUMNS = "number bigint"


@pytest.fixture
def lifecycle(tmp_path: Path) -> LifecycleHarness:
    return declared(tmp_path)


def declared(folder: Path, state: str | None = None) -> LifecycleHarness:
    counts = feed("counts", schema=COLUMNS, tags={"owner": "ops"})
    counting = process("count", outputs={"counts": "now(0,0)"})
    return LifecycleHarness.of(folder, feed("clicks"), counts, counting, state=state)


def run(lifecycle: LifecycleHarness, code: Callable[[Context], None], hour: int = 0, run_id: str = "run-1") -> None:
    lifecycle.code = code
    lifecycle.run("count", START + timedelta(hours=hour), AS_OF, run_id)


def said_of(lifecycle: LifecycleHarness, entity: str, scope: Scope = Scope.USER) -> dict[str, tuple[str, str, str]]:
    found = get_metadata(context_of(lifecycle, AS_OF), entity, scope).metadata
    return {each.name: (each.value, each.origin.value, each.author) for each in found}


def system_of(lifecycle: LifecycleHarness, entity: str) -> dict[str, str]:
    return {name: value for name, (value, _, _) in said_of(lifecycle, entity, Scope.SYSTEM).items()}


def say(context: Context) -> None:
    context.metadata.put("feed/clicks", {"checked": "no", "size": 12}, tags=["seen"])
    context.metadata.put("feed/clicks", {"checked": "yes"})
    context.metadata.put("feed/counts/column/number", {"unit": "clicks"})
    context.metadata.put("dashboard/otd", tags=["live"])
    context.metadata.put("feed/counts/cluster/primary/instance/2013-11-01T00:00Z", {"sampled": True})
    context.fact("rows-read", 12)
    context.fact("is.complete", value=True)


def test_what_the_code_says_is_written_when_the_instance_succeeds(tmp_path: Path, state_url: str) -> None:
    lifecycle = declared(tmp_path, state_url)
    run(lifecycle, say)
    by = ("program", "process/count")
    expected = {"checked": ("yes", *by), "size": ("12", *by), "seen": ("", *by)}
    assert said_of(lifecycle, "feed/clicks") == expected
    assert said_of(lifecycle, "feed/counts/column/number") == {"unit": ("clicks", *by)}
    assert said_of(lifecycle, "dashboard/otd") == {"live": ("", *by)}
    assert said_of(lifecycle, MADE) == {"sampled": ("true", *by)}
    change = list_changes(context_of(lifecycle, AS_OF), "feed/clicks", 1)[0]
    assert (change.origin.value, change.author) == by

    facts = {"program/rows-read": "12", "program/is.complete": "true"}
    known = system_of(lifecycle, INSTANCE)
    assert facts.items() <= known.items()
    assert (known["status"], known["attempt"], known["run"]) == ("SUCCEEDED", "1", "run-1")
    made = system_of(lifecycle, MADE)
    assert facts.items() <= made.items()
    assert (made["status"], made["rows"], made["files"], made["process"]) == ("AVAILABLE", "1", "1", "count")
    assert made["run"] == "run-1"
    run(lifecycle, say, 1, "run-2")
    run(lifecycle, say, 0, "run-3")
    assert system_of(lifecycle, "feed/counts")["newest-instance"] == "2013-11-01T01:00Z", "not what came last"


def test_what_an_attempt_said_that_failed_or_was_killed_is_not_written(lifecycle: LifecycleHarness) -> None:
    def fail(context: Context) -> None:
        say(context)
        raise ValueError("no")

    def be_killed(context: Context) -> None:
        say(context)
        raise KeyboardInterrupt

    with pytest.raises(ValueError, match="no"):
        run(lifecycle, fail)
    with pytest.raises(KeyboardInterrupt):
        run(lifecycle, be_killed, run_id="run-2")
    assert said_of(lifecycle, "feed/clicks") == {}
    assert "program/rows-read" not in system_of(lifecycle, INSTANCE)
    run(lifecycle, lambda context: context.fact("rows-read", 7), run_id="run-3")
    with lifecycle.database.read() as connection:
        facts = Facts(connection).of(ProcessKey("count", "primary", START))
    assert [(fact.attempt, fact.name, fact.value) for fact in facts] == [(3, "rows-read", "7")]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (lambda it: it.metadata.put("feed/clicks", {"a b": "x"}), r"property 'a b': a name has 1 to 50"),
        (lambda it: it.metadata.put("feed/clicks", {"a": "x" * 4097}), "4,097 characters, more than 4,096"),
        (lambda it: it.metadata.put("feed/clicks", {"a": ["x"]}), "property 'a' is no text"),
        (lambda it: it.metadata.put("feed/clicks", tags=["Two words"]), "tag 'Two words': a name has"),
        (lambda it: it.metadata.put("feed/clicks", tags="word"), "tags 'word' are no list"),
        (lambda it: it.metadata.put("feed/counts", {"owner": "me"}), "property 'owner' is declared"),
        (lambda it: it.metadata.put("feed/clicks/column", {"a": "x"}), "it is not made of kinds and names in turn"),
        (
            lambda it: [it.metadata.put("feed/clicks", {f"a{n}": "x" * 4000}) for n in range(20)],
            "its metadata would have 68,041 bytes, more than 65,536",
        ),
        (lambda it: it.fact("rows read", 1), "fact 'rows read': a name has 1 to 100"),
        (lambda it: it.fact("share", float("nan")), "nan is no text, number or truth value"),
        (lambda it: it.fact("text", "two\nlines"), "is not one line"),
    ],
)
def test_what_cannot_be_kept_is_refused_at_the_call_and_nothing_is_published(
    lifecycle: LifecycleHarness, code: Callable[[Context], None], reason: str
) -> None:
    with pytest.raises(MetadataRefusedError, match=reason) as refused:
        run(lifecycle, code)
    assert refused.value.fault is Fault.ASKED  # to a caller of a batch, 409 says that it has ended
    assert lifecycle.content("counts", START) is None


@pytest.mark.parametrize("entity", ["feed/clocks", "process/counting", "feed/counts/column/nummer", "cluster/second"])
def test_what_is_not_declared_is_refused_at_the_call(lifecycle: LifecycleHarness, entity: str) -> None:
    with pytest.raises(EntityNotFoundError, match=entity.rpartition("/")[2]):
        run(lifecycle, lambda context: context.metadata.put(entity, {"a": "x"}))


def test_a_file_that_says_a_key_meanwhile_keeps_it_and_what_is_deleted_meanwhile_stays_deleted(
    lifecycle: LifecycleHarness,
) -> None:
    def deploy(context: Context) -> None:
        context.metadata.put("feed/counts", {"tier": "mine", "other": "mine"})
        context.metadata.put("feed/clicks", {"tier": "mine"})
        counts = feed("counts", schema=COLUMNS, metadata={"properties": {"tier": "gold"}})
        plan = lifecycle.plan
        lifecycle.declare(counts, process("count", outputs={"counts": "now(0,0)"}))
        lifecycle.plan = plan

    run(lifecycle, deploy)
    found = said_of(lifecycle, "feed/counts")
    assert {name: each[1] for name, each in found.items()} == {"tier": "definition", "other": "program"}
    assert found["tier"][0] == "gold"
    assert list_changes(context_of(lifecycle, AS_OF), "feed/clicks", 9)[0].additions == {}


def test_what_a_kept_step_said_of_something_that_is_gone_keeps_no_instance_from_success(
    lifecycle: LifecycleHarness,
) -> None:
    run(lifecycle, lambda _: None)
    reported = ReportedMetadata.of({"facts": {}, "metadata": {"feed/gone": {"properties": {"a": "x"}, "tags": []}}})
    with lifecycle.database.begin() as connection:
        apply_reported(connection, lifecycle.plan, ProcessKey("count", "primary", START), reported, AS_OF)
        assert MetadataStore(connection).find("feed/gone") is None


def test_a_run_that_says_nothing_asks_nothing_about_metadata(lifecycle: LifecycleHarness) -> None:
    with counted_statements() as statements:
        run(lifecycle, lambda _: None)
    asked = [each for each in statements if "fa_metadata" in each or "fa_facts" in each or "fa_search" in each]
    assert [each.split(" AS")[0] for each in asked] == ["SELECT max(fa_metadata_changes.seq)"]  # for its lineage
