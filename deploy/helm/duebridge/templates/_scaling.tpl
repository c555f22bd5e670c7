{{/* What is due and what will be: one number for all workers, shared out by how much each bears. */}}

{{- /* Every worker tells the same of a shard, so the greatest is taken of those, then the sum. */ -}}
{{- define "duebridge.scalingQuery" -}}
{{- $where := printf "namespace=%q,service=%q" .Release.Namespace (include "duebridge.fullname" .) -}}
sum(max by (route, shard) (duebridge_due_within{window="{{ .Values.scaling.window }}",{{ $where }}}))
{{- end -}}

{{- define "duebridge.scalingMax" -}}
{{- $min := int .Values.scaling.min -}}
{{- $max := int .Values.scaling.max -}}
{{- if lt $max $min -}}
  {{- fail (printf "scaling.max: expected at least scaling.min (%d); got %d" $min $max) -}}
{{- end -}}
{{- $max -}}
{{- end -}}
