{{/* What is refused because it may be a password: ConfigMaps and pods are read by many. */}}

{{- /* Of the root: all values that end in a ConfigMap or in a pod's template. */ -}}
{{- define "duebridge.refuseSecrets" -}}
{{- if not .Values.existingConfigMap -}}
  {{- include "duebridge.refuseSecretsAt" (list "config" .Values.config false) -}}
{{- end -}}
{{- include "duebridge.refuseSecretsAt" (list "env" .Values.env false) -}}
{{- include "duebridge.refuseSecretsAt" (list "spark.conf" .Values.spark.conf false) -}}
{{- end -}}

{{- /* Of a place, its value, and whether a key above says that it is a secret. */ -}}
{{- define "duebridge.refuseSecretsAt" -}}
{{- $place := first . -}}
{{- $value := index . 1 -}}
{{- $isSecret := last . -}}
{{- if kindIs "map" $value -}}
  {{- $areNames := has $place (list "config.brokers" "config.routes" "config.intakes") -}}
  {{- range $key, $inner := $value -}}
    {{- $says := and (not $areNames) (include "duebridge.isSecretName" $key) -}}
    {{- include "duebridge.refuseSecretsAt" (list (printf "%s.%s" $place $key) $inner (or $isSecret $says)) -}}
  {{- end -}}
{{- else if kindIs "slice" $value -}}
  {{- range $number, $inner := $value -}}
    {{- include "duebridge.refuseSecretsAt" (list (printf "%s.%d" $place $number) $inner $isSecret) -}}
  {{- end -}}
{{- else if not (or (kindIs "bool" $value) (kindIs "invalid" $value)) -}}
  {{- $shown := include "duebridge.withoutReferences" (toString $value) -}}
  {{- if or (and $isSecret $shown) (include "duebridge.holdsSecret" $shown) -}}
    {{- if hasPrefix "config." $place -}}
      {{- fail (printf "%s: expected its secret as a reference without a default, such as ${VAR}, and VAR under secrets.env; got a value" $place) -}}
    {{- end -}}
    {{- fail (printf "%s: expected no secret here, but a Secret's key under secrets.env; got a value" $place) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* Of a key: also where clients spell it with dots, dashes or in one word. Paths and names of code are none. */ -}}
{{- define "duebridge.isSecretName" -}}
{{- $names := "pass|pswd|pwd|secret|token|credential|jaas|sasl.*config$|key[._-]?pem$|(private|api|access|account|shared|ssl|keystore|signing)[._-]?key$" -}}
{{- if and (regexMatch (printf "(?i)(%s)" $names) .) (not (regexMatch "(?i)(url|uri|location|file|path|provider)$" .)) -}}
true
{{- end -}}
{{- end -}}

{{- /* Of a text: what is readable in it. A default of a reference is; $$ is a dollar sign. */ -}}
{{- define "duebridge.withoutReferences" -}}
{{- $text := regexReplaceAll "\\$\\$" . "#" -}}
{{- $text = regexReplaceAll "\\$\\{[A-Za-z_][A-Za-z0-9_]*:-([^{}$]*)\\}" $text "${1}" -}}
{{- regexReplaceAll "\\$\\{[^{}]*\\}" $text "" -}}
{{- end -}}

{{- /* Of a readable text: a URL with a password, an assignment to one, or a private key. */ -}}
{{- define "duebridge.holdsSecret" -}}
{{- $inUrl := "://[^/@]*:[^/@]+@" -}}
{{- $assigned := "(?i)(pass|pswd|pwd|secret|token|credential|(api|access|account)[._-]?key)[\\w.-]*(=|[\"']\\s*:)\\s*[\"']?[^\"'\\s&;,]" -}}
{{- /* Clients decode a parameter's name: ?pass%77ord= */ -}}
{{- $encoded := "://.*[?&][^=&]*%[^=&]*=" -}}
{{- if or (regexMatch $inUrl .) (regexMatch $assigned .) (regexMatch $encoded .) (contains "PRIVATE KEY-----" .) -}}
true
{{- end -}}
{{- end -}}
