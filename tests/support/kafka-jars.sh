#!/usr/bin/env bash
# kafka-jars.sh [VERSION]   prints the directory with Kafka's server jars of that version (default 4.4.0).
# Maven resolves them once, into ${XDG_CACHE_HOME:-~/.cache}/hapax.
set -euo pipefail
version=${1:-4.4.0}
dir=${XDG_CACHE_HOME:-$HOME/.cache}/hapax/kafka-$version
for tool in mvn java flock; do
  command -v "$tool" >/dev/null || { echo "kafka-jars.sh needs $tool" >&2; exit 1; }
done
mkdir -p "$dir"
exec 9>"$dir/lock"
flock 9
if [ ! -f "$dir/complete" ]; then
  # Kafka 4 uses log4j 2 but depends on no binding of slf4j to it.
  cat >"$dir/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>hapax</groupId><artifactId>kafka-jars</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>$version</version></dependency>
<dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.24.3</version></dependency>
<dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-core</artifactId><version>2.24.3</version></dependency>
</dependencies></project>
POM
  rm -rf "$dir/libs"
  (cd "$dir" && mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=libs) >"$dir/mvn.log" 2>&1 ||
    { tail -n 20 "$dir/mvn.log" >&2; exit 1; }
  touch "$dir/complete"
fi
echo "$dir/libs"
