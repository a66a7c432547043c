{{/*
Injection: the container and the volumes of hapax-sidecar, written as CEL, and the patches that put them into a Pod.
Patches, not an apply configuration: only they can say "first".
*/}}

{{/* The newest version of the API that the cluster serves, or what inject.apiVersion says. */}}
{{- define "hapax.inject.apiVersion" -}}
{{- $served := .Capabilities.APIVersions -}}
{{- $group := "admissionregistration.k8s.io" -}}
{{- if .Values.inject.apiVersion -}}
{{- printf "%s/%s" $group .Values.inject.apiVersion -}}
{{- else if $served.Has (printf "%s/v1/MutatingAdmissionPolicy" $group) -}}
{{- printf "%s/v1" $group -}}
{{- else if $served.Has (printf "%s/v1beta1/MutatingAdmissionPolicy" $group) -}}
{{- printf "%s/v1beta1" $group -}}
{{- else -}}
{{- fail (printf "\n\ninject.enabled: this cluster (Kubernetes %s) serves no MutatingAdmissionPolicy, with which hapax is put into Pods.\nIt is there from Kubernetes 1.36 on. On 1.34 and 1.35 the API server needs\n  --feature-gates=MutatingAdmissionPolicy=true --runtime-config=admissionregistration.k8s.io/v1beta1=true\nElse use the library chart hapax-sidecar in the application's own chart, or a snippet (hapax snippet).\nWhere Helm renders without a cluster, name the version: --set inject.apiVersion=v1\n" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- end -}}

{{/* Where a workload has its Pod: the resources, the path for patches, and the same in CEL. */}}
{{- define "hapax.inject.workloads" -}}
pods: {group: "", version: v1, path: "", pod: object}
deployments: {group: apps, version: v1, path: /spec/template, pod: object.spec.template}
statefulsets: {group: apps, version: v1, path: /spec/template, pod: object.spec.template}
daemonsets: {group: apps, version: v1, path: /spec/template, pod: object.spec.template}
jobs: {group: batch, version: v1, path: /spec/template, pod: object.spec.template}
cronjobs: {group: batch, version: v1, path: /spec/jobTemplate/spec/template, pod: object.spec.jobTemplate.spec.template}
{{- end -}}

{{/* The name of the objects for one workload: they have no namespace, so the release's is part of it. */}}
{{- define "hapax.inject.name" -}}
{{- printf "%s.%s.inject-%s" .root.Release.Namespace (include "hapax.chart.fullname" .root) .workload -}}
{{- end -}}

{{/* Which namespaces: those with the label, if nothing else is said. */}}
{{- define "hapax.inject.namespaceSelector" -}}
{{- if .Values.inject.namespaceSelector -}}
{{- toYaml .Values.inject.namespaceSelector -}}
{{- else -}}
matchLabels:
  {{ .Values.inject.label }}: enabled
{{- end -}}
{{- end -}}

{{/* A value as CEL. Lists and maps have items of one type there, and dyn() is any. */}}
{{- define "hapax.cel" -}}
{{- if kindIs "map" . -}}
{{- $items := list -}}
{{- range $key, $value := . -}}{{- $items = append $items (printf "%s: dyn(%s)" (toRawJson $key) (include "hapax.cel" $value)) -}}{{- end -}}
{{- if $items -}}{{- printf "{\n%s\n}" (join ",\n" $items | indent 2) -}}{{- else -}}{}{{- end -}}
{{- else if kindIs "slice" . -}}
{{- $items := list -}}
{{- range . -}}{{- $items = append $items (printf "dyn(%s)" (include "hapax.cel" .)) -}}{{- end -}}
{{- if $items -}}{{- printf "[\n%s\n]" (join ",\n" $items | indent 2) -}}{{- else -}}[]{{- end -}}
{{- else if kindIs "invalid" . -}}
null
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- printf "%.0f" . -}}
{{- else -}}
{{- toRawJson . -}}
{{- end -}}
{{- end -}}
