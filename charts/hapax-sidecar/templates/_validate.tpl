{{/* What makes no sense together, told before anything is installed. */}}

{{- define "hapax.validate" -}}
{{- $prefix := include "hapax.prefix" . -}}
{{- $values := .values -}}
{{- $config := $values.config | default dict -}}
{{- if not (or $values.upstream.bootstrap $values.existingConfigMap $values.extraEnv $values.extraEnvFrom $values.extraArgs) -}}
{{- fail (printf "%supstream.bootstrap is empty: name the brokers that hapax connects to, such as [kafka:9092]" $prefix) -}}
{{- end -}}
{{- range list "upstream.bootstrap" "upstream.tls.enabled" "upstream.tls.serverName" "upstream.sasl.mechanism" "upstream.sasl.username" "listen.bootstrap" "listen.brokerPorts" "listen.advertisedHost" "admin.listen" "drain.timeout" "drain.until" "drain.minDelay" -}}
{{- if include "hapax.at" (dict "path" (splitList "." .) "of" $config) -}}
{{- fail (printf "%sconfig.%s has a place of its own: set %s%s, which the rest of the Pod follows" $prefix . $prefix .) -}}
{{- end -}}
{{- end -}}
{{- if include "hapax.at" (dict "path" (list "state" "dir") "of" $config) -}}
{{- fail (printf "%sconfig.state.dir needs a volume: set %sstate.enabled" $prefix $prefix) -}}
{{- end -}}
{{- with $values.upstream.tls -}}
{{- if and .existingSecret (not .enabled) -}}
{{- fail (printf "%supstream.tls.existingSecret is set and %supstream.tls.enabled is not: set it to true, or leave the secret out" $prefix $prefix) -}}
{{- end -}}
{{- if and .existingSecret (ne (not .certKey) (not .keyKey)) -}}
{{- fail (printf "%supstream.tls.certKey and %supstream.tls.keyKey belong together: set both, or none" $prefix $prefix) -}}
{{- end -}}
{{- end -}}
{{- with $values.upstream.sasl -}}
{{- if and .existingSecret (or (not .mechanism) (eq .mechanism "none")) -}}
{{- fail (printf "%supstream.sasl.existingSecret is set and %supstream.sasl.mechanism is none: set it to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER" $prefix $prefix) -}}
{{- end -}}
{{- end -}}
{{- $_ := include "hapax.seconds" (dict "time" $values.drain.timeout "name" (printf "%sdrain.timeout" $prefix)) -}}
{{- end -}}

{{/* true where there is something at this path. */}}
{{- define "hapax.at" -}}
{{- $here := .of -}}
{{- range .path -}}
{{- if kindIs "map" $here -}}{{- $here = get $here . -}}{{- else -}}{{- $here = "" -}}{{- end -}}
{{- end -}}
{{- if not (kindIs "invalid" $here) -}}{{- if ne (toString $here) "" -}}true{{- end -}}{{- end -}}
{{- end -}}
