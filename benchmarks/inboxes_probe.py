"""Counts what an S3 server is asked while a command takes the files of an inbox. Arguments: folder, files."""

import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import boto3
from moto.server import ThreadedMotoServer

BUCKET = "bench"
_SETTLED = 2.5
_ENTITIES = """\
kind: cluster
name: primary
storage: s3://{bucket}
storage_options: {{endpoint_url: "{endpoint}", key: anybody, secret: "${{env:BENCH_SECRET}}", region: us-east-1}}
---
kind: feed
name: orders
instances: as-they-come
inbox: {{directory: /in/orders, settle: seconds(1)}}
format: json
locations: {{data: "/orders/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}${{MINUTE}}${{SECOND}}"}}
clusters: {{primary: {{validity: {{start: 2026-01-01T00:00Z}}}}}}
"""


def main(folder: str, files: str) -> None:
    """Print the number of requests."""
    counting = _Counting()
    logger = logging.getLogger("werkzeug")
    logger.addHandler(counting)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=True)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id="anybody", aws_secret_access_key="any", region_name="us-east-1"
    )
    client.create_bucket(Bucket=BUCKET)
    for number in range(int(files)):
        client.put_object(Bucket=BUCKET, Key=f"in/orders/{number}.json", Body=b'{"order": %d}' % number)
    (Path(folder) / "entities").mkdir()
    (Path(folder) / "entities" / "all.yaml").write_text(_ENTITIES.format(bucket=BUCKET, endpoint=endpoint))
    (Path(folder) / "feed_assets.yaml").write_text(f"state: sqlite:///{folder}/state.db\n")
    time.sleep(_SETTLED)
    counting.requests = 0
    command = [sys.executable, "-m", "feed_assets", "feed", "take", "orders", "--author", "bench", "--output", "json"]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "BENCH_SECRET": "any"}, check=True, stdout=subprocess.PIPE
    )
    requests = counting.requests
    server.stop()
    (inbox,) = json.loads(done.stdout)["inboxes"]
    assert [file["status"] for file in inbox["files"]] == ["TAKEN"] * int(files)
    print(json.dumps({"requests": requests}))


class _Counting(logging.Handler):
    """Counts the lines that a server writes about its requests."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.requests = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.requests += "HTTP/1.1" in record.getMessage()


if __name__ == "__main__":
    main(*sys.argv[1:])
