{{/*
Beneath the interface, for charts that have more than one hapax or values of another shape. Each takes
dict "root" $ "values" MAP "form" "native|plain|gateway" "name" "hapax", where MAP has the keys of values.yaml, and "path",
where these are in the values that the user writes, for messages.
*/}}

{{/* The version of hapax that this chart was made for. */}}
{{- define "hapax.version" -}}0.1.0{{- end -}}

{{/* The container, as a map. */}}
{{- define "hapax.container" -}}
{{- include "hapax.validate" . -}}
{{- $values := deepCopy .values -}}
{{- $container := dict "name" (.name | default "hapax") -}}
{{- $_ := set $container "image" (include "hapax.image" .) -}}
{{- $_ := set $container "imagePullPolicy" $values.image.pullPolicy -}}
{{- $_ := set $container "args" (include "hapax.args" . | fromYamlArray) -}}
{{- $_ := set $container "env" (include "hapax.containerEnv" . | fromYamlArray) -}}
{{- with $values.extraEnvFrom -}}{{- $_ := set $container "envFrom" . -}}{{- end -}}
{{- with include "hapax.ports" . | fromYamlArray -}}{{- $_ := set $container "ports" . -}}{{- end -}}
{{- if eq .form "native" -}}{{- $_ := set $container "restartPolicy" "Always" -}}{{- end -}}
{{- range $kind, $name := dict "startup" "startupProbe" "liveness" "livenessProbe" "readiness" "readinessProbe" -}}
{{- with include "hapax.probe" (dict "kind" $kind "values" $values "form" $.form) | fromYaml -}}{{- $_ := set $container $name . -}}{{- end -}}
{{- end -}}
{{- with $values.resources -}}{{- $_ := set $container "resources" . -}}{{- end -}}
{{- with $values.securityContext -}}{{- $_ := set $container "securityContext" . -}}{{- end -}}
{{- $_ := set $container "terminationMessagePolicy" "FallbackToLogsOnError" -}}
{{- with include "hapax.volumeMounts" . | fromYamlArray -}}{{- $_ := set $container "volumeMounts" . -}}{{- end -}}
{{- include "hapax.patch" (dict "target" $container "patch" ($values.containerPatch | default dict)) -}}
{{- toYaml $container -}}
{{- end -}}

{{/* Changes target as a JSON merge patch would (RFC 7386). merge of Sprig forgets false and 0. */}}
{{- define "hapax.patch" -}}
{{- $target := .target -}}
{{- range $key, $value := .patch -}}
{{- $old := get $target $key -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := unset $target $key -}}
{{- else if and (kindIs "map" $value) (kindIs "map" $old) -}}
{{- include "hapax.patch" (dict "target" $old "patch" $value) -}}
{{- else -}}
{{- $_ := set $target $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "hapax.image" -}}
{{- $image := .values.image -}}
{{- $global := .root.Values.global | default dict -}}
{{- $registry := $global.imageRegistry | default $image.registry -}}
{{- $name := ternary (printf "%s/%s" $registry $image.repository) $image.repository (ne ($registry | default "") "") -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name ($image.tag | default (include "hapax.version" .) | toString) -}}
{{- end -}}
{{- end -}}

