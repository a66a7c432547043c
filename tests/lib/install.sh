# What the tests need, a function a stage; each does nothing where it is all there. Sourced by tests/run.
# Everything lands under target/tests or, for Kafka's jars, in the user's cache.
. "$root/tests/lib/packages.sh"
installed=$root/target/tests
mkdir -p "$installed"

install_debian() { install_apt "${APT_PACKAGES[@]}"; }

install_apt() { # PACKAGE...
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$installed/apt.log" 2>&1 ||
    { tail -n 20 "$installed/apt.log" >&2; return 1; }
}

install_kafka() {
  local libs
  libs=$("$root/tests/kafka/kafka" jars "$KAFKA_VERSION")
  ln -sfn "$libs" "$installed/kafka-libs"
}

# The other Kafkas that are asked for, and the Java client that comes with one of them.
install_kafkas() { # VERSION...
  local version
  for version in "$@"; do "$root/tests/kafka/kafka" jars "$version" >/dev/null; done
  ln -sfn "$("$root/tests/kafka/kafka" jars "$KAFKA_JAVA_3")" "$installed/kafka-libs-3"
}

install_python() {
  [ -x "$installed/venv/bin/python" ] || python3 -m venv "$installed/venv"
  "$installed/venv/bin/pip" install -q "${PYTHON_PACKAGES[@]}"
}

install_go() {
  local program
  for program in "${GO_PROGRAMS[@]}"; do
    (cd "$root/tests/${program#*=}" && go build -o "$installed/${program%%=*}" .)
  done
}

install_node() {
  local from=$root/tests/clients/node folder=$installed/node
  ! cmp -s "$from/package-lock.json" "$folder/node_modules/installed-lock.json" || return 0
  mkdir -p "$folder"
  cp "$from"/package*.json "$folder"
  (cd "$folder" && npm ci --silent)
  cp "$from/package-lock.json" "$folder/node_modules/installed-lock.json"
}

install_rust() {
  (cd "$root/tests/clients/rust" && CARGO_TARGET_DIR="$installed/rust" cargo build --quiet --locked)
}

install_clients() {
  mkdir -p "$installed/java"
  javac -Xlint:all -Werror -cp "$installed/kafka-libs/*" -proc:none -d "$installed/java" "$root/tests/clients/java/Client.java"
}

# What tests/run bench measures beside hapax. The build of shotover takes a quarter of an hour.
install_peers() {
  install_apt "${BENCH_APT_PACKAGES[@]}"
  [ -x "$installed/bench/bin/pip" ] || python3 -m venv "$installed/bench"
  "$installed/bench/bin/pip" install -q "${BENCH_PYTHON_PACKAGES[@]}"
  (cd "$root/tests/bench/shotover" && CARGO_TARGET_DIR="$installed/shotover" nice cargo build --release --quiet --locked)
}
