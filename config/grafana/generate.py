#!/usr/bin/env python3
"""Writes the dashboards hapax.json and hapax-producers.json, which are committed.

    config/grafana/generate.py           write both
    config/grafana/generate.py --check   fail where a committed one is another

Both load as they are: by file provisioning, from a ConfigMap, and by import.
Therefore the data source is a variable and nothing is left to be asked for.
"""
import json
import pathlib
import sys

RUNBOOKS = "https://github.com/hapax-kafka/hapax/blob/main/config/prometheus/runbooks"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24

OVERVIEW = 'cluster=~"$cluster",namespace=~"$namespace",job=~"$job",pod=~"$pod"'
BESIDE = 'env=~"$env"'
TOPIC = 'topic=~"$topic"'

GREEN, YELLOW, RED = "green", "yellow", "red"


def steps(*limits):
    """Thresholds: green, then each (value, colour)."""
    return [{"color": GREEN, "value": None}] + [{"color": colour, "value": value} for value, colour in limits]


class Panel:
    """One panel; its place comes from the order in which panels are listed."""

    kind = "timeseries"

    def __init__(self, title, description, queries, unit="short", width=8, height=7, thresholds=None, runbook=None,
                 minimum=0, maximum=None, stacked=False, line_at=False, instant=False):
        self.title, self.description, self.queries = title, description, queries
        self.unit, self.width, self.height = unit, width, height
        self.thresholds, self.runbook = thresholds, runbook
        self.minimum, self.maximum, self.stacked, self.line_at, self.instant = minimum, maximum, stacked, line_at, instant

    def targets(self, selector):
        made = []
        for place, (legend, query) in enumerate(self.queries):
            target = {
                "datasource": DATASOURCE,
                "editorMode": "code",
                "expr": query.replace("SELECTED", selector),
                "legendFormat": legend,
                "range": not self.instant,
                "instant": self.instant,
                "refId": chr(ord("A") + place),
            }
            if self.kind == "table":
                target["format"] = "table"
            made.append(target)
        return made

    def defaults(self):
        defaults = {"unit": self.unit, "custom": self.custom(), "mappings": [], "color": {"mode": "palette-classic"}}
        defaults["thresholds"] = {"mode": "absolute", "steps": self.thresholds or steps()}
        if self.minimum is not None:
            defaults["min"] = self.minimum
        if self.maximum is not None:
            defaults["max"] = self.maximum
        return defaults

    def custom(self):
        return {
            "drawStyle": "line",
            "fillOpacity": 30 if self.stacked else 10,
            "lineWidth": 1,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"group": "A", "mode": "normal" if self.stacked else "none"},
            "thresholdsStyle": {"mode": "line" if self.line_at else "off"},
        }

    def options(self):
        return {
            "legend": {"calcs": ["lastNotNull", "max"], "displayMode": "table", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }

    def model(self, number, place, selector):
        panel = {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": DATASOURCE,
            "gridPos": place,
            "fieldConfig": {"defaults": self.defaults(), "overrides": []},
            "options": self.options(),
            "targets": self.targets(selector),
        }
        if self.runbook:
            panel["links"] = [outside(f"Runbook: {self.runbook}", f"{RUNBOOKS}/{self.runbook}.md")]
        return panel


class Stat(Panel):
    """One number, coloured by its thresholds."""

    kind = "stat"

    def __init__(self, *args, **named):
        super().__init__(*args, **{"width": 4, "height": 4, **named})

    def defaults(self):
        defaults = {**super().defaults(), "color": {"mode": "thresholds"}}
        # What an increase between two scrapes comes to is reckoned, and no whole number.
        return defaults | {"decimals": 0} if self.instant else defaults

    def custom(self):
        return {}

    def options(self):
        return {
            "colorMode": "value",
            "graphMode": "area" if not self.instant else "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "auto",
            "wideLayout": True,
            "showPercentChange": False,
            "percentChangeColorMode": "standard",
        }


class Table(Panel):
    """The newest values, a row a series."""

    kind = "table"

    def __init__(self, *args, **named):
        super().__init__(*args, **{"instant": True, **named})

    def custom(self):
        return {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False}

    def options(self):
        return {"frameIndex": 0, "cellHeight": "sm", "footer": {"countRows": False, "fields": "", "reducer": ["sum"], "show": False}, "showHeader": True}

    def model(self, number, place, selector):
        panel = super().model(number, place, selector)
        panel["transformations"] = [{"id": "organize", "options": {"excludeByName": {"Time": True}, "indexByName": {}, "renameByName": {"Value": self.queries[0][0]}}}]
        return panel


class Text(Panel):
    """Words only."""

    kind = "text"

    def __init__(self, title, content, width=24, height=4):
        super().__init__(title, "", [], width=width, height=height)
        self.content = content

    def model(self, number, place, selector):
        return {"id": number, "type": "text", "title": self.title, "gridPos": place, "options": {"mode": "markdown", "content": self.content}}


OVERVIEW_ROWS = {
    "Overview": [
        Stat("Duplicates", "Share of the produced batches that were retries of an earlier one. Some are normal; above 5 % acknowledgements get lost: look at Latency and Disconnects.",
             [("", 'sum(rate(hapax_produce_batches_total{SELECTED,TOPIC,verdict=~"duplicate_.+"}[$__rate_interval])) / sum(rate(hapax_produce_batches_total{SELECTED,TOPIC}[$__rate_interval]))')],
             unit="percentunit", thresholds=steps((0.01, YELLOW), (0.05, RED)), runbook="HapaxDuplicateRatioHigh"),
        Stat("Absorbed in 24 h", "Retries that hapax answered with the first acknowledgement, so that they did not reach a broker again.",
             [("", 'sum(increase(hapax_produce_batches_total{SELECTED,TOPIC,verdict=~"duplicate_absorbed|duplicate_resolved"}[24h]))')], instant=True),
        Stat("Gaps in 1 h", "Batches that follow on one that hapax never saw: their producer gave up on records. Any is worth a look: hapax events names the producer.",
             [("", 'sum(increase(hapax_gaps_total{SELECTED,kind=~"never_seen|new_epoch_midway"}[1h]))')], instant=True,
             thresholds=steps((0.5, RED)), runbook="HapaxSequenceGaps"),
        Stat("Fenced in 1 h", "Transactional producers that were fenced. Two instances share a transactional id, or transactions time out.",
             [("", 'sum(increase(hapax_fenced_producers_total{SELECTED}[1h]))')], instant=True,
             thresholds=steps((0.5, YELLOW), (3.5, RED)), runbook="HapaxProducersFenced"),
        Stat("Written twice in 24 h", "Acknowledged batches whose records came again under a new epoch: duplicates in the log that nobody can take back. Tell the consumers; hapax events (epoch_resend) has the offsets.",
             [("", 'sum(increase(hapax_epoch_resends_total{SELECTED,original="acknowledged"}[24h]))')], instant=True,
             thresholds=steps((0.5, RED)), runbook="HapaxDuplicatesInLog"),
        Stat("Failed requests", "Share of all requests that were answered with an error or not at all. Above 1.44 % the error budget of a month is gone in two days.",
             [("", 'sum(rate(hapax_requests_total{SELECTED,outcome="error"}[$__rate_interval])) / sum(rate(hapax_requests_total{SELECTED}[$__rate_interval]))')],
             unit="percentunit", thresholds=steps((0.006, YELLOW), (0.0144, RED)), runbook="HapaxErrorBudgetBurn"),
        Panel("Versions", "Processes by version. More than one for longer than a rollout: some pods were not restarted since the injected or packed image changed.",
              [("{{version}}", 'count by (version) (hapax_build_info{SELECTED})')], width=12, height=5),
        Panel("Verdicts", "Every batch has exactly one verdict; their sum is all batches. untracked is what cannot be followed: producers without idempotence.",
              [("{{verdict}}", 'sum by (verdict) (rate(hapax_produce_batches_total{SELECTED,TOPIC}[$__rate_interval]))')], unit="ops", width=12, height=5, stacked=True),
    ],
    "Duplicates": [
        Panel("Absorbed by topic", "The ten topics with most absorbed retries. A single topic: look at the brokers that lead it; all of them: at the network.",
              [("{{topic}}", 'topk(10, sum by (topic) (rate(hapax_produce_batches_total{SELECTED,TOPIC,verdict=~"duplicate_absorbed|duplicate_resolved"}[$__rate_interval])))')], unit="ops"),
        Panel("Absorbed by pod", "The ten pods with most absorbed retries. A single pod: look at its node's network and at its client's request.timeout.ms.",
              [("{{pod}}", 'topk(10, sum by (pod) (rate(hapax_produce_batches_total{SELECTED,TOPIC,verdict=~"duplicate_absorbed|duplicate_resolved"}[$__rate_interval])))')], unit="ops"),
        Panel("Absorbed or forwarded", "absorbed: answered from memory; resolved: found in the log; forwarded: hapax knew too little, so the broker judged. Much forwarded: hapax was restarted without state.dir, or windows are too few.",
              [("{{verdict}}", 'sum by (verdict) (rate(hapax_produce_batches_total{SELECTED,TOPIC,verdict=~"duplicate_.+"}[$__rate_interval]))')], unit="ops"),
        Panel("Looked for in the log", "Batches that a broker may have forgotten. refused: grant the producer's user READ on the topic; late: the brokers answer too slowly for sequence.resolveTimeout, or more logs are looked into than limits.resolves allows; gave_up: raise sequence.resolveBytes.",
              [("{{outcome}}", 'sum by (outcome) (rate(hapax_resolves_total{SELECTED}[$__rate_interval]))')], unit="ops"),
        Panel("Came again under a new epoch", "acknowledged is a duplicate in the log, unknown may be one. sequence.shield45 spares librdkafka many of them.",
              [("{{original}}", 'sum by (original) (increase(hapax_epoch_resends_total{SELECTED}[$__rate_interval]))')], runbook="HapaxDuplicatesInLog"),
        Panel("Policies not met", "Batches without what a policy of their topic requires; refused in mode enforce. Find the client in hapax events before you enforce.",
              [("{{topic}} {{policy}}", 'sum by (topic, policy) (rate(hapax_policy_violations_total{SELECTED,TOPIC}[$__rate_interval]))')], unit="ops"),
    ],
    "Order and fencing": [
        Panel("Errors of brokers", "Sequence, epoch and fencing errors that brokers returned. hapax explain and the number or name tells the causes of each.",
              [("{{error}}", 'sum by (error) (rate(hapax_broker_sequence_errors_total{SELECTED,TOPIC}[$__rate_interval]))')], unit="ops", runbook="HapaxOutOfOrderErrors"),
        Panel("Missing records", "Records that gaps say no broker will get, by topic. Find out what the application does with a send that failed.",
              [("{{topic}}", 'sum by (topic) (increase(hapax_missing_records_total{SELECTED,TOPIC}[$__rate_interval]))')], runbook="HapaxSequenceGaps"),
        Panel("Gaps by kind", "never_seen and new_epoch_midway are worth a look. predecessor_failed closes by itself, no_baseline is a producer seen for the first time in mid-stream, as after a restart of hapax.",
              [("{{kind}}", 'sum by (kind) (rate(hapax_gaps_total{SELECTED}[$__rate_interval]))')], unit="ops", runbook="HapaxSequenceGaps"),
        Panel("Sequence numbers used again", "Same numbers, other bytes: brokers acknowledge the second batch and throw it away. KafkaJS does so with each retry, which is harmless; with any other client records are lost.",
              [("{{topic}}", 'sum by (topic) (rate(hapax_produce_batches_total{SELECTED,TOPIC,verdict="sequence_reuse"}[$__rate_interval]))')], unit="ops", runbook="HapaxSequenceReuse"),
        Panel("Fenced producers", "By who said so: a broker, or hapax itself in mode enforce. Two instances share a transactional id, or transactions time out.",
              [("{{source}}", 'sum by (source) (increase(hapax_fenced_producers_total{SELECTED}[$__rate_interval]))')], runbook="HapaxProducersFenced"),
        Panel("New ids and raised epochs", "Many new ids: producers are made per message, or crash. Epochs raised by clients: they met an error and began again, so duplicates may follow.",
              [("new producer ids", 'sum(rate(hapax_producer_ids_issued_total{SELECTED}[$__rate_interval]))'),
               ("epochs raised", 'sum(rate(hapax_producer_epoch_bumps_total{SELECTED}[$__rate_interval]))')], unit="ops"),
    ],
    "Traffic": [
        Panel("Requests", "Requests by API. short_circuit in the panel beside it are those that hapax answered itself.",
              [("{{api}}", 'sum by (api) (rate(hapax_requests_total{SELECTED}[$__rate_interval]))')], unit="reqps"),
        Panel("Requests that did not pass", "Errors, and answers of hapax's own, by API. Look for the code in the client's log or by hapax events.",
              [("{{api}} {{outcome}}", 'sum by (api, outcome) (rate(hapax_requests_total{SELECTED,outcome!="ok"}[$__rate_interval]))')], unit="reqps", runbook="HapaxErrorBudgetBurn"),
        Panel("In flight and held", "Requests without an answer, and Produce requests that wait for the batch before them. Growing without end: a broker does not answer.",
              [("in flight", 'sum(hapax_requests_in_flight{SELECTED})'), ("held", 'sum(hapax_held_requests{SELECTED})')]),
        Panel("Latency, p50", "Half of the requests took no longer, from their first byte to their answer, brokers included. A fetch waits for data: half a second is idle, not slow.",
              [("{{api}}", 'histogram_quantile(0.5, sum by (le, api) (rate(hapax_request_duration_seconds_bucket{SELECTED}[$__rate_interval])))')], unit="s"),
        Panel("Latency, p99", "One request of a hundred took longer. Compare with the brokers' own request times before blaming hapax.",
              [("{{api}}", 'histogram_quantile(0.99, sum by (le, api) (rate(hapax_request_duration_seconds_bucket{SELECTED}[$__rate_interval])))')], unit="s"),
        Panel("Overhead, p99", "How long what arrives waits for a worker of hapax. Above 10 ms the process lacks processor time: look at the CPU limit and at throttling.",
              [("{{pod}}", 'histogram_quantile(0.99, sum by (le, pod) (rate(hapax_worker_delay_seconds_bucket{SELECTED}[$__rate_interval])))')], unit="s",
              thresholds=steps((0.01, RED)), line_at=True, runbook="HapaxOverheadHigh"),
        Panel("Bytes", "In and out, by side. Upstream far below what clients sent: much was absorbed.",
              [("from {{side}}", 'sum by (side) (rate(hapax_received_bytes_total{SELECTED}[$__rate_interval]))'),
               ("to {{side}}", 'sum by (side) (rate(hapax_sent_bytes_total{SELECTED}[$__rate_interval]))')], unit="Bps"),
        Panel("Disconnects", "What ended client connections. Anything but client, idle and drain deserves a look at the log.",
              [("{{cause}}", 'sum by (cause) (rate(hapax_client_disconnects_total{SELECTED}[$__rate_interval]))')], unit="ops"),
        Panel("Connect errors", "Brokers that could not be reached, by cause; left_alone are clients that came right after such a failure. hapax check --connect says what to do.",
              [("{{cause}}", 'sum by (cause) (rate(hapax_upstream_connect_errors_total{SELECTED}[$__rate_interval]))')], unit="ops", runbook="HapaxUpstreamUnreachable"),
    ],
    "Saturation": [
        Panel("Windows in use", "Windows held of those that there may be. At 1 new producers are not followed: raise sequence.maxWindows.",
              [("{{pod}}", 'max by (pod) (hapax_windows{SELECTED} / hapax_windows_limit{SELECTED})')], unit="percentunit", maximum=1,
              thresholds=steps((0.8, RED)), line_at=True, runbook="HapaxWindowsNearLimit"),
        Panel("Windows dropped", "idle is housekeeping. limit: all were in use, so those that were idle for sequence.ttl went earlier. Producers that find none left are in Limits reached (windows).",
              [("{{reason}}", 'sum by (reason) (rate(hapax_window_evictions_total{SELECTED}[$__rate_interval]))')], unit="ops", runbook="HapaxWindowsFull"),
        Panel("Memory of connections", "What is reserved for connections of what there is for them. From seven eighths on hapax reads slowly, at 1 it closes new clients: raise memory.limit and the container's limit.",
              [("{{pod}}", 'max by (pod) (hapax_memory_buffers_bytes{SELECTED} / hapax_memory_buffers_limit_bytes{SELECTED})')], unit="percentunit", maximum=1,
              thresholds=steps((0.875, RED)), line_at=True, runbook="HapaxClientsTurnedAway"),
        Panel("Limits reached", "Each time a bound was met, by limit. Raise it, or find out who needs so much.",
              [("{{limit}}", 'sum by (limit) (rate(hapax_limit_reached_total{SELECTED}[$__rate_interval]))')], unit="ops", runbook="HapaxClientsTurnedAway"),
        Panel("CPU", "Processor time of each process. Near the CPU limit of its container it is throttled, which Overhead shows.",
              [("{{pod}}", 'sum by (pod) (rate(process_cpu_seconds_total{SELECTED}[$__rate_interval]))')], unit="short"),
        Panel("Memory", "Resident memory, and what memory.limit allows. They meet only where the kernel's buffers are not counted.",
              [("{{pod}}", 'sum by (pod) (process_resident_memory_bytes{SELECTED})'),
               ("limit", 'min(hapax_memory_limit_bytes{SELECTED})')], unit="bytes"),
        Panel("File descriptors", "Open descriptors of those allowed. Two a connection; near 1 raise the hard limit (ulimit -Hn) of the container.",
              [("{{pod}}", 'max by (pod) (process_open_fds{SELECTED} / process_max_fds{SELECTED})')], unit="percentunit", maximum=1, thresholds=steps((0.8, RED)), line_at=True),
        Panel("Connections", "Open connections of clients and to brokers. Clients wait while to brokers is 0.",
              [("clients", 'sum(hapax_client_connections{SELECTED})'), ("brokers", 'sum(hapax_upstream_connections{SELECTED})'),
               ("orphans", 'sum(hapax_orphan_sessions{SELECTED})')]),
        Panel("Producers and windows", "Producers with a window, and windows. Producers that grow without end are made per message.",
              [("producers", 'sum(hapax_producers{SELECTED})'), ("windows", 'sum(hapax_windows{SELECTED})')]),
    ],
    "Operation": [
        Stat("Configuration", "Whether the newest files were taken: 1, or 0 while one of them cannot be used and what was before goes on. The log names file, line and key.",
             [("", 'min(hapax_config_last_reload_successful{SELECTED})')], thresholds=[{"color": RED, "value": None}, {"color": GREEN, "value": 1}], maximum=1, runbook="HapaxConfigReloadFailed"),
        Stat("Certificates", "Days until the first certificate ends. A new one in its file is taken within ten seconds.",
             [("{{side}}", 'min by (side) (hapax_tls_certificate_expiry_timestamp_seconds{SELECTED} - time()) / 86400')], unit="d", minimum=None,
             thresholds=[{"color": RED, "value": None}, {"color": YELLOW, "value": 7}, {"color": GREEN, "value": 21}], runbook="HapaxCertificateExpiring"),
        Stat("Draining", "Processes that were told to end and serve their clients to their end. If it lasts, clients do not hang up: see drain.until and drain.timeout.",
             [("", 'sum(hapax_draining{SELECTED})')], thresholds=steps((0.5, YELLOW)), runbook="HapaxDrainForced"),
        Stat("Cut by a drain in 1 h", "Connections that were cut because drain.timeout was over. Give it, and the pod's grace period, more time.",
             [("", 'sum(increase(hapax_client_disconnects_total{SELECTED,cause="drain_timeout"}[1h]))')], instant=True, thresholds=steps((0.5, YELLOW)), runbook="HapaxDrainForced"),
        Stat("Counted as other in 1 h", "Label values beyond their cap. Raise metrics.maxTopics if these topics deserve series of their own.",
             [("{{label}}", 'sum by (label) (increase(hapax_label_overflows_total{SELECTED}[1h]))')], instant=True, thresholds=steps((0.5, YELLOW)), runbook="HapaxLabelOverflow"),
        Stat("Brokers without a port", "Brokers that clients cannot reach because listen.brokerPorts is too short. Widen it.",
             [("", 'sum(hapax_broker_slots_exhausted_total{SELECTED})')], thresholds=steps((0.5, RED)), runbook="HapaxBrokerWithoutPort"),
        Panel("Reloads", "Files that were read again, by what came of it. invalid and refused changed nothing.",
              [("{{outcome}}", 'sum by (outcome) (increase(hapax_config_reloads_total{SELECTED}[$__rate_interval]))')], runbook="HapaxConfigReloadFailed"),
        Panel("Logins to brokers", "By hapax's own credentials (upstream.sasl). refused: they have changed here or there.",
              [("{{outcome}}", 'sum by (outcome) (increase(hapax_upstream_logins_total{SELECTED}[$__rate_interval]))')], runbook="HapaxUpstreamLoginRefused"),
        Panel("Snapshots", "Written to state.dir, and failed. After a restart without one, retries are left to the broker.",
              [("written", 'sum(rate(hapax_snapshot_writes_total{SELECTED}[$__rate_interval]))'),
               ("failed", 'sum(rate(hapax_snapshot_failures_total{SELECTED}[$__rate_interval]))')], unit="ops", runbook="HapaxSnapshotFailing"),
        Table("Bytes that were not Kafka", "By side and reason. tls or http on a client's port: somebody probes it, or speaks TLS where none is configured.",
              [("in 1 h", 'topk(10, sum by (side, reason) (increase(hapax_bad_frames_total{SELECTED}[1h])))')], width=12, height=6),
        Table("Processes", "What runs where. A row of hapax dev does not belong into production: what clients write there is gone with the process.",
              [("processes", 'count by (pod, version, revision) (hapax_build_info{SELECTED})')], width=12, height=6, runbook="HapaxDevUpstreamInUse"),
    ],
}

PRODUCER_ROWS = {
    "What the producer's own metrics do not say": [
        Text("", "Kafka's producer metrics count retries (`record-retry-rate`) and errors. hapax sees what became of them. It has no label for the client: `hapax producers` and `/api/v1/producers` list producer id, epoch and client id.", height=3),
        Stat("Retries of all batches", "Share of the batches that came again. record-retry-rate counts the same tries as the client sees them.",
             [("", 'sum(rate(hapax_produce_batches_total{SELECTED,TOPIC,verdict=~"duplicate_.+"}[$__rate_interval])) / sum(rate(hapax_produce_batches_total{SELECTED,TOPIC}[$__rate_interval]))')],
             unit="percentunit", width=6, thresholds=steps((0.01, YELLOW), (0.05, RED)), runbook="HapaxDuplicateRatioHigh"),
        Stat("Missing records in 1 h", "Records that a producer gave up on and went on. The application got an error for each: see what it does with it.",
             [("", 'sum(increase(hapax_missing_records_total{SELECTED,TOPIC}[1h]))')], instant=True, width=6, thresholds=steps((0.5, RED)), runbook="HapaxSequenceGaps"),
        Stat("Fenced in 1 h", "Transactional producers that another took the place of. Two instances share a transactional id, or transactions time out.",
             [("", 'sum(increase(hapax_fenced_producers_total{SELECTED}[1h]))')], instant=True, width=6, thresholds=steps((0.5, YELLOW), (3.5, RED)), runbook="HapaxProducersFenced"),
        Stat("Written twice in 24 h", "Acknowledged batches that were written again under a new epoch. Tell the consumers.",
             [("", 'sum(increase(hapax_epoch_resends_total{SELECTED,original="acknowledged"}[24h]))')], instant=True, width=6, thresholds=steps((0.5, RED)), runbook="HapaxDuplicatesInLog"),
        Panel("Retries, by what became of them", "absorbed and resolved did not reach the log again; forwarded was left to the broker, which recognises its last five batches.",
              [("{{verdict}}", 'sum by (verdict) (rate(hapax_produce_batches_total{SELECTED,TOPIC,verdict=~"duplicate_.+"}[$__rate_interval]))')], unit="ops", width=12),
        Panel("Batches without idempotence", "Not followed, so that a retry of theirs is a duplicate in the log. Set enable.idempotence=true.",
              [("{{topic}}", 'sum by (topic) (rate(hapax_produce_batches_total{SELECTED,TOPIC,verdict="untracked"}[$__rate_interval]))')], unit="ops", width=12),
        Panel("Errors 45, 46, 47, 59 and 90", "What brokers answered. hapax explain and the number tells the causes and the client's setting.",
              [("{{error}}", 'sum by (error) (rate(hapax_broker_sequence_errors_total{SELECTED,TOPIC}[$__rate_interval]))')], unit="ops", width=12, runbook="HapaxOutOfOrderErrors"),
        Panel("Produce latency", "From the first byte of a request at hapax to its answer. Beside the client's request-latency-avg: what is longer there is its own queue or the way to hapax.",
              [("p50", 'histogram_quantile(0.5, sum by (le) (rate(hapax_request_duration_seconds_bucket{SELECTED,api="produce"}[$__rate_interval])))'),
               ("p99", 'histogram_quantile(0.99, sum by (le) (rate(hapax_request_duration_seconds_bucket{SELECTED,api="produce"}[$__rate_interval])))')], unit="s", width=12),
    ],
}


def datasource():
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
            "current": {"text": "default", "value": "default"}, "hide": 0,
            "includeAll": False, "multi": False, "options": [], "refresh": 1, "regex": "", "skipUrlSync": False}


