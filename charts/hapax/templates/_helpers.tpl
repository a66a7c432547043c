{{/* Names, labels and what several objects ask for. */}}

{{- define "hapax.chart.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "hapax.chart.fullname" -}}
{{- $name := include "hapax.chart.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | replace "." "-" | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* With room for -broker-499 behind it: names of Services have 63 characters. */}}
{{- define "hapax.chart.gatewayName" -}}
{{- printf "%s-gateway" (include "hapax.chart.fullname" . | trunc 44 | trimSuffix "-") -}}
{{- end -}}

{{- define "hapax.chart.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "hapax.chart.gatewayName" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* Labels of an object: dict "root" $ "component" NAME, and "more", a map that the user gave. */}}
{{- define "hapax.chart.labels" -}}
{{- $root := .root -}}
{{- $labels := dict "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- $_ := set $labels "app.kubernetes.io/version" (regexReplaceAll "@.*" ($root.Values.image.tag | default $root.Chart.AppVersion | toString) "" | trunc 63 | trimSuffix "-") -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $labels "app.kubernetes.io/part-of" "hapax" -}}
{{- range $key, $value := $root.Values.commonLabels -}}{{- $_ := set $labels $key $value -}}{{- end -}}
{{- range $key, $value := .more -}}{{- $_ := set $labels $key $value -}}{{- end -}}
{{- range $key, $value := include "hapax.chart.selector" . | fromYaml -}}{{- $_ := set $labels $key $value -}}{{- end -}}
{{- toYaml $labels -}}
{{- end -}}

{{/* The labels by which a component is found: they never change. */}}
{{- define "hapax.chart.selector" -}}
app.kubernetes.io/name: {{ include "hapax.chart.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of Pods of the gateway. */}}
{{- define "hapax.chart.podLabels" -}}
{{- $labels := include "hapax.chart.labels" . | fromYaml -}}
{{- $_ := set $labels "hapax.io/form" "gateway" -}}
{{- toYaml (omit $labels "helm.sh/chart" "app.kubernetes.io/version") -}}
{{- end -}}

{{/* A list of references: imagePullSecrets may be names or maps. */}}
{{- define "hapax.chart.imagePullSecrets" -}}
{{- $all := concat ((.Values.global | default dict).imagePullSecrets | default list) (.Values.imagePullSecrets | default list) -}}
{{- $references := list -}}
{{- range $all -}}{{- $references = append $references (ternary (dict "name" .) . (kindIs "string" .)) -}}{{- end -}}
{{- with uniq $references -}}{{- toYaml . -}}{{- end -}}
{{- end -}}

{{/*
The values of a form, shaped as those of hapax-sidecar: its defaults, over them what holds for every hapax of this chart,
and over that what belongs to the form. dict "root" $ "form" "sidecar|gateway".
*/}}
{{- define "hapax.chart.values" -}}
{{- $root := .root -}}
{{- $values := get $root.Values "hapax-sidecar" | deepCopy -}}
{{- $shared := pick $root.Values "image" "upstream" "listen" "admin" "config" "existingConfigMap" "drain" | deepCopy -}}
{{- include "hapax.patch" (dict "target" $values "patch" $shared) -}}
{{- if not $values.config -}}{{- $_ := set $values "config" dict -}}{{- end -}}
{{- $own := get $root.Values .form | deepCopy -}}
{{- $keys := list "name" "native" "resources" "securityContext" "probes" "injectEnv" "state" "extraEnv" "extraEnvFrom" "extraArgs" "extraVolumes" "extraVolumeMounts" "containerPatch" -}}
{{- range $key := $keys -}}
{{- if hasKey $own $key -}}{{- $_ := set $values $key (get $own $key) -}}{{- end -}}
{{- end -}}
{{- toYaml $values -}}
{{- end -}}
