{{/* The workers: those of the lanes, and those that run one intake alone. */}}

{{- /* Of the root and an intake's name, or none. */ -}}
{{- define "duebridge.workerName" -}}
{{- $name := include "duebridge.fullname" (first .) -}}
{{- with last . -}}
  {{- if has . (list "check" "http" "valkey") -}}
    {{- fail (printf "intakeWorkers.%s: expected another name than check, http and valkey, which are the chart's own; choose one, and write the intake beneath it, as intake: %s" . .) -}}
  {{- end -}}
  {{- $name = printf "%s-%s" $name . -}}
  {{- if gt (len $name) 52 -}}
    {{- fail (printf "intakeWorkers.%s: expected at most 52 characters with the name before it; got %s" . $name) -}}
  {{- end -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- /* Of an intake worker's key, or none: the labels that tell its pods from all others. */ -}}
{{- define "duebridge.workerComponent" -}}
{{- if . -}}
app.kubernetes.io/component: intake
duebridge/intake: {{ quote . }}
{{- else -}}
app.kubernetes.io/component: worker
{{- end -}}
{{- end -}}

{{- /* Of the root, the key and the block with replicas and resources. */ -}}
{{- define "duebridge.deployment" -}}
{{- $root := first . -}}
{{- $key := index . 1 -}}
{{- $of := last . -}}
{{- $name := include "duebridge.workerName" (list $root $key) -}}
{{- $component := include "duebridge.workerComponent" $key -}}
{{- $replicas := ternary $of.replicas (include "duebridge.replicas" $root) (ne $key "") -}}
{{- $intake := and $key (default $key $of.intake) -}}
{{- with $root -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  {{- include "duebridge.annotations" (list . (fromYaml (include "duebridge.reloader" .))) | nindent 2 }}
  labels:
    {{- include "duebridge.labels" . | nindent 4 }}
    {{- $component | nindent 4 }}
spec:
  {{- if eq .Values.scaling.mode "none" }}
  replicas: {{ $replicas }}
  {{- else }}
  {{- with include "duebridge.keptReplicas" (lookup "apps/v1" "Deployment" .Release.Namespace $name) }}
  replicas: {{ . }}
  {{- end }}
  {{- end }}
  revisionHistoryLimit: {{ .Values.revisionHistoryLimit }}
  # A worker that ends soon after its start stops the rollout before the next one is replaced.
  minReadySeconds: 5
  strategy:
    {{- include "duebridge.strategy" (list . $of) | nindent 4 }}
  selector:
    matchLabels:
      {{- include "duebridge.selector" . | nindent 6 }}
      {{- $component | nindent 6 }}
  template:
    {{- $args := list "--config" "/etc/duebridge/duebridge.yaml" "run" "--health-port" "8080" }}
    {{- with $intake }}
    {{- $args = concat $args (list "--only" (printf "intake:%s" .)) }}
    {{- end }}
    {{- $port := dict "name" "health" "containerPort" 8080 }}
    {{- include "duebridge.podTemplate" (dict "root" . "component" $component "container" "worker" "args" $args "of" $of "port" $port) | nindent 4 }}
{{- end -}}
{{- end -}}