def variable(name, label, query):
    """A choice of values that there are; All is any, and none at all, where targets have no such label.

    All jobs are those of hapax, so that process_ metrics are those of hapax too.
    """
    return {
        "name": name, "label": label, "type": "query", "datasource": DATASOURCE, "definition": query,
        "query": {"qryType": 1, "query": query, "refId": f"variable-{name}"},
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]}, "allValue": None if name == "job" else ".*",
        "includeAll": True, "multi": True,
        "hide": 0, "options": [], "refresh": 2, "regex": "", "skipUrlSync": False, "sort": 1,
    }


def narrowing(names, metric="hapax_build_info"):
    """Variables each of which offers what those before it leave."""
    chosen, made = [], []
    for name, label in names:
        within = "{" + ",".join(chosen) + "}" if chosen else ""
        made.append(variable(name, label, f"label_values({metric}{within}, {name})"))
        chosen.append(f'{name}=~"${name}"')
    return made


def laid_out(rows, selector):
    """All panels, rows first, from left to right."""
    panels, number, top = [], 0, 0
    for title, row in rows.items():
        number += 1
        panels.append({"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": top}, "panels": []})
        top, left, height = top + 1, 0, 0
        for panel in row:
            if left + panel.width > WIDTH:
                top, left, height = top + height, 0, 0
            number += 1
            panels.append(panel.model(number, {"h": panel.height, "w": panel.width, "x": left, "y": top}, selector))
            left, height = left + panel.width, max(height, panel.height)
        top += height
    return panels


