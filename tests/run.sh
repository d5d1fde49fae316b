#!/usr/bin/env bash
# Runs tests in four processes also on two cores, because tests with servers and daemons mostly wait. Arguments: where
# the environment's programs are, and what to run: `test` is all but the drills, with lint beside it; `fast` what needs no
# server and little time; `drills` the long proofs. Files of tests are kept in memory where there is room for them.
set -uo pipefail
bin=$1
what=$2
room=$(df --output=avail --block-size=1G /dev/shm 2>/dev/null | tail -1)
files=$(mktemp -d -p "$([ "${room:-0}" -ge 8 ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")" feed-assets-tests.XXXX)
trap 'rm -rf "$files"' EXIT
export TMPDIR=$files
# Every process that a test starts would otherwise compile the project again, where the machine forbids byte code.
unset PYTHONDONTWRITEBYTECODE
mkdir -p artifacts

run_pytest() {
  "$bin/python" -m pytest -n 4 --dist loadgroup --no-loadscope-reorder "$@"
}

if [ "$what" = test ]; then
  make --no-print-directory lint >artifacts/lint.log 2>&1 &
  lint=$!
fi
archive=
if [ "$what" != fast ] && [ ! -e "$bin/../spark.jsa" ]; then
  "$bin/python" -m tests.java_start &
  archive=$!
fi
if ! compgen -G "tests/__pycache__/conftest.*-pytest-*.pyc" >/dev/null; then
  "$bin/python" -m pytest --collect-only -qq >/dev/null  # compiles the tests, which each process would do otherwise
fi
[ -z "$archive" ] || wait "$archive"
case $what in
  test)
    run_pytest
    tests=$?
    wait "$lint"
    lint=$?
    [ $lint -eq 0 ] && echo "lint: passed" || cat artifacts/lint.log
    [ $tests -eq 0 ] || echo "tests: failed, see above"
    exit $((tests || lint))
    ;;
  fast)
    run_pytest -m "not (long or server or spark or daemon or drill)"
    ;;
  drills)
    FEED_ASSETS_DRILLS=1 run_pytest -m "drill or sample" -rP
    ;;
  *)
    echo "tests/run.sh: $what is none of test, fast, drills" >&2
    exit 2
    ;;
esac
