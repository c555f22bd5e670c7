{{/* The store's namespace: two releases that share a server must not share their routes. */}}

{{- /* As given; else where this release's envelopes are; else of the release and its own namespace. */ -}}
{{- define "duebridge.namespace" -}}
{{- $given := (default dict .Values.config.store).namespace -}}
{{- $installed := include "duebridge.installedNamespace" . -}}
{{- $derived := printf "%s.%s" .Release.Namespace .Release.Name -}}
{{- default (default $derived $installed) $given -}}
{{- end -}}

{{- /* What the workers that run now have, if they and their ConfigMap can be seen. */ -}}
{{- define "duebridge.installedNamespace" -}}
{{- with include "duebridge.installedText" . -}}
{{- default "duebridge" (default dict (fromYaml .).store).namespace -}}
{{- end -}}
{{- end -}}

{{- define "duebridge.installedText" -}}
{{- with include "duebridge.installedConfigMap" . -}}
{{- dig "data" "duebridge.yaml" "" (lookup "v1" "ConfigMap" $.Release.Namespace .) -}}
{{- end -}}
{{- end -}}

{{- /* One of the user's counts too: the release may have had that before. */ -}}
{{- define "duebridge.installedConfigMap" -}}
{{- $deployment := lookup "apps/v1" "Deployment" .Release.Namespace (include "duebridge.fullname" .) -}}
{{- range dig "spec" "template" "spec" "volumes" list $deployment -}}
{{- if eq .name "config" }}{{ .configMap.name }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* An upgrade to another one would leave what waits where no worker looks. */ -}}
{{- define "duebridge.refuseOtherNamespace" -}}
{{- $installed := include "duebridge.installedNamespace" . -}}
{{- $text := include "duebridge.configText" . -}}
{{- if and .Values.preflight.enabled $installed $text -}}
  {{- $new := default "duebridge" (default dict (fromYaml $text).store).namespace -}}
  {{- if ne $new $installed -}}
    {{- fail (printf "config.store.namespace: expected %s, where the envelopes of this release are; got %s (preflight.enabled=false leaves them there)" $installed $new) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
