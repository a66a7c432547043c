//! The container of hapax as YAML, for charts of others that take containers.
//!
//! The charts under `charts/` render the same one from their values; a test
//! (`tests/charts/test_snippet.py`) holds the two equal.

use crate::config::{HostPort, Mode};

/// How hapax stands beside the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Form {
    /// An init container that stays (Kubernetes 1.29 and newer): it is up
    /// before the application starts and ends after it, and Jobs complete.
    Native,
    /// One more container.
    Plain,
}

/// What is in it.
#[derive(Debug)]
pub struct Snippet<'a> {
    /// How it stands beside the application.
    pub form: Form,
    /// The brokers, at least one.
    pub upstream: &'a [HostPort],
    /// How far hapax may go; `None` is its default.
    pub mode: Option<Mode>,
    /// The image.
    pub image: &'a str,
}

/// The image of this version.
pub const IMAGE: &str = concat!("ghcr.io/hapax-kafka/hapax:", env!("CARGO_PKG_VERSION"));

impl Snippet<'_> {
    /// A fragment of a values file: what to do with it, the key that charts
    /// call like this or the like, and under it the container.
    #[must_use]
    pub fn render(&self) -> String {
        let (about, key, stays, delay) = match self.form {
            Form::Native => (NATIVE, "initContainers", "    restartPolicy: Always\n", ""),
            Form::Plain => (PLAIN, "extraContainers", "", DELAY),
        };
        let upstream: Vec<_> = self.upstream.iter().map(ToString::to_string).collect();
        let upstream = upstream.join(",");
        let mode = self.mode.map_or_else(String::new, |mode| {
            format!("      - name: HAPAX_MODE\n        value: {mode}\n")
        });
        let image = self.image;
        format!(
            "{about}{key}:
  - name: hapax
    image: \"{image}\"
    imagePullPolicy: IfNotPresent
    args: [run]
{stays}    env:
      - name: HAPAX_UPSTREAM
        value: \"{upstream}\"
{mode}{delay}{REST}"
        )
    }
}

const NATIVE: &str = "\
# hapax as a native sidecar, for Kubernetes 1.29 and newer: it is up before the application
# starts and ends after it, and Jobs complete.
#
# For a chart that takes init containers, of which this has to be the first. Charts name the key
# initContainers, extraInitContainers or the like. The application finds Kafka at 127.0.0.1:19092.
";

const PLAIN: &str = "\
# hapax as one more container beside the application, for Kubernetes of any age.
#
# For a chart that takes containers. Charts name the key extraContainers, sidecars or the like. The
# application finds Kafka at 127.0.0.1:19092, and clients try again until hapax is there.
#
# The Pod of a Job completes once hapax ends too: let the application's last command be
#   curl -fsS -X POST http://127.0.0.1:9180/api/v1/drain
";

/// The application hears of the end of the Pod at the same moment as hapax, and
/// may connect once more.
const DELAY: &str = "      - name: HAPAX_DRAIN_MIN_DELAY
        value: 5s
";

/// Admin answers the kubelet and Prometheus, data only this Pod. The limit is
/// what the memory budget comes from; a CPU limit would be latency. After 25 s
/// five remain of the 30 s that a Pod has by default.
const REST: &str = "      - name: HAPAX_ADMIN_LISTEN
        value: \"[::]:9180\"
      - name: HAPAX_DRAIN_TIMEOUT
        value: 25s
    ports:
      - name: hapax-metrics
        containerPort: 9180
        protocol: TCP
    startupProbe:
      httpGet:
        path: /startupz
        port: hapax-metrics
      periodSeconds: 1
      timeoutSeconds: 3
      failureThreshold: 60
    livenessProbe:
      httpGet:
        path: /livez
        port: hapax-metrics
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 3
    resources:
      requests:
        cpu: 10m
        memory: 32Mi
      limits:
        memory: 128Mi
    securityContext:
      runAsNonRoot: true
      runAsUser: 65532
      runAsGroup: 65532
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
      seccompProfile:
        type: RuntimeDefault
    terminationMessagePolicy: FallbackToLogsOnError
";

#[cfg(test)]
mod tests {
    use super::*;

    fn render(form: Form, mode: Option<Mode>) -> String {
        let upstream = ["kafka:9092".parse().unwrap(), "[::1]:9093".parse().unwrap()];
        let snippet = Snippet {
            form,
            upstream: &upstream,
            mode,
            image: IMAGE,
        };
        snippet.render()
    }

    #[test]
    fn only_the_native_one_stays_as_an_init_container() {
        let native = render(Form::Native, None);
        assert!(native.contains("\ninitContainers:\n"), "{native}");
        assert!(native.contains("\n    restartPolicy: Always\n"), "{native}");
        let plain = render(Form::Plain, None);
        assert!(plain.contains("\nextraContainers:\n"), "{plain}");
        assert!(!plain.contains("restartPolicy"), "{plain}");
        assert!(plain.contains("/api/v1/drain"), "{plain}");
    }

    #[test]
    fn what_was_asked_for_is_in_it_and_nothing_else() {
        let observing = render(Form::Native, Some(Mode::Observe));
        assert!(observing.contains("value: \"kafka:9092,[::1]:9093\""));
        assert!(observing.contains("name: HAPAX_MODE\n        value: observe\n"));
        assert!(!render(Form::Native, None).contains("HAPAX_MODE"));
    }
}
