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

# Helm, and the schemas that what it renders is held to.
install_charts() {
  install_helm "$root/tests/charts/tools" 3 "$installed/helm"
  local folder=$installed/kubernetes pins=$root/tests/charts/crds/go.sum
  mkdir -p "$folder"
  local module
  module=$(cd "$root/tests/kube/server" && go mod download -json k8s.io/kubernetes | jq -r .Dir)
  command install -m 644 "$module/api/openapi-spec/swagger.json" "$folder/swagger.json"
  ! cmp -s "$pins" "$folder/crds/installed" || return 0
  rm -rf "$folder/crds"
  (
    cd "$root/tests/charts/crds"
    go tool controller-gen crd:maxDescLen=0 output:crd:dir="$folder/all-crds" \
      paths=github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1
  )
  mkdir "$folder/crds"
  mv "$folder"/all-crds/monitoring.coreos.com_{podmonitors,servicemonitors,prometheusrules}.yaml "$folder/crds"
  rm -r "$folder/all-crds"
  cp "$pins" "$folder/crds/installed"
}

# Helm says by these flags which Kubernetes it renders for where there is none.
install_helm() { # MODULE MAJOR PROGRAM
  local helm=helm.sh/helm/v$2 version kubernetes flags
  version=$(cd "$1" && go list -m -f '{{.Version}}' "$helm")
  kubernetes=$(cd "$1" && go list -m -f '{{.Version}}' k8s.io/client-go | cut -d . -f 2)
  flags="-s -w -X $helm/internal/version.version=$version"
  local package
  for package in pkg/lint/rules pkg/chartutil; do
    flags+=" -X $helm/$package.k8sVersionMajor=1 -X $helm/$package.k8sVersionMinor=$kubernetes"
  done
  (cd "$1" && go build -ldflags "$flags" -o "$3" "$helm/cmd/helm")
}

# A real API server without nodes. The first build of kube-apiserver takes five minutes of both cores; then Go has it cached.
install_kube() {
  local folder=$installed/kube version flags
  mkdir -p "$folder"
  install_helm "$root/tests/kube/helm4" 4 "$folder/helm4"
  version=$(cd "$root/tests/kube/server" && go list -m -f '{{.Version}}' k8s.io/kubernetes)
  flags="-s -w -X k8s.io/component-base/version.gitVersion=$version -X k8s.io/client-go/pkg/version.gitVersion=$version"
  flags+=" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$(cut -d . -f 2 <<<"$version")"
  (
    cd "$root/tests/kube/server"
    go build -ldflags "$flags" -o "$folder/etcd" go.etcd.io/etcd/server/v3
    go build -ldflags "$flags" -o "$folder/kubectl" k8s.io/kubernetes/cmd/kubectl
    go build -ldflags "$flags" -o "$folder/kube-apiserver" k8s.io/kubernetes/cmd/kube-apiserver
  )
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

install_deny() { install_crate "$CARGO_DENY"; }

# cargo leaves what is there and up to date.
install_crate() { # NAME@VERSION
  cargo install --locked --quiet --root "$installed/audit" "$1"
}

# What builds and runs images, and what config/compose.yaml and the workflows are held to.
install_image() {
  install_apt "${IMAGE_APT_PACKAGES[@]}"
  install_go_program toxiproxy github.com/Shopify/toxiproxy/v2/cmd/server "$COMPOSE_TOXIPROXY"
  install_go_program toxiproxy-cli github.com/Shopify/toxiproxy/v2/cmd/cli "$COMPOSE_TOXIPROXY"
  install_go_program actionlint github.com/rhysd/actionlint/cmd/actionlint "$ACTIONLINT"
  local downloaded
  downloaded=$(go mod download -json "$COMPOSE_SPECIFICATION" | jq -r .Dir)
  cp -f "$downloaded/schema/compose-spec.json" "$installed/compose-spec.json"
  "$installed/venv/bin/pip" install -q "${RELEASE_PYTHON_PACKAGES[@]}"
}

install_image_for_arm() { install_apt "${IMAGE_ARM_APT_PACKAGES[@]}"; }

install_go_program() { # NAME PACKAGE VERSION
  local folder=$installed/go/$1-$3
  if [ ! -x "$installed/$1" ] || [ "$(readlink "$installed/$1")" != "$folder/${2##*/}" ]; then
    GOBIN=$folder go install "$2@$3"
    ln -sfn "$folder/${2##*/}" "$installed/$1"
  fi
}

# The test suites of other clients: sources that are only fetched to run them, and what they want.
install_suites() {
  local folder=$installed/suites
  mkdir -p "$folder"
  install_apt "${SUITES_APT_PACKAGES[@]}"
  (cd "$root/tests/clients/go/franz" && go test -c -o "$folder/kgo.test" github.com/twmb/franz-go/pkg/kgo)
  (cd "$root/tests/clients/go/sarama" && go test -c -tags functional -o "$folder/sarama.test" github.com/IBM/sarama)
  if ! go version -m "$folder/toxiproxy" 2>/dev/null | grep -q "toxiproxy/v2.${SUITES_TOXIPROXY##*@}"; then
    GOBIN=$folder go install "$SUITES_TOXIPROXY"
    mv "$folder/server" "$folder/toxiproxy"
  fi
  install_kafka_python_suite "$folder"
  install_librdkafka_suite "$folder"
}

install_kafka_python_suite() { # FOLDER
  local pinned=${PYTHON_PACKAGES[*]} version
  version=${pinned#*kafka-python==}
  version=${version%% *}
  [ -x "$1/venv/bin/python" ] || python3 -m venv "$1/venv"
  "$1/venv/bin/pip" install -q "${SUITES_PYTHON_PACKAGES[@]}"
  if [ ! -d "$1/kafka_python-$version" ]; then
    rm -rf "$1"/kafka_python-*
    "$1/venv/bin/pip" download -q --no-deps --no-binary kafka-python -d "$1" "kafka-python==$version"
    tar xzf "$1/kafka_python-$version.tar.gz" -C "$1"
  fi
  # Two files of the tests' own package that the distribution leaves out.
  touch "$1/kafka_python-$version/test/__init__.py"
  cp "$root/tests/suites/kafka_python/service.py" "$1/kafka_python-$version/test/"
}

# Two minutes of two cores.
install_librdkafka_suite() { # FOLDER
  local sources=$1/librdkafka
  [ "$(cat "$sources/built" 2>/dev/null)" != "$SUITES_LIBRDKAFKA" ] || return 0
  rm -rf "$sources" "$1"/confluentinc-*.tgz
  mkdir -p "$sources"
  (cd "$1" && npm pack --silent "$SUITES_LIBRDKAFKA" >/dev/null)
  tar xzf "$1"/confluentinc-*.tgz -C "$sources" --strip-components=3 package/deps/librdkafka
  (
    cd "$sources"
    ./configure --disable-ssl --disable-gssapi --disable-curl --disable-lz4-ext --disable-syslog
    make -j2 libs
    make -j2 -C tests build
    javac -cp "$installed/kafka-libs/*" tests/java/*.java
  ) >"$1/librdkafka.log" 2>&1 || { tail -n 20 "$1/librdkafka.log" >&2; return 1; }
  echo "$SUITES_LIBRDKAFKA" >"$sources/built"
}
