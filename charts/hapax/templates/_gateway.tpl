{{/* What the Deployment, the Services and the configuration of a gateway have to agree on. */}}

{{/* The ports for brokers: count, first, last and, where brokers is a list, slots (node id to port). */}}
{{- define "hapax.gateway.ports" -}}
{{- $gateway := .Values.gateway -}}
{{- $first := int $gateway.ports.brokers -}}
{{- $slots := dict -}}
{{- $count := 0 -}}
{{- if kindIs "slice" $gateway.brokers -}}
{{- $count = len $gateway.brokers -}}
{{- range $slot, $node := $gateway.brokers -}}
{{- $_ := set $slots (include "hapax.text" $node) (add $first $slot | int) -}}
{{- end -}}
{{- else -}}
{{- $count = int $gateway.brokers -}}
{{- end -}}
{{- dict "first" $first "count" $count "last" (add $first (sub $count 1) | int) "slots" $slots | toYaml -}}
{{- end -}}

{{/* Name of the Service of a slot: dict "root" $ "slot" N. */}}
{{- define "hapax.gateway.brokerName" -}}
{{- printf "%s-broker-%v" (include "hapax.chart.gatewayName" .root) .slot -}}
{{- end -}}

{{/* Host that clients are told, with {slot} where each broker has a Service. */}}
{{- define "hapax.gateway.advertisedHost" -}}
{{- $gateway := .Values.gateway -}}
{{- if $gateway.advertisedHost -}}
{{- $gateway.advertisedHost -}}
{{- else -}}
{{- $name := include "hapax.chart.gatewayName" . -}}
{{- if $gateway.service.perBroker -}}{{- $name = include "hapax.gateway.brokerName" (dict "root" . "slot" "{slot}") -}}{{- end -}}
{{- printf "%s.%s.svc.%s" $name .Release.Namespace $gateway.clusterDomain -}}
{{- end -}}
{{- end -}}

{{/* The least number of Pods that serve at once. */}}
{{- define "hapax.gateway.replicas" -}}
{{- ternary .Values.gateway.autoscaling.minReplicas .Values.gateway.replicaCount .Values.gateway.autoscaling.enabled | int -}}
{{- end -}}

{{/* The most. */}}
{{- define "hapax.gateway.mostReplicas" -}}
{{- ternary .Values.gateway.autoscaling.maxReplicas .Values.gateway.replicaCount .Values.gateway.autoscaling.enabled | int -}}
{{- end -}}

{{/* What `hapax.container` and its like take, as a map; dict "root" $ is added by who includes it. */}}
{{- define "hapax.gateway.values" -}}
{{- $gateway := .Values.gateway -}}
{{- $ports := include "hapax.gateway.ports" . | fromYaml -}}
{{- $values := include "hapax.chart.values" (dict "root" . "form" "gateway") | fromYaml -}}
{{- $listen := $values.listen -}}
{{- $_ := set $listen "bootstrap" (printf "%s:%d" $gateway.bindAddress (int $gateway.ports.bootstrap)) -}}
{{- $_ := set $listen "brokerPorts" (printf "%d-%d" (int $ports.first) (int $ports.last)) -}}
{{- $_ := set $listen "advertisedHost" (include "hapax.gateway.advertisedHost" .) -}}
{{- $_ := set $values.configMap "create" true -}}
{{- $_ := set $values.configMap "name" (include "hapax.chart.gatewayName" .) -}}
{{- if eq (toString .Values.drain.minDelay) "" -}}
{{- $_ := set $values.drain "minDelay" (printf "%ds" (int $gateway.preStopSleepSeconds)) -}}
{{- end -}}
{{- $fixed := dict "HAPAX_LISTEN_SLOT_COLLISIONS" "refuse" -}}
{{- if $ports.slots -}}
{{- $_ := set $fixed "HAPAX_LISTEN_NODE_SLOTS" (include "hapax.pairs" $ports.slots) -}}
{{- end -}}
{{- $extra := $values.extraEnv -}}
{{- if kindIs "map" $extra -}}
{{- range $name, $value := $extra -}}{{- $_ := set $fixed $name $value -}}{{- end -}}
{{- $_ := set $values "extraEnv" $fixed -}}
{{- else -}}
{{- $set := list -}}
{{- range $extra -}}{{- $set = append $set .name -}}{{- end -}}
{{- range $name, $value := $fixed -}}
{{- if not (has $name $set) -}}{{- $extra = append $extra (dict "name" $name "value" $value) -}}{{- end -}}
{{- end -}}
{{- $_ := set $values "extraEnv" $extra -}}
{{- end -}}
{{- toYaml $values -}}
{{- end -}}

