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

{{- /*
One of the user's counts too: the release may have had that before. The workers are found by their labels: an upgrade
may give them another name. A chart around this one may have workers of another kind, or this chart twice.
*/ -}}
{{- define "duebridge.installedConfigMap" -}}
{{- $names := list -}}
{{- range dig "items" list (lookup "apps/v1" "Deployment" .Release.Namespace "") -}}
  {{- $labels := default dict .metadata.labels -}}
  {{- $isOurs := and (eq (toString (get $labels "app.kubernetes.io/instance")) $.Release.Name) (eq (toString (get $labels "app.kubernetes.io/component")) "worker") -}}
  {{- if and $isOurs (regexMatch (printf "^%s-[0-9]" $.Chart.Name) (toString (get $labels "helm.sh/chart"))) -}}
    {{- range dig "spec" "template" "spec" "volumes" list . -}}
      {{- if eq .name "config" }}{{ $names = append $names .configMap.name }}{{ end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- with $names }}{{ first . }}{{ end -}}
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
