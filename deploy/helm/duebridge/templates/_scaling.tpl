{{/* What is due and what will be: one number for all workers, shared out by how much each bears. */}}

{{- /*
Of the root, and an intake or none. One worker at a time tells what is due of a shard; the greatest
of them is taken before the sum, since the one before may still be seen for a scrape. Of a queue or topic each tells its own
share, NaN while it does not know.
*/ -}}
{{- define "duebridge.scalingQuery" -}}
{{- $root := first . -}}
{{- with last . -}}
sum(duebridge_intake_lag{intake={{ quote . }},namespace={{ quote $root.Release.Namespace }},service=~"{{ include "duebridge.services" $root }}"} >= 0)
{{- else -}}
{{- $where := printf "namespace=%q,service=%q" $root.Release.Namespace (include "duebridge.fullname" $root) -}}
sum(max by (route, shard) (duebridge_due_within{window="{{ $root.Values.scaling.window }}",{{ $where }}}))
{{- end -}}
{{- end -}}

{{- /* Of the place and the block that has min and max. */ -}}
{{- define "duebridge.scalingMax" -}}
{{- $min := int (last .).min -}}
{{- $max := int (last .).max -}}
{{- if lt $max $min -}}
  {{- fail (printf "%s.max: expected at least %s.min (%d); got %d" (first .) (first .) $min $max) -}}
{{- end -}}
{{- $max -}}
{{- end -}}

{{- /* By a pattern: the services of all workers of this release, for each runs its share of an intake. */ -}}
{{- define "duebridge.services" -}}
{{- $name := include "duebridge.fullname" . -}}
{{- $names := list $name -}}
{{- range $key, $_ := .Values.intakeWorkers -}}
  {{- $names = append $names (printf "%s-%s" $name $key) -}}
{{- end -}}
{{- join "|" $names -}}
{{- end -}}