{{/* What cannot work, told before anything is installed. */}}
{{- define "hapax.gateway.validate" -}}
{{- $gateway := .Values.gateway -}}
{{- $service := $gateway.service -}}
{{- $ports := include "hapax.gateway.ports" . | fromYaml -}}
{{- $bootstrap := int $gateway.ports.bootstrap -}}
{{- $admin := include "hapax.portOf" .Values.admin.listen | int -}}
{{- $first := int $ports.first -}}
{{- $last := int $ports.last -}}
{{- if not (or .Values.upstream.bootstrap .Values.existingConfigMap $gateway.extraEnv $gateway.extraEnvFrom $gateway.extraArgs) -}}
{{- fail "upstream.bootstrap is empty: name the brokers that hapax connects to, such as kafka:9092" -}}
{{- end -}}
{{- if gt $last 65535 -}}
{{- fail (printf "gateway.ports.brokers %d and %d brokers end at port %d: the last port there is is 65535" $first (int $ports.count) $last) -}}
{{- end -}}
{{- range $name, $port := dict "gateway.ports.bootstrap" $bootstrap "admin.listen" $admin -}}
{{- if and (ge $port $first) (le $port $last) -}}
{{- fail (printf "%s has port %d, which is one of the ports for brokers (%d to %d): move one of them" $name $port $first $last) -}}
{{- end -}}
{{- end -}}
{{- if eq $bootstrap $admin -}}
{{- fail (printf "gateway.ports.bootstrap and admin.listen both have port %d: move one of them" $admin) -}}
{{- end -}}
{{- if eq (include "hapax.isLoopback" .Values.admin.listen) "true" -}}
{{- fail (printf "admin.listen is %s: the probes of a gateway and Prometheus come to the Pod's address, so it has to be [::]:%d or 0.0.0.0:%d" .Values.admin.listen $admin $admin) -}}
{{- end -}}
{{- if and (eq $service.type "NodePort") (or (lt (min $bootstrap $first | int) 30000) (gt (max $bootstrap $last | int) 32767)) -}}
{{- fail (printf "gateway.service.type is NodePort, and clients are told the ports of hapax: set gateway.ports.bootstrap and gateway.ports.brokers within 30000 to 32767, such as 30092 and 30093, instead of %d and %d" $bootstrap $first) -}}
{{- end -}}
{{- if and (ne $service.type "ClusterIP") (not $gateway.advertisedHost) -}}
{{- fail (printf "gateway.service.type is %s, and clients outside cannot use the Service's name: set gateway.advertisedHost to the name that they connect to" $service.type) -}}
{{- end -}}
{{- if and (eq $service.type "LoadBalancer") $service.perBroker (not (contains "{slot}" $gateway.advertisedHost)) -}}
{{- fail (printf "gateway.advertisedHost is %s, one name for as many load balancers as there are brokers: write {slot} in it, such as broker-{slot}.kafka.example.com, or set gateway.service.perBroker to false, which makes one load balancer" $gateway.advertisedHost) -}}
{{- end -}}
{{- if and (not $service.perBroker) (gt (int $ports.count) 99) -}}
{{- fail (printf "%d brokers do not fit into one Service, whose endpoints have 100 ports at most: set gateway.service.perBroker to true" (int $ports.count)) -}}
{{- end -}}
{{- range $key := list "bootstrap" "brokerPorts" "advertisedHost" "nodeSlots" "slotCollisions" -}}
{{- if include "hapax.at" (dict "path" (list "listen" $key) "of" $.Values.config) -}}
{{- fail (printf "config.listen.%s is for the Services of the gateway to say: set gateway.ports, gateway.brokers, gateway.bindAddress or gateway.advertisedHost" $key) -}}
{{- end -}}
{{- end -}}
{{- $ownLogin := or (ne .Values.upstream.sasl.mechanism "none") (and .Values.upstream.tls.existingSecret .Values.upstream.tls.certKey) -}}
{{- $proven := or .Values.listen.sasl.existingSecret (and .Values.listen.tls.existingSecret .Values.listen.tls.clientCaKey) .Values.existingConfigMap (.Values.config | default dict).allowOpenListener -}}
{{- if and $ownLogin (not $proven) -}}
{{- fail "the gateway has credentials of its own for the brokers (upstream.sasl or upstream.tls.certKey), and whoever reaches it could use them: let clients prove who they are with listen.sasl.existingSecret or listen.tls.clientCaKey, or set config.allowOpenListener to true" -}}
{{- end -}}
{{- $values := include "hapax.gateway.values" . | fromYaml -}}
{{- $timeout := include "hapax.seconds" (dict "time" $values.drain.timeout "name" "drain.timeout") | int -}}
{{- $delay := include "hapax.seconds" (dict "time" $values.drain.minDelay "name" "drain.minDelay") | int -}}
{{- if and $delay (ge $delay $timeout) -}}
{{- fail (printf "a Pod that is to end serves on for %d s (gateway.preStopSleepSeconds or drain.minDelay), which leaves nothing of drain.timeout, %d s: raise drain.timeout" $delay $timeout) -}}
{{- end -}}
{{- if and $gateway.autoscaling.enabled (lt (int $gateway.autoscaling.maxReplicas) (int $gateway.autoscaling.minReplicas)) -}}
{{- fail (printf "gateway.autoscaling.maxReplicas is %d and minReplicas %d: the most is less than the fewest" (int $gateway.autoscaling.maxReplicas) (int $gateway.autoscaling.minReplicas)) -}}
{{- end -}}
{{- $scales := or (ne (int $gateway.autoscaling.targetConnections) 0) (ne (int $gateway.autoscaling.targetCPUUtilizationPercentage) 0) (ne (int $gateway.autoscaling.targetMemoryUtilizationPercentage) 0) $gateway.autoscaling.metrics -}}
{{- if and $gateway.autoscaling.enabled (not $scales) -}}
{{- fail "gateway.autoscaling.enabled is true, and every target is 0: set targetConnections, targetCPUUtilizationPercentage, targetMemoryUtilizationPercentage or metrics" -}}
{{- end -}}
{{- end -}}

{{/* The argument of hapax.container and its like. */}}
{{- define "hapax.gateway.this" -}}
{{- dict "values" (include "hapax.gateway.values" . | fromYaml) "form" "gateway" "name" "hapax" "path" "" | toYaml -}}
{{- end -}}
