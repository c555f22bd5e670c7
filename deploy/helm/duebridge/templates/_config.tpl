{{/* The configuration file: its text, and the times that follow from it. */}}

{{- define "duebridge.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if .Values.valkey.enabled -}}
  {{- $store := default dict $config.store -}}
  {{- if $store.url -}}
    {{- fail "config.store.url: expected none, since valkey.enabled brings a store of its own" -}}
  {{- end -}}
  {{- $url := printf "redis://%s:6379/0" (include "duebridge.valkey" .) -}}
  {{- $_ := set $config "store" (merge (dict "url" $url) $store) -}}
{{- end -}}
{{- $store := default dict $config.store -}}
{{- $_ := set $config "store" (merge (dict "namespace" (include "duebridge.namespace" .)) $store) -}}
{{- if .Values.serve.enabled -}}
  {{- $serve := default dict $config.serve -}}
  {{- if not $serve.tokens -}}
    {{- fail "config.serve.tokens: expected a reference such as ${file:/secrets/http/tokens.yaml}, and the Secret under secrets.files, since serve.enabled opens a port; got none" -}}
  {{- end -}}
  {{- $_ := set $config "serve" (merge (dict "listen" "[::]:8480") $serve) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{- /*
Helm reads values as YAML 1.1: no is false there, and 0123 is 83; the program takes both for names. What was
written is gone by now, so all that no longer differs from such a name is refused.
*/ -}}
{{- define "duebridge.refuseMisreadNames" -}}
{{- range $block := ternary list (list "brokers" "routes" "intakes") (not (empty .Values.existingConfigMap)) -}}
  {{- range $name, $_ := default dict (get $.Values.config $block) -}}
    {{- if regexMatch "^(true|false|(0|[1-9][0-9]*)(\\.[0-9]*[1-9])?(e[+-][0-9]{2,})?)$" $name -}}
      {{- fail (printf "config.%s.%s: expected a name that YAML 1.1 reads as text: quote no, on, y, 0123, 1.10 and the like (\"no\"); got one that reads as %s. A route that is called just that needs an existingConfigMap" $block $name $name) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* The text that the pods will read, as far as it can be known now. */ -}}
{{- define "duebridge.configText" -}}
{{- if .Values.existingConfigMap -}}
  {{- $found := lookup "v1" "ConfigMap" .Release.Namespace .Values.existingConfigMap -}}
  {{- dig "data" "duebridge.yaml" "" $found -}}
{{- else -}}
  {{- include "duebridge.config" . -}}
{{- end -}}
{{- end -}}

{{- /* Of a ConfigMap that Helm can read: where serve listens, probes and the Service have to find it. */ -}}
{{- define "duebridge.refuseDeafServe" -}}
{{- $text := include "duebridge.configText" . -}}
{{- if and .Values.serve.enabled .Values.existingConfigMap $text -}}
  {{- $listen := (default dict (fromYaml $text).serve).listen | default "127.0.0.1:8480" | toString -}}
  {{- $isLocal := regexMatch "^(127\\.|localhost:|\\[::1\\])" $listen -}}
  {{- if or $isLocal (not (or (hasSuffix ":8480" $listen) (contains "$" $listen))) -}}
    {{- fail (printf "existingConfigMap: expected serve.listen \"[::]:8480\" in %s, where probes and the Service ask, and serve.tokens beside it, since serve.enabled; got %s" .Values.existingConfigMap $listen) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* A duration such as 1h30m or 1.5m as whole seconds, rounded up: all its parts. */ -}}
{{- define "duebridge.seconds" -}}
{{- $factors := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0 "w" 604800.0 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|[wdhms])" . -1 -}}
  {{- $sum = addf $sum (mulf (regexFind "[0-9.]+" .) (get $factors (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{- $sum | ceil | int -}}
{{- end -}}

{{- /* Drain, then what a publish that began just before may take: less would cut a message off. */ -}}
{{- define "duebridge.gracePeriod" -}}
{{- $given := .Values.terminationGracePeriodSeconds -}}
{{- $worker := default dict (fromYaml (include "duebridge.configText" .)).worker -}}
{{- $drain := default "20s" $worker.drain -}}
{{- $deadline := default "15s" $worker.publish_deadline -}}
{{- if contains "$" (print $drain $deadline) -}}
  {{- required "terminationGracePeriodSeconds: expected worker.drain + worker.publish_deadline, which are references here; got none" $given -}}
{{- else -}}
  {{- $least := add (include "duebridge.seconds" $drain) (include "duebridge.seconds" $deadline) -}}
  {{- if and $given (lt (int $given) (int $least)) -}}
    {{- fail (printf "terminationGracePeriodSeconds: expected at least %d (worker.drain %s + worker.publish_deadline %s); got %d" (int $least) $drain $deadline (int $given)) -}}
  {{- end -}}
  {{- /* 10 more: closing the brokers' clients and the store's */ -}}
  {{- default (add $least 10) $given | int64 -}}
{{- end -}}
{{- end -}}
