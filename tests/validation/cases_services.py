"""The rules about services of clusters, about engines, and about lifecycles, imports and exports; see `cases`."""

from tests.entities.samples import REMOVED
from tests.validation.cases import BACKUP, DAILY, PRIMARY, Case

LIMIT = "retention.policy.agebaseddelete.limit"
INTERFACES = {
    "readonly": {"endpoint": "hftp://host:50010", "version": "3.4"},
    "write": {"endpoint": "file:///data", "version": "3.4"},
    "execute": {"endpoint": "host:8021", "version": "3.4"},
    "workflow": {"endpoint": "localoozie", "version": "5"},
    "messaging": {"endpoint": "tcp://host:61616?daemon=true", "version": "5"},
    "registry": {"endpoint": "thrift://one:9083,two:9083", "version": "2.3"},
}
BY_INTERFACES = {
    "name": "primary",
    "colo": "nyc",
    "interfaces": INTERFACES,
    "locations": {"staging": "/apps/staging"},
}
EXTERNAL = {"engine": "spark-submit", "path": "jobs/daily.py"}
IMPORT = {"source": {"name": "shop", "table": "orders", "extract": {"type": "full", "merge_policy": "snapshot"}}}
EXPORT = {"target": {"name": "shop", "table": "orders", "load": {"type": "allowinsert"}}}


def _cluster(**interfaces: str) -> dict[str, object]:
    """A cluster by its interfaces, some with other endpoints."""
    changed = {name: {"endpoint": endpoint, "version": "1"} for name, endpoint in interfaces.items()}
    return {**BY_INTERFACES, "interfaces": {**INTERFACES, **changed}}


def _staged(**stage: object) -> dict[str, object]:
    return {"retention_stage": {"properties": {LIMIT: "days(20)"}, **stage}}