{{/* A list: extraArgs as it is, or as --key=value of a map; null or an empty text is a flag without a value. */}}
{{- define "hapax.args" -}}
- run
{{- if kindIs "map" .values.extraArgs -}}
{{- range $flag, $value := .values.extraArgs }}
- {{ if or (kindIs "invalid" $value) (eq (toString $value) "") }}{{ printf "--%s" $flag | quote }}{{ else }}{{ printf "--%s=%s" $flag (include "hapax.text" $value) | quote }}{{ end }}
{{- end -}}
{{- else -}}
{{- range .values.extraArgs }}
- {{ include "hapax.text" . | quote }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A list of the ports that others than the Pod's own containers reach. */}}
{{- define "hapax.ports" -}}
{{- if ne (include "hapax.isLoopback" .values.admin.listen) "true" }}
- name: hapax-metrics
  containerPort: {{ include "hapax.portOf" .values.admin.listen }}
  protocol: TCP
{{- end -}}
{{- if ne (include "hapax.isLoopback" .values.listen.bootstrap) "true" }}
- name: hapax-kafka
  containerPort: {{ include "hapax.portOf" .values.listen.bootstrap }}
  protocol: TCP
{{- end -}}
{{- end -}}

{{/*
A probe, or nothing where it is off or null. The kubelet asks the Pod's address; where only loopback answers, hapax asks itself. A handler among
the values takes the place of ours.
*/}}
{{- define "hapax.probe" -}}
{{- $kind := .kind -}}
{{- $given := get (.values.probes | default dict) $kind | default dict -}}
{{- $enabled := $given.enabled -}}
{{- if kindIs "invalid" $enabled -}}{{- $enabled = or (ne $kind "readiness") (eq .form "gateway") -}}{{- end -}}
{{- if and $given $enabled -}}
{{- $probe := omit $given "enabled" -}}
{{- if not (or $probe.httpGet $probe.exec $probe.tcpSocket $probe.grpc) -}}
{{- if eq (include "hapax.isLoopback" .values.admin.listen) "true" -}}
{{- $command := list "hapax" "wait" "--max=0" (printf "--admin=%s" .values.admin.listen) -}}
{{- if ne $kind "startup" -}}{{- $command = append $command (ternary "--ready" "--live" (eq $kind "readiness")) -}}{{- end -}}
{{- $_ := set $probe "exec" (dict "command" $command) -}}
{{- else -}}
{{- $paths := dict "startup" "/startupz" "liveness" "/livez" "readiness" "/readyz" -}}
{{- $_ := set $probe "httpGet" (dict "path" (get $paths $kind) "port" "hapax-metrics") -}}
{{- end -}}
{{- end -}}
{{- toYaml $probe -}}
{{- end -}}
{{- end -}}

{{/* The port of ADDRESS:PORT. */}}
{{- define "hapax.portOf" -}}
{{- regexFind "[0-9]+$" . -}}
{{- end -}}

{{- define "hapax.isLoopback" -}}
{{- regexMatch "^(127\\.|localhost:|\\[::1\\]|\\[::ffff:127\\.)" . -}}
{{- end -}}

{{- define "hapax.clientAddress" -}}
{{- if eq (include "hapax.isLoopback" .values.listen.bootstrap) "true" -}}
{{- .values.listen.bootstrap -}}
{{- else -}}
{{- printf "localhost:%s" (include "hapax.portOf" .values.listen.bootstrap) -}}
{{- end -}}
{{- end -}}

{{/* A value as hapax reads it from a text. Numbers of values are floats, which print with an exponent. */}}
{{- define "hapax.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- printf "%.0f" . -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{/* Seconds of a time such as 300ms, 25s or 5m, rounded up. */}}
{{- define "hapax.seconds" -}}
{{- $text := include "hapax.text" .time -}}
{{- if not (regexMatch "^([0-9]+(ms|s|m|h)|0)$" $text) -}}
{{- fail (printf "%s is %q: give a time such as 300ms, 25s or 5m" .name $text) -}}
{{- end -}}
{{- $number := regexFind "^[0-9]+" $text | int -}}
{{- $unit := regexFind "[a-z]+$" $text -}}
{{- if eq $unit "ms" -}}{{- div (add $number 999) 1000 -}}
{{- else if eq $unit "m" -}}{{- mul $number 60 -}}
{{- else if eq $unit "h" -}}{{- mul $number 3600 -}}
{{- else -}}{{- $number -}}
{{- end -}}
{{- end -}}

{{/* drain.timeout and five seconds for what follows it: the last lines of the log, and the snapshot of state. */}}
{{- define "hapax.gracePeriod" -}}
{{- $name := printf "%sdrain.timeout" (include "hapax.prefix" .) -}}
{{- add (include "hapax.seconds" (dict "time" .values.drain.timeout "name" $name) | int) 5 -}}
{{- end -}}

{{/* The path of the values with a dot behind it, for messages. */}}
{{- define "hapax.prefix" -}}
{{- with .path -}}{{- . -}}.{{- end -}}
{{- end -}}
