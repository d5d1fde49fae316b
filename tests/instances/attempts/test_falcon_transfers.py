"""A feed of Falcon that is imported from a database and exported to one: its documents and its datasource's run as they
are.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from feed_assets.definitions.falcon.importing import ImportMapping, import_documents
from feed_assets.definitions.folder import open_folder
from feed_assets.loading.bundles import gather_files, parse_file
from feed_assets.loading.documents import NoteKind
from feed_assets.loading.entity_files import EntityFile, read_entity_files
from feed_assets.log.records import ProcessInstanceStatus
from tests.instances.harness import START, LifecycleHarness, at
from tests.shops import PASSWORD, Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]

_DATASOURCE = """\
<datasource colo="default" description="shop" type="{type}" name="shop" xmlns="uri:falcon:datasource:0.1">
  <interfaces>
    <interface type="readonly" endpoint="{url}"/>
    <interface type="write" endpoint="{url}"/>
    <credential type="password-file"><userName>shop</userName><passwordFile>password</passwordFile></credential>
  </interfaces>
  <driver><clazz>{driver}</clazz><jar>{jar}</jar></driver>
</datasource>"""
_FEED = """\
<feed name="customers" xmlns="uri:falcon:feed:0.1">
  <frequency>days(1)</frequency>
  <timezone>UTC</timezone>
  <clusters>
    <cluster name="primary" type="source">
      <validity start="2013-11-01T00:00Z" end="2099-12-31T00:00Z"/>
      <retention limit="days(90)" action="delete"/>
      <import>
        <source name="shop" tableName="customers">
          <extract type="full"><mergepolicy>snapshot</mergepolicy></extract>
          <fields><includes><field>id</field><field>name</field></includes></fields>
        </source>
        <arguments><argument name="--split-by" value="id"/><argument name="--num-mappers" value="1"/></arguments>
      </import>
      <export>
        <target name="shop" tableName="copies"><load type="allowinsert"/></target>
        <arguments><argument name="--num-mappers" value="2"/>{key}</arguments>
      </export>
    </cluster>
  </clusters>
  <locations><location type="data" path="/customers/${{YEAR}}-${{MONTH}}-${{DAY}}"/></locations>
  <ACL owner="ambari-qa" group="users" permission="0755"/>
  <schema location="/none" provider="none"/>
</feed>"""


def test_a_feed_of_falcon_is_read_from_a_database_and_written_to_it(
    shop: Shop, spark: SparkSession, tmp_path: Path
) -> None:
    key = "" if shop.type == "postgres" else '<argument name="--Update-Key" value="id"/>'
    shop.run(
        "CREATE TABLE customers (id int PRIMARY KEY, name varchar(20), notes varchar(20))",
        "CREATE TABLE copies (id int PRIMARY KEY, name varchar(20))",
        "INSERT INTO customers VALUES (1, 'Ada', 'x'), (2, 'Bob', 'y'), (3, NULL, 'z')",
        f"INSERT INTO copies VALUES (3, {repr('old') if key else 'NULL'}), (4, 'kept')",
    )
    (tmp_path / "password").write_text(PASSWORD)
    documents = (
        _DATASOURCE.format(type=shop.type, url=shop.url.replace("&", "&amp;"), driver=shop.driver, jar=shop.jar),
        _FEED.format(key=key),
    )
    files = [EntityFile(name=f"{n}.xml", content=text.encode()) for n, text in enumerate(documents)]
    report = import_documents(files, open_folder(str(tmp_path / "entities")), ImportMapping())
    told = [note.message for file in report.files for note in file.notes if note.kind is NoteKind.MAPPED]
    assert [message.partition(",")[0] for message in told] == ([] if key else ["load allowinsert → insert"])

    written = (parse_file(each, None) for each in read_entity_files(tmp_path / "entities"))
    bundle = gather_files(written, "").bundle
    lifecycle = LifecycleHarness.of(tmp_path)
    lifecycle.declare(*bundle.entities)
    for hour, name in ((12, "customers.import"), (13, "customers.export")):
        moment = at(f"01T{hour}")
        (request,) = lifecycle.tick(moment)
        assert request.process.process == name
        runner = replace(lifecycle.runner(moment, name), engines=None, session=lambda: spark)
        runner.run(request.process, START, lambda _: None)
        assert lifecycle.statuses(name)[START] is ProcessInstanceStatus.SUCCEEDED
    rows = [(int(number), name) for number, name in shop.run("SELECT id, name FROM copies ORDER BY id")]
    null = None if shop.type == "postgres" else "NULL"  # as each client tells it
    assert rows == [(1, "Ada"), (2, "Bob"), (3, null), (4, "kept")]