def dashboard(uid, title, description, tags, variables, rows, selector, links):
    for panel in (panel for row in rows.values() for panel in row):
        panel.queries = [(legend, query.replace("TOPIC", TOPIC)) for legend, query in panel.queries]
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": tags,
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "fiscalYearStartMonth": 0,
        "liveNow": False,
        "weekStart": "",
        "annotations": {"list": [started(selector)]},
        "templating": {"list": variables},
        "links": links,
        "panels": laid_out(rows, selector),
    }


def started(selector):
    """Marks when a process started, which explains most of what changes all at once."""
    return {"name": "Starts", "datasource": DATASOURCE, "enable": True, "hide": False, "iconColor": "blue", "titleFormat": "hapax started",
            "textFormat": "{{pod}}", "tagKeys": "pod", "step": "60s",
            "expr": f"changes(process_start_time_seconds{{{selector}}}[2m]) > 0"}


def link(title, tags):
    return {"type": "dashboards", "title": title, "tags": tags, "asDropdown": True, "includeVars": True, "keepTime": True,
            "targetBlank": False, "icon": "external link", "tooltip": "", "url": ""}


def outside(title, url):
    return {"type": "link", "title": title, "url": url, "targetBlank": True, "icon": "doc", "asDropdown": False, "includeVars": False,
            "keepTime": False, "tags": [], "tooltip": ""}


