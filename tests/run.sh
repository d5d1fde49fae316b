#!/usr/bin/env bash
# All tests, with lint and types: those with Spark beside the others, because daemons mostly wait. Files of tests are
# kept in memory where there is room for them. The argument is where the environment's programs are.
set -uo pipefail
bin=$1
room=$(df --output=avail --block-size=1G /dev/shm 2>/dev/null | tail -1)
files=$(mktemp -d -p "$([ "${room:-0}" -ge 8 ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")" feed-assets-tests.XXXX)
trap 'rm -rf "$files"' EXIT
export TMPDIR=$files
mkdir -p artifacts

echo "tests with Spark begin, beside the others; what they say comes at the end"
{
  [ -e "$bin/../spark.jsa" ] || "$bin/python" -m tests.java_start
  "$bin/python" -m pytest -m spark -n 2 --dist loadfile --no-loadscope-reorder
} >artifacts/spark-tests.log 2>&1 &
make --no-print-directory lint
lint=$?
"$bin/python" -m pytest -m "not spark" -n 2 --dist loadfile --no-loadscope-reorder
others=$?
wait $!
with_spark=$?
cat artifacts/spark-tests.log
exit $((lint || others || with_spark))
