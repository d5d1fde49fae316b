"""What users of Falcon wrote in properties, arguments and windows for Oozie: translated, or named with a remedy."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from feed_assets.entities.process import Process
from feed_assets.loading.documents import NoteKind
from feed_assets.loading.entity_documents import EntityDocument, iter_entities
from feed_assets.loading.falcon.to_entities import translate_text, translate_window
from feed_assets.timing.text import TextContext, render_text

CONTEXT = TextContext(
    nominal_time=datetime(2013, 11, 3, 4, tzinfo=UTC),
    timezone=ZoneInfo("UTC"),
    user="ops",
    properties={"day": "monday"},
    inputs={"clicks": ("s3://b/1", "s3://b/2")},
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${coord:formatTime(coord:nominalTime(), 'yyyy-MM-dd')}", "2013-11-03"),
        ("${coord:nominalTime()}", "2013-11-03T04:00Z"),
        ("${nominalTime}", "2013-11-03-04-00"),
        ("${wf:conf('nominalTime')}/x", "2013-11-03-04-00/x"),
        ("${coord:formatTime(coord:dateOffset(coord:nominalTime(), -1, 'DAY'), \"yyyyMMdd\")}", "20131102"),
        ("${coord:dateTzOffset(coord:nominalTime(), 'America/New_York')}", "2013-11-03T00:00Z"),
        ("${coord:epochTime(coord:nominalTime(), 'true')}", "1383451200000"),
        ("${coord:user()} and ${wf:user()}", "ops and ops"),
        ("${coord:dataIn('clicks')}", "s3://b/1,s3://b/2"),
        ("${wf:conf('day')}", "monday"),
        ("${formatTime(instanceTime(), 'yyyy')}/${day}", "2013/monday"),
        ("nominalTime, coord:user()", "nominalTime, coord:user()"),
        ("${formatTime(instanceTime(), \"'nominalTime'\")}", "nominalTime"),
    ],
)
def test_functions_with_a_counterpart_give_what_oozie_gives(text: str, expected: str) -> None:
    translation = translate_text(text, CONTEXT.properties)
    assert translation.untranslated == ()
    assert render_text(translation.text, CONTEXT) == expected


@pytest.mark.parametrize(
    ("text", "name", "remedy"),
    [
        ("${coord:actualTime()}", "coord:actualTime", "instanceTime()"),
        ("${timeStamp}", "timeStamp", "instanceTime()"),
        ("${coord:days(1)}", "coord:days", "dateOffset(instanceTime(), -1, 'DAY')"),
        ("${coord:current(-1)}", "coord:current", "now(-1,0)"),
        ("${coord:latest(0)}", "coord:latest", "an input"),
        ("${coord:dataOut('out')}", "coord:dataOut", "the name of the output"),
        ("${coord:tableIn('clicks')}", "coord:tableIn", "falcon_<name>_table"),
        ("${wf:id()}", "wf:id", ":run_id"),
        ("${fs:exists(wf:conf('day'))}", "fs:exists", "in the workflow"),
        ("${concat(wf:id(), 'x')}", "concat", "in the workflow"),
        ("${nameNode}/x", "nameNode", "${cluster.<property>}"),
    ],
)
def test_functions_without_a_counterpart_are_named_with_a_remedy(text: str, name: str, remedy: str) -> None:
    translation = translate_text(text, {})
    assert name in translation.untranslated
    assert remedy in next(translation.remedies())


def test_a_property_of_the_process_and_an_escaped_text_stay() -> None:
    assert translate_text("${nominalTime} $${coord:user()}", {"nominalTime": "mine"}).text == (
        "${nominalTime} $${coord:user()}"
    )


def test_windows_are_translated_too() -> None:
    assert (translate_window("coord:latest(-1)").text, translate_window("coord:future(0,9)").text) == (
        "latest(-1)",
        "future(0,9)",
    )
    assert translate_window("currentWeek('MON',0,0)").text == "currentWeek('MON',0,0)"
    assert translate_window("coord:current(0)").untranslated == ("coord:current",)


def _read(start: str, text: str) -> EntityDocument:
    document = f"""
<process xmlns="uri:falcon:process:0.1" name="p">
  <clusters><cluster name="primary"><validity start="2015-01-02T00:00Z" end="2015-12-31T00:00Z"/></cluster></clusters>
  <parallel>1</parallel><order>FIFO</order><frequency>hours(1)</frequency>
  <inputs><input name="clicks" feed="clicks" start="{start}" end="now(0,0)" partition="{text}"/></inputs>
  <properties><property name="day" value="{text}"/></properties>
  <workflow engine="spark" path="/a"/>
  <spark-attributes><name>a</name><jar>/a.jar</jar><arg>{text}</arg></spark-attributes>
</process>"""
    (found,) = iter_entities("a.xml", document, None)
    return found


def test_a_document_is_translated_wherever_it_has_expressions() -> None:
    document = _read("coord:latest(-3)", "${coord:nominalTime()}")
    process = document.entity
    assert isinstance(process, Process)
    item = process.inputs["clicks"]
    assert (item.start, item.partition) == ("latest(-3)", "${instanceTime()}")
    assert (process.properties["day"], process.workflow.args) == ("${instanceTime()}", ("${instanceTime()}",))
    mapped = [note.message for note in document.notes if note.kind is NoteKind.MAPPED]
    assert "properties.day: '${coord:nominalTime()}' → '${instanceTime()}'" in mapped
    assert "inputs.clicks.start: 'coord:latest(-3)' → 'latest(-3)'" in mapped


def test_what_is_not_translated_is_named_with_its_line() -> None:
    document = _read("now(-1,0)", "${wf:run()}")
    unable = [(note.line, note.message) for note in document.notes if note.kind is NoteKind.UNABLE]
    assert [line for line, _ in unable] == [6, 5, 8]
    assert unable[0][1] == (
        "properties.day '${wf:run()}': wf:run has no counterpart: "
        "a Python workflow has it as context.run_id, a SQL workflow as :run_id"
    )
