{{/*
What an application's chart includes, each with its root context. All of them read the values of this chart, which Helm
puts under its name or alias in the values of the application: hapax-sidecar, or hapax.
*/}}

{{/* The container, as a map: for initContainers, or for containers where native is false. */}}
{{- define "hapax.sidecar" -}}
{{- $this := include "hapax.this" . | fromYaml -}}
{{- if not $this.values.enabled -}}
{{- fail (printf "%s.enabled is false: include hapax.initContainers and hapax.containers in place of hapax.sidecar, they leave the container out" $this.path) -}}
{{- end -}}
{{- if and (eq $this.form "native") (semverCompare "<1.29.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "%s.native needs Kubernetes 1.29 and this is %s, where the Pod would wait for hapax to end: set it to false, or tell helm template --kube-version" $this.path .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- include "hapax.container" (dict "root" . "values" $this.values "path" $this.path "form" $this.form "name" $this.values.name) -}}
{{- end -}}

{{/* The item of initContainers, where there is one: put it first. */}}
{{- define "hapax.initContainers" -}}
{{- $this := include "hapax.this" . | fromYaml -}}
{{- if and $this.values.enabled (eq $this.form "native") -}}
- {{ include "hapax.sidecar" . | indent 2 | trim }}
{{- end -}}
{{- end -}}

{{/* The item of containers, where there is one. */}}
{{- define "hapax.containers" -}}
{{- $this := include "hapax.this" . | fromYaml -}}
{{- if and $this.values.enabled (eq $this.form "plain") -}}
- {{ include "hapax.sidecar" . | indent 2 | trim }}
{{- end -}}
{{- end -}}

{{/* Items of volumes; nothing where hapax needs none. */}}
{{- define "hapax.volumes" -}}
{{- $this := include "hapax.this" . | fromYaml -}}
{{- if $this.values.enabled -}}
{{- include "hapax.containerVolumes" (dict "root" . "values" $this.values "path" $this.path "form" $this.form "name" $this.values.name) -}}
{{- end -}}
{{- end -}}

{{/* Entries of the Pod's annotations; nothing where there is nothing to say. */}}
{{- define "hapax.podAnnotations" -}}
{{- $this := include "hapax.this" . | fromYaml -}}
{{- if $this.values.enabled -}}
{{- include "hapax.containerAnnotations" (dict "root" . "values" $this.values "path" $this.path "form" $this.form "name" $this.values.name) -}}
{{- end -}}
{{- end -}}

{{/* A whole ConfigMap, where configMap.create is true; otherwise nothing. */}}
{{- define "hapax.configMap" -}}
{{- $this := include "hapax.this" . | fromYaml -}}
{{- if $this.values.enabled -}}
{{- include "hapax.containerConfigMap" (dict "root" . "values" $this.values "path" $this.path "form" $this.form "name" $this.values.name) -}}
{{- end -}}
{{- end -}}

{{/* Seconds: drain.timeout and what hapax needs to end after it. */}}
{{- define "hapax.terminationGracePeriodSeconds" -}}
{{- $this := include "hapax.this" . | fromYaml -}}
{{- include "hapax.gracePeriod" (dict "values" $this.values "path" $this.path) -}}
{{- end -}}

{{/* Where the application finds hapax: HOST:PORT. */}}
{{- define "hapax.bootstrap" -}}
{{- $this := include "hapax.this" . | fromYaml -}}
{{- include "hapax.clientAddress" (dict "values" $this.values) -}}
{{- end -}}

{{/*
An item of env for the application's container: the variable that injectEnv.name names, with the address of hapax.
With dict "root" $ "env" LIST in place of the root it is left out where LIST has that variable already.
*/}}
{{- define "hapax.env" -}}
{{- $root := . -}}
{{- $set := list -}}
{{- if hasKey . "root" -}}
{{- $root = .root -}}
{{- range .env -}}{{- $set = append $set .name -}}{{- end -}}
{{- end -}}
{{- $this := include "hapax.this" $root | fromYaml -}}
{{- $name := $this.values.injectEnv.name -}}
{{- if and $this.values.enabled $name (not (has $name $set)) -}}
- name: {{ $name }}
  value: {{ include "hapax.bootstrap" $root | quote }}
{{- end -}}
{{- end -}}

{{/* Where the values of this chart are, what they are, and the form that they ask for. */}}
{{- define "hapax.this" -}}
{{- $path := "" -}}
{{- if hasKey .Values "hapax-sidecar" -}}
{{- $path = "hapax-sidecar" -}}
{{- else if hasKey .Values "hapax" -}}
{{- $path = "hapax" -}}
{{- else -}}
{{- fail "the values of hapax-sidecar are neither under hapax-sidecar nor under hapax: make it a dependency with one of these as its name or alias, and include its templates with the root context ($)" -}}
{{- end -}}
{{- $values := get .Values $path -}}
{{- dict "path" $path "values" $values "form" (ternary "native" "plain" $values.native) | toYaml -}}
{{- end -}}