def overview():
    names = [("cluster", "Cluster"), ("namespace", "Namespace"), ("job", "Job"), ("pod", "Pod")]
    topics = variable("topic", "Topic", f"label_values(hapax_produce_batches_total{{{OVERVIEW}}}, topic)")
    return dashboard(
        "hapax", "hapax", "What hapax sees and does between Kafka clients and brokers: retries, gaps, fencing, traffic, limits.",
        ["hapax", "kafka"], [datasource(), *narrowing(names), topics], OVERVIEW_ROWS, OVERVIEW,
        [outside("Runbooks", RUNBOOKS), link("Kafka dashboards", ["kafka"])])


def beside():
    names = narrowing([("env", "Environment")])
    topics = variable("topic", "Topic", f"label_values(hapax_produce_batches_total{{{BESIDE}}}, topic)")
    return dashboard(
        "hapax-producers", "Kafka producers: what became of retries", "Beside the dashboards of Kafka's own producer metrics, with their variables env and topic.",
        ["hapax", "kafka", "kafka-producer"], [datasource(), *names, topics], PRODUCER_ROWS, BESIDE,
        [link("Kafka dashboards", ["kafka"]), outside("Runbooks", RUNBOOKS)])


def main():
    folder = pathlib.Path(__file__).parent
    stale = []
    for name, made in (("hapax.json", overview()), ("hapax-producers.json", beside())):
        text = json.dumps(made, indent=2, ensure_ascii=False) + "\n"
        path = folder / name
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(name)
    if stale:
        sys.exit(f"{', '.join(stale)}: stale, run config/grafana/generate.py")


if __name__ == "__main__":
    main()
