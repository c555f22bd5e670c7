{{/* The store's namespace: two releases that share a server must not share their routes. */}}

{{- /* As given; else where this release's envelopes are; else of the release and its own namespace. */ -}}
{{- define "duebridge.namespace" -}}
{{- $given := (default dict (default dict .Values.config).store).namespace -}}
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
One of the user's counts too: the release may have had that before. The workers are found by their name; by their
labels where an upgrade gives them another, which takes the right to list Deployments.
*/ -}}
{{- define "duebridge.installedConfigMap" -}}
{{- $named := lookup "apps/v1" "Deployment" .Release.Namespace (include "duebridge.fullname" .) -}}
{{- $found := include "duebridge.configMapOf" (list . (compact (list $named))) -}}
{{- if $found -}}
{{- $found -}}
{{- else if .Release.IsUpgrade -}}
{{- include "duebridge.configMapOf" (list . (dig "items" list (lookup "apps/v1" "Deployment" .Release.Namespace ""))) -}}
{{- end -}}
{{- end -}}

{{- /*
Of the root and Deployments: what the first of this release's workers mounts. A chart around this one may have workers
of another kind, or this chart twice.
*/ -}}
{{- define "duebridge.configMapOf" -}}
{{- $root := first . -}}
{{- $names := list -}}
{{- range last . -}}
  {{- $labels := default dict .metadata.labels -}}
  {{- $isOurs := and (eq (toString (get $labels "app.kubernetes.io/instance")) $root.Release.Name) (eq (toString (get $labels "app.kubernetes.io/component")) "worker") -}}
  {{- if and $isOurs (regexMatch (printf "^%s-[0-9]+\\." $root.Chart.Name) (toString (get $labels "helm.sh/chart"))) -}}
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
