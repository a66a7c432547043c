{{/* What a Pod with hapax says of itself. */}}

{{- define "hapax.containerAnnotations" -}}
{{- $annotations := dict -}}
{{- if .values.metrics.annotations -}}
{{- $_ := set $annotations "prometheus.io/scrape" "true" -}}
{{- $_ := set $annotations "prometheus.io/port" (include "hapax.portOf" .values.admin.listen) -}}
{{- $_ := set $annotations "prometheus.io/path" "/metrics" -}}
{{- end -}}
{{- with $annotations -}}{{- toYaml . -}}{{- end -}}
{{- end -}}
