{{/* What a Pod with hapax says of itself. */}}

{{- define "hapax.containerAnnotations" -}}
{{- $annotations := dict -}}
{{- if and .values.metrics.annotations (ne (include "hapax.isLoopback" .values.admin.listen) "true") -}}
{{- $_ := set $annotations "prometheus.io/scrape" "true" -}}
{{- $_ := set $annotations "prometheus.io/port" (include "hapax.portOf" .values.admin.listen) -}}
{{- $_ := set $annotations "prometheus.io/path" "/metrics" -}}
{{- end -}}
{{- if and .values.configMap.create (not .values.existingConfigMap) -}}
{{- $_ := set $annotations "hapax.io/restart-checksum" (include "hapax.restartChecksum" .) -}}
{{- end -}}
{{- with $annotations -}}{{- toYaml . -}}{{- end -}}
{{- end -}}

{{/*
The checksum of what hapax reads at its start only: such a change restarts Pods, as it would not take effect otherwise,
and a change of the other keys does not.
*/}}
{{- define "hapax.restartChecksum" -}}
{{- $config := deepCopy (.values.config | default dict) -}}
{{- range include "hapax.reloadedKeys" . | fromYamlArray -}}
{{- $path := splitList "." . -}}
{{- $section := $config -}}
{{- range initial $path -}}{{- $section = get $section . | default dict -}}{{- end -}}
{{- $_ := unset $section (last $path) -}}
{{- end -}}
{{- include "hapax.leaves" $config | sha256sum -}}
{{- end -}}

{{/* The values of a map, a line each: sections that have become empty do not count. */}}
{{- define "hapax.leaves" -}}
{{- range $key, $value := . -}}
{{- if kindIs "map" $value -}}
{{- range $line := include "hapax.leaves" $value | splitList "\n" -}}
{{- with $line }}{{ printf "%s.%s\n" $key . }}{{- end -}}
{{- end -}}
{{- else }}{{ printf "%s=%s\n" $key (toJson $value) }}
{{- end -}}
{{- end -}}
{{- end -}}
