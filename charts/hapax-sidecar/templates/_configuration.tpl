{{/*
How configuration reaches the container. What the Pod's own fields have to agree with (addresses, the drain, the files of
secrets) is set by variables, which win over a file; config is either more variables, or the file of a ConfigMap, which
hapax reads again when it changes.
*/}}

{{/* Whether config comes from a file: a ConfigMap of this chart, or one that exists. */}}
{{- define "hapax.hasFile" -}}
{{- or (ne (.values.existingConfigMap | default "") "") .values.configMap.create -}}
{{- end -}}

{{- define "hapax.configMapName" -}}
{{- if .values.existingConfigMap -}}
{{- .values.existingConfigMap -}}
{{- else -}}
{{- .values.configMap.name | default (printf "%s-%s" .root.Release.Name (.name | default "hapax")) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "hapax.containerConfigMap" -}}
{{- if and .values.configMap.create (not .values.existingConfigMap) -}}
{{- include "hapax.validate" . -}}
{{- $text := toYaml (.values.config | default dict) -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "hapax.configMapName" . }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    app.kubernetes.io/name: hapax
    app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
    app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
  annotations:
    hapax.io/checksum: {{ sha256sum $text }}
data:
  hapax.yaml: |
    {{- $text | nindent 4 }}
{{- end -}}
{{- end -}}

{{/* A list: variables by name, then what the user added, which wins. */}}
{{- define "hapax.containerEnv" -}}
{{- $variables := dict -}}
{{- $hasFile := eq (include "hapax.hasFile" .) "true" -}}
{{- if $hasFile -}}
{{- $_ := set $variables "HAPAX_CONFIG" (printf "/etc/hapax/config/%s" .values.configMap.key) -}}
{{- else -}}
{{- $known := include "hapax.variables" . | fromYaml -}}
{{- include "hapax.flatten" (dict "into" $variables "known" $known "above" (printf "%sconfig" (include "hapax.prefix" .)) "path" (list) "of" .values.config) -}}
{{- end -}}
{{- include "hapax.fixed" (dict "into" $variables "values" .values "form" .form "hasFile" $hasFile) -}}
{{- $extra := list -}}
{{- if kindIs "map" .values.extraEnv -}}
{{- range $name, $value := .values.extraEnv -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $extra = append $extra (dict "name" $name "value" (include "hapax.text" $value)) -}}
{{- end -}}
{{- end -}}
{{- else -}}
{{- $extra = .values.extraEnv | default list -}}
{{- end -}}
{{- range $extra -}}{{- $_ := unset $variables .name -}}{{- end -}}
{{- $env := list -}}
{{- range $name, $value := $variables -}}
{{- $env = append $env (dict "name" $name "value" $value) -}}
{{- end -}}
{{- concat $env $extra | toYaml -}}
{{- end -}}

{{/*
What the Pod's own fields have to agree with. What hapax does anyway is left out, unless a file could say otherwise;
admin.listen is not, because images may set it, nor is drain.timeout, which the Pod's grace period has to be read with.
*/}}
{{- define "hapax.fixed" -}}
{{- $into := .into -}}
{{- $values := .values -}}
{{- with $values.upstream.bootstrap -}}{{- $_ := set $into "HAPAX_UPSTREAM" (include "hapax.words" .) -}}{{- end -}}
{{- $_ := set $into "HAPAX_ADMIN_LISTEN" $values.admin.listen -}}
{{- /* Whom hapax events and the others ask, typed into this container. */ -}}
{{- $admin := include "hapax.portOf" $values.admin.listen -}}
{{- if ne $admin "9180" -}}{{- $_ := set $into "HAPAX_ADMIN" (printf "127.0.0.1:%s" $admin) -}}{{- end -}}
{{- $_ := set $into "HAPAX_DRAIN_TIMEOUT" (include "hapax.text" $values.drain.timeout) -}}
{{- $until := $values.drain.until | default (ternary "requests" "connections" (eq .form "gateway")) -}}
{{- $delay := include "hapax.text" $values.drain.minDelay -}}
{{- if eq $delay "" -}}
{{- /* hapax refuses a delay that leaves nothing of the timeout. */ -}}
{{- $hasTime := gt (include "hapax.seconds" (dict "time" $values.drain.timeout "name" "drain.timeout") | int) 5 -}}
{{- $delay = ternary "5s" "0s" (and (eq .form "plain") $hasTime) -}}
{{- end -}}
{{- $hasFile := .hasFile -}}
{{- range list
  (list "HAPAX_LISTEN" $values.listen.bootstrap "127.0.0.1:19092")
  (list "HAPAX_BROKER_PORTS" $values.listen.brokerPorts "19093-19192")
  (list "HAPAX_DRAIN_UNTIL" $until "connections")
  (list "HAPAX_DRAIN_MIN_DELAY" $delay "0s") -}}
{{- if or $hasFile (ne (index . 1) (index . 2)) -}}{{- $_ := set $into (index . 0) (index . 1) -}}{{- end -}}
{{- end -}}
{{- with $values.listen.advertisedHost -}}{{- $_ := set $into "HAPAX_LISTEN_ADVERTISED_HOST" . -}}{{- end -}}
{{- if $values.state.enabled -}}{{- $_ := set $into "HAPAX_STATE_DIR" "/var/lib/hapax" -}}{{- end -}}
{{- if $values.upstream.tls.enabled -}}
{{- $_ := set $into "HAPAX_UPSTREAM_TLS_ENABLED" "true" -}}
{{- with $values.upstream.tls.serverName -}}{{- $_ := set $into "HAPAX_UPSTREAM_TLS_SERVER_NAME" . -}}{{- end -}}
{{- end -}}
{{- with $values.upstream.sasl -}}
{{- if and .mechanism (ne .mechanism "none") -}}
{{- $_ := set $into "HAPAX_UPSTREAM_SASL_MECHANISM" .mechanism -}}
{{- with .username -}}{{- $_ := set $into "HAPAX_UPSTREAM_SASL_USERNAME" . -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- range include "hapax.secretFiles" $values | fromYamlArray -}}
{{- $_ := set $into .variable (printf "/etc/hapax/%s/%s" .folder .file) -}}
{{- end -}}
{{- end -}}

{{/* A list of the files that secrets give: secret, key, folder, file, variable. */}}
{{- define "hapax.secretFiles" -}}
{{- $files := list -}}
{{- with .upstream.tls -}}
{{- if .existingSecret -}}
{{- $files = concat $files (list
  (dict "secret" .existingSecret "key" .caKey "folder" "upstream-tls" "file" "ca.crt" "variable" "HAPAX_UPSTREAM_TLS_CA_FILE")
  (dict "secret" .existingSecret "key" .certKey "folder" "upstream-tls" "file" "tls.crt" "variable" "HAPAX_UPSTREAM_TLS_CERT_FILE")
  (dict "secret" .existingSecret "key" .keyKey "folder" "upstream-tls" "file" "tls.key" "variable" "HAPAX_UPSTREAM_TLS_KEY_FILE")) -}}
{{- end -}}
{{- end -}}
{{- with .upstream.sasl -}}
{{- if .existingSecret -}}
{{- $name := ternary "" .usernameKey (or (eq .mechanism "OAUTHBEARER") (ne (.username | default "") "")) -}}
{{- $password := ternary "" .passwordKey (eq .mechanism "OAUTHBEARER") -}}
{{- $token := ternary .tokenKey "" (eq .mechanism "OAUTHBEARER") -}}
{{- $files = concat $files (list
  (dict "secret" .existingSecret "key" $name "folder" "upstream-sasl" "file" "username" "variable" "HAPAX_UPSTREAM_SASL_USERNAME_FILE")
  (dict "secret" .existingSecret "key" $password "folder" "upstream-sasl" "file" "password" "variable" "HAPAX_UPSTREAM_SASL_PASSWORD_FILE")
  (dict "secret" .existingSecret "key" $token "folder" "upstream-sasl" "file" "token" "variable" "HAPAX_UPSTREAM_SASL_TOKEN_FILE")
  (dict "secret" .existingSecret "key" .oauth.clientIdKey "folder" "upstream-sasl" "file" "client-id" "variable" "HAPAX_UPSTREAM_SASL_OAUTH_CLIENT_ID_FILE")
  (dict "secret" .existingSecret "key" .oauth.clientSecretKey "folder" "upstream-sasl" "file" "client-secret" "variable" "HAPAX_UPSTREAM_SASL_OAUTH_CLIENT_SECRET_FILE")) -}}
{{- end -}}
{{- end -}}
{{- with .listen.tls -}}
{{- if .existingSecret -}}
{{- $files = concat $files (list
  (dict "secret" .existingSecret "key" .certKey "folder" "listen-tls" "file" "tls.crt" "variable" "HAPAX_LISTEN_TLS_CERT_FILE")
  (dict "secret" .existingSecret "key" .keyKey "folder" "listen-tls" "file" "tls.key" "variable" "HAPAX_LISTEN_TLS_KEY_FILE")
  (dict "secret" .existingSecret "key" .clientCaKey "folder" "listen-tls" "file" "ca.crt" "variable" "HAPAX_LISTEN_TLS_CLIENT_CA_FILE")) -}}
{{- end -}}
{{- end -}}
{{- with .listen.sasl -}}
{{- if .existingSecret -}}
{{- $files = append $files (dict "secret" .existingSecret "key" .usersKey "folder" "listen-sasl" "file" "users" "variable" "HAPAX_LISTEN_SASL_USERS_FILE") -}}
{{- end -}}
{{- end -}}
{{- $wanted := list -}}
{{- range $files -}}{{- if .key -}}{{- $wanted = append $wanted . -}}{{- end -}}{{- end -}}
{{- toYaml $wanted -}}
{{- end -}}

{{/*
One volume for everything that hapax reads: the kubelet changes all of a projected volume at once, and hapax sees a
changed file within ten seconds after it. Mode 0444, because these files are root's: without an fsGroup, which changes the
owner of the application's volumes too, no other mode lets uid 65532 read them. Only this container mounts them.
*/}}
{{- define "hapax.containerVolumes" -}}
{{- $volumes := list -}}
{{- $sources := list -}}
{{- if eq (include "hapax.hasFile" .) "true" -}}
{{- $key := .values.configMap.key -}}
{{- $items := list (dict "key" $key "path" (printf "config/%s" $key)) -}}
{{- $sources = append $sources (dict "configMap" (dict "name" (include "hapax.configMapName" .) "items" $items)) -}}
{{- end -}}
{{- range include "hapax.secretFiles" .values | fromYamlArray -}}
{{- $items := list (dict "key" .key "path" (printf "%s/%s" .folder .file)) -}}
{{- $sources = append $sources (dict "secret" (dict "name" .secret "items" $items)) -}}
{{- end -}}
{{- if $sources -}}
{{- $volumes = append $volumes (dict "name" (include "hapax.volumeName" .) "projected" (dict "defaultMode" 292 "sources" $sources)) -}}
{{- end -}}
{{- if .values.state.enabled -}}
{{- $volume := deepCopy .values.state.volume -}}
{{- /* A volume of the user's stands beside the default among merged values, and has one source. */ -}}
{{- if gt (len $volume) 1 -}}{{- $volume = omit $volume "emptyDir" -}}{{- end -}}
{{- $_ := set $volume "name" (printf "%s-state" (include "hapax.volumeName" .)) -}}
{{- $volumes = append $volumes $volume -}}
{{- end -}}
{{- with concat $volumes (.values.extraVolumes | default list) -}}{{- toYaml . -}}{{- end -}}
{{- end -}}

{{/* A list, empty where there are none. */}}
{{- define "hapax.volumeMounts" -}}
{{- $mounts := list -}}
{{- if or (eq (include "hapax.hasFile" .) "true") (include "hapax.secretFiles" .values | fromYamlArray) -}}
{{- $mounts = append $mounts (dict "name" (include "hapax.volumeName" .) "mountPath" "/etc/hapax" "readOnly" true) -}}
{{- end -}}
{{- if .values.state.enabled -}}
{{- $mounts = append $mounts (dict "name" (printf "%s-state" (include "hapax.volumeName" .)) "mountPath" "/var/lib/hapax") -}}
{{- end -}}
{{- concat $mounts (.values.extraVolumeMounts | default list) | toYaml -}}
{{- end -}}

{{- define "hapax.volumeName" -}}
{{- .name | default "hapax" -}}
{{- end -}}

{{/* config as variables, whose texts are what the flags take. */}}
{{- define "hapax.flatten" -}}
{{- range $key, $value := .of -}}
{{- $path := append $.path $key -}}
{{- $dotted := join "." $path -}}
{{- $variable := get $.known $dotted -}}
{{- if and (not $variable) (kindIs "map" $value) -}}
{{- include "hapax.flatten" (dict "into" $.into "known" $.known "above" $.above "path" $path "of" $value) -}}
{{- else if not $variable -}}
{{- fail (printf "%s.%s is no key of hapax: config/hapax.yaml has them all" $.above $dotted) -}}
{{- else if eq $dotted "policies" -}}
{{- $_ := set $.into $variable (include "hapax.policies" $value) -}}
{{- else if kindIs "map" $value -}}
{{- $_ := set $.into $variable (include "hapax.pairs" $value) -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := set $.into $variable (include "hapax.words" $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A list as words with commas between them, anything else as it is. */}}
{{- define "hapax.words" -}}
{{- if kindIs "slice" . -}}
{{- $words := list -}}
{{- range . -}}{{- $words = append $words (include "hapax.text" .) -}}{{- end -}}
{{- join "," $words -}}
{{- else -}}
{{- include "hapax.text" . -}}
{{- end -}}
{{- end -}}

{{/* A map as KEY=VALUE with commas between them. */}}
{{- define "hapax.pairs" -}}
{{- $pairs := list -}}
{{- range $key, $value := . -}}{{- $pairs = append $pairs (printf "%s=%s" $key (include "hapax.text" $value)) -}}{{- end -}}
{{- join "," $pairs -}}
{{- end -}}

{{/* Policies as TOPICS=REQUIREMENTS with commas between them. */}}
{{- define "hapax.policies" -}}
{{- if kindIs "slice" . -}}
{{- $policies := list -}}
{{- range . -}}
{{- if kindIs "map" . -}}
{{- $topics := .topics -}}{{- if kindIs "slice" $topics -}}{{- $topics = join "+" $topics -}}{{- end -}}
{{- $require := .require -}}{{- if kindIs "slice" $require -}}{{- $require = join "+" $require -}}{{- end -}}
{{- $policies = append $policies (printf "%s=%s" $topics $require) -}}
{{- else -}}
{{- $policies = append $policies (toString .) -}}
{{- end -}}
{{- end -}}
{{- join "," $policies -}}
{{- else -}}
{{- include "hapax.text" . -}}
{{- end -}}
{{- end -}}