SERVICE_CASES = (
    Case(
        code="interface-address",
        name="scheme",
        good={"cluster primary": BY_INTERFACES},
        bad={"cluster primary": _cluster(readonly="host:50070")},
        text="cluster 'primary': the readonly interface has no valid scheme: 'host:50070'. "
        "Write an address with its scheme, for example hdfs://host:8020.",
    ),
    Case(
        code="interface-address",
        name="metastores",
        good={"cluster primary/catalog": "thrift://one:9083, two:9083,thrift://three"},
        bad={"cluster primary/catalog": "thrift://one:9083,two 9083"},
        text="cluster 'primary': 'two 9083' is not the address of a metastore. "
        "Write thrift://host:9083; separate several metastores by commas.",
    ),
    Case(
        code="spark-address",
        name="master",
        good={"cluster primary": _cluster(spark="YARN-Cluster")},
        bad={"cluster primary": _cluster(spark="yarn-custer")},
        text="cluster 'primary': 'yarn-custer' is not a master of Spark. "
        "Write local[2], yarn, spark://host:7077 or k8s://https://host:6443.",
    ),
    Case(
        code="spark-address",
        name="remote",
        good={"cluster primary/spark": {"remote": "sc://host:15002/;token=abc"}},
        bad={"cluster primary/spark": {"remote": "sc://"}},
        text="cluster 'primary': 'sc://' is not a Spark Connect address. Write sc://host:15002.",
    ),
    Case(
        code="spark-address",
        name="connect",
        good={"cluster primary/spark": {"connect": "local[2]"}, f"{DAILY}/workflow": EXTERNAL},
        bad={"cluster primary/spark": {"connect": "local[two]"}},
        text="cluster 'primary': 'local[two]' is not a master of Spark. Write local or local[2].",
    ),
    Case(
        code="storage-not-here",
        good={"cluster primary/storage": "s3://bucket/data"},
        bad={"cluster primary/storage": "hdfs://host:8020"},
        text="cluster 'primary': hdfs storage is not supported: hdfs://host:8020 can be neither read nor "
        "written. Use a storage of one of abfs, abfss, az, file, gcs, gs, memory, s3, s3a, sftp.",
    ),
    Case(
        code="cluster-staging",
        good={"cluster primary": BY_INTERFACES},
        bad={"cluster primary": {**BY_INTERFACES, "locations": {"working": "/apps/working"}}},
        text="cluster 'primary': the mandatory location staging is missing. Write locations: {staging: /apps/staging}.",
    ),
    Case(
        code="workflow-master",
        name="interfaces",
        good={"cluster primary": _cluster(spark="local"), f"{DAILY}/workflow": EXTERNAL},
        bad={"cluster primary": BY_INTERFACES, f"{DAILY}/workflow": EXTERNAL},
        text="process 'daily': there is no Spark master for workflow: neither it nor cluster "
        "'primary' has one. Write master at the workflow, or spark.master (or the interface spark) at the cluster.",
    ),
    Case(
        code="workflow-master",
        name="remote",
        good={
            "cluster primary/spark": {"remote": "sc://host"},
            f"{DAILY}/workflow": {**EXTERNAL, "master": "spark://host:7077"},
        },
        bad={"cluster primary/spark": {"remote": "sc://host"}, f"{DAILY}/workflow": EXTERNAL},
        text="process 'daily': there is no Spark master for workflow: neither it nor cluster "
        "'primary' has one. Write master at the workflow, or spark.master (or the interface spark) at the cluster.",
    ),
    Case(
        code="workflow-master",
        name="form",
        good={f"{DAILY}/workflow": {**EXTERNAL, "master": "k8s://https://host:6443"}},
        bad={f"{DAILY}/workflow": {**EXTERNAL, "master": "yarn-client"}},
        text="process 'daily': workflow.master 'yarn-client' is not a master of Spark. "
        "Write local[2], yarn, spark://host:7077 or k8s://https://host:6443.",
    ),
    Case(
        code="engine-not-here",
        name="engine",
        good={f"{DAILY}/workflow": {"engine": "sql", "path": "there.sql"}},
        bad={f"{DAILY}/workflow": {"engine": "pig", "path": "/apps/daily.pig"}},
        text="process 'daily': workflow: pig does not run here: the process can be declared and checked, but not "
        "scheduled. Replace the workflow with one for python, sql or spark-submit.",
    ),
    Case(
        code="lifecycle-stage",
        good={"feed clicks/lifecycle": _staged(), f"{BACKUP}/lifecycle": {}},
        bad={f"{BACKUP}/lifecycle": {}},
        text="feed 'clicks': backup lacks a retention stage, which is mandatory. "
        f'Write lifecycle: {{retention_stage: {{properties: {{{LIMIT}: "days(30)"}}}}}}.',
    ),
    Case(
        code="lifecycle-frequency",
        name="feed",
        good={"feed summary/lifecycle": _staged(frequency="hours(24)")},
        bad={"feed summary/lifecycle": _staged(frequency="hours(23)")},
        text="feed 'summary': retention hours(23) on primary cannot be more frequent than data availability, days(1). "
        "Write at least days(1).",
    ),
    Case(
        code="lifecycle-frequency",
        name="hour",
        good={"feed clicks/lifecycle": _staged(frequency="minutes(60)")},
        bad={
            "feed clicks/frequency": "minutes(30)",
            "feed clicks/locations": {"data": "/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}/${MINUTE}"},
            f"{PRIMARY}/lifecycle": _staged(frequency="minutes(59)"),
        },
        text="feed 'clicks': retention minutes(59) on primary cannot be more frequent than hours(1). "
        "Write at least hours(1).",
    ),
    Case(
        code="lifecycle-limit",
        name="policy",
        good={"feed clicks/lifecycle": _staged(policy="AgeBasedDelete")},
        bad={"feed clicks/lifecycle": _staged(policy="SizeBasedDelete")},
        text="feed 'clicks': there is no retention policy 'SizeBasedDelete'. Write AgeBasedDelete, or leave it out.",
    ),
    Case(
        code="lifecycle-limit",
        name="missing",
        bad={"feed clicks/lifecycle": {"retention_stage": {}}},
        text=f"feed 'clicks': the retention stage of primary has no limit: the property {LIMIT} is missing. "
        f'Write properties: {{{LIMIT}: "days(30)"}}.',
    ),
    Case(
        code="lifecycle-limit",
        name="form",
        bad={"feed clicks/lifecycle": {"retention_stage": {"properties": {LIMIT: "weeks(2)"}}}},
        text=f"feed 'clicks': the retention stage of primary has no limit: the property {LIMIT} is 'weeks(2)', which "
        f'is not a frequency. Write properties: {{{LIMIT}: "days(30)"}}.',
    ),
    Case(
        code="lifecycle-limit",
        name="late",
        good={"feed clicks/lifecycle": _staged(), "feed clicks/late_arrival/cut_off": "days(20)"},
        bad={"feed clicks/lifecycle": _staged(), "feed clicks/late_arrival/cut_off": "days(21)"},
        text="feed 'clicks': late arrival days(21) is longer than the limit days(20) of the retention stage of primary"
        f". Raise {LIMIT} to at least days(21).",
    ),
    Case(
        code="lifecycle-limit",
        name="sla",
        good={"feed clicks/lifecycle": _staged(), "feed clicks/sla": {"low": "hours(1)", "high": "days(20)"}},
        bad={"feed clicks/lifecycle": _staged(), "feed clicks/sla": {"low": "hours(1)", "high": "days(21)"}},
        text="feed 'clicks': sla.high days(21) is longer than the limit days(20) of the retention stage of primary. "
        f"Raise {LIMIT} to at least days(21).",
    ),
    Case(
        code="unknown-reference",
        name="datasource",
        good={f"{PRIMARY}/import": IMPORT, f"{BACKUP}/export": EXPORT},
        bad={f"{BACKUP}/export": {"target": {**EXPORT["target"], "name": "shoop"}}},
        text="feed 'clicks': there is no datasource 'shoop'. Did you mean 'shop'?",
    ),
    Case(
        code="datasource-version",
        good={f"{BACKUP}/export": {"target": {**EXPORT["target"], "version": 0}}},
        bad={f"{PRIMARY}/import": {"source": {**IMPORT["source"], "version": 1}}},
        text="feed 'clicks': version 1 of datasource 'shop' does not exist; the current one is 0. "
        "Leave the version out, or correct it.",
    ),
    Case(
        code="import-options",
        name="incremental",
        good={f"{PRIMARY}/import": {"source": {**IMPORT["source"], "fields": {"includes": ["id", "total"]}}}},
        bad={
            f"{PRIMARY}/import": {
                "source": {
                    **IMPORT["source"],
                    "extract": {"type": "incremental", "delta_column": "at", "merge_policy": "append"},
                }
            }
        },
        text="feed 'clicks': incremental is an unsupported extraction mechanism. Write full.",
    ),
    Case(
        code="import-options",
        name="policy",
        bad={
            f"{PRIMARY}/import": {"source": {**IMPORT["source"], "extract": {"type": "full", "merge_policy": "append"}}}
        },
        text="feed 'clicks': a full import cannot be merged by append. Write snapshot.",
    ),
    Case(
        code="import-options",
        name="delta",
        bad={
            f"{PRIMARY}/import": {
                "source": {
                    **IMPORT["source"],
                    "extract": {"type": "full", "merge_policy": "snapshot", "delta_column": "at"},
                }
            }
        },
        text="feed 'clicks': a full import has no delta column. Remove delta_column.",
    ),
    Case(
        code="import-options",
        name="excludes",
        bad={f"{PRIMARY}/import": {"source": {**IMPORT["source"], "fields": {"excludes": ["id"]}}}},
        text="feed 'clicks': columns cannot be excluded from an import. List the wanted columns under includes.",
    ),
    Case(
        code="import-options",
        name="mappers",
        good={f"{PRIMARY}/import": {**IMPORT, "arguments": {"--num-mappers": 2, "--split-by": "id"}}},
        bad={f"{PRIMARY}/import": {**IMPORT, "arguments": {"--num-mappers": 2}}},
        text="feed 'clicks': --num-mappers 2 needs --split-by. "
        "Add --split-by with a column, or write --num-mappers: 1.",
    ),
    Case(
        code="import-place",
        good={f"{PRIMARY}/import": IMPORT},
        bad={f"{BACKUP}/import": IMPORT},
        text="feed 'clicks': the import on backup has no effect: imports write to sources only. "
        "Write type: source, or remove the import.",
    ),
    Case(
        code="export-options",
        name="argument",
        good={f"{BACKUP}/export": {**EXPORT, "arguments": {"--num-mappers": 4, "--update-key": "id"}}},
        bad={f"{BACKUP}/export": {**EXPORT, "arguments": {"--split-by": "id"}}},
        text="feed 'clicks': '--split-by' is not an argument of exports. "
        "Arguments are --num-mappers, --update-key, --input-null-string, --input-null-non-string.",
    ),
    Case(
        code="export-options",
        name="fields",
        bad={f"{BACKUP}/export": {"target": {**EXPORT["target"], "fields": {"includes": ["id"]}}}},
        text="feed 'clicks': the columns of an export cannot be chosen. Remove fields.",
    ),
    Case(
        code="data-location",
        bad={"feed summary/locations": {"stats": "/stats"}},
        text="feed 'summary': its data have no location on primary. "
        'Write locations: {data: "/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}"}, or table.',
    ),
    Case(
        code="data-location",
        name="cluster",
        good={
            "feed clicks/locations": REMOVED,
            **{
                f"{place}/locations": {"data": "/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}"} for place in (PRIMARY, BACKUP)
            },
        },
        bad={f"{BACKUP}/locations": {"meta": "/meta"}},
        text="feed 'clicks': its data have no location on backup. "
        'Write locations: {data: "/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}"}, or table.',
    ),
)
