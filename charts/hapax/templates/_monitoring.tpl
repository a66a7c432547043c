{{/* What PodMonitor and ServiceMonitor have in common: an item of their endpoints, but for the relabelings. */}}
{{- define "hapax.monitor.endpoint" -}}
port: hapax-metrics
path: /metrics
scheme: http
# The times of hapax are those of the scrape: else a restarted process would seem to have samples twice.
honorTimestamps: false
{{- with .interval }}
interval: {{ . }}
{{- end }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Where a monitor says who it is: dict "root" $ "component" NAME "of" VALUES. */}}
{{- define "hapax.monitor.metadata" -}}
name: {{ include "hapax.chart.fullname" .root | trunc 50 | trimSuffix "-" }}-{{ .component }}
namespace: {{ .of.namespace | default .root.Release.Namespace | quote }}
labels:
  {{- include "hapax.chart.labels" (dict "root" .root "component" .component "more" .of.additionalLabels) | nindent 2 }}
{{- with .of.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
The rule files of config/prometheus, as a map with groups: alerts left out, thresholds, waits, severities and links as the
values have them. Their own templates ({{ $labels.job }}) are only text here.
*/}}
{{- define "hapax.monitor.rules" -}}
{{- $values := .Values.prometheusRule -}}
{{- $groups := list -}}
{{- $known := dict -}}
{{- $bases := list -}}
{{- range $file := list "files/rules.yaml" "files/alerts.yaml" -}}
{{- range $group := ($.Files.Get $file | fromYaml).groups -}}
{{- $rules := list -}}
{{- range $rule := $group.rules -}}
{{- if $rule.alert -}}
{{- $name := $rule.alert -}}
{{- $full := printf "%s.%s" $name $rule.labels.severity -}}
{{- $_ := set $known $name true -}}
{{- $_ := set $known $full true -}}
{{- $threshold := get $values.thresholds $full -}}
{{- if not (hasKey $values.thresholds $full) -}}{{- $threshold = get $values.thresholds $name -}}{{- end -}}
{{- if or (hasKey $values.thresholds $full) (hasKey $values.thresholds $name) -}}
{{- $_ := set $rule "expr" (include "hapax.monitor.threshold" (dict "expr" $rule.expr "value" $threshold)) -}}
{{- end -}}
{{- with (get $values.for $full | default (get $values.for $name)) -}}{{- $_ := set $rule "for" . -}}{{- end -}}
{{- with (get $values.severities $full | default (get $values.severities $name)) -}}{{- $_ := set $rule.labels "severity" . -}}{{- end -}}
{{- range $key, $value := $values.additionalRuleLabels -}}{{- $_ := set $rule.labels $key $value -}}{{- end -}}
{{- $_ := set $rule.annotations "runbook_url" (printf "%s/%s.md" (trimSuffix "/" $values.runbookUrlBase) $name) -}}
{{- $_ := set $rule.annotations "dashboard" (printf "%s%s" (trimSuffix "/" $values.grafanaUrl) $rule.annotations.dashboard) -}}
{{- if not (or (has $name $values.disabled) (has $full $values.disabled)) -}}{{- $rules = append $rules $rule -}}{{- end -}}
{{- else -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
{{- with $rules -}}{{- $groups = append $groups (set $group "rules" .) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $named := dict "disabled" $values.disabled "thresholds" (keys $values.thresholds) "for" (keys $values.for) "severities" (keys $values.severities) -}}
{{- range $key, $names := $named -}}
{{- range $name := $names -}}
{{- if not (hasKey $known $name) -}}
{{- fail (printf "prometheusRule.%s names %s, which is no alert of hapax: there are %s" $key $name (keys $known | sortAlpha | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "groups" $groups | toYaml -}}
{{- end -}}

{{/* An expression with another number at its end, and wherever else it compares with that one. */}}
{{- define "hapax.monitor.threshold" -}}
{{- $expression := trim .expr -}}
{{- $old := regexFind "(==|!=|>=|<=|<|>) [0-9.]+$" $expression -}}
{{- if not $old -}}
{{- fail (printf "this alert compares with no number: %s" $expression) -}}
{{- end -}}
{{- $operator := regexFind "^[^ ]+" $old -}}
{{- $parts := list -}}
{{- range splitList "\n" $expression -}}
{{- $parts = append $parts (ternary (printf "%s%s %s" (trimSuffix $old .) $operator (include "hapax.text" $.value)) . (hasSuffix $old .)) -}}
{{- end -}}
{{- join "\n" $parts -}}
{{- end -}}
