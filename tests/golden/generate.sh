#!/usr/bin/env bash
# generate.sh           writes the golden vectors anew, with the classes of Kafka 4.4.0.
# generate.sh --check   fails when the committed vectors are not what the generator makes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
libs=$("$here/../kafka/kafka" jars 4.4.0)
to=$here
if [ "${1:-}" = --check ]; then
  to=$(mktemp -d)
  trap 'rm -rf "$to"' EXIT
fi
java -Dlog4j2.level=error -Xmx512m -XX:TieredStopAtLevel=1 -cp "$libs/*" "$here/Golden.java" "$to"
[ "$to" = "$here" ] || for file in messages batches decisions; do
  diff -q "$here/$file.jsonl" "$to/$file.jsonl" || { echo "tests/golden/$file.jsonl is not what Golden.java makes" >&2; exit 1; }
done
