{{/* How many pods a Deployment has: as values say, or as an autoscaler left it. */}}

{{- define "duebridge.replicas" -}}
{{- default .Values.replicas .Values.replicaCount -}}
{{- end -}}

{{- /*
Of the Deployment as it is, or nothing: the replicas to keep while something else scales. A field that
an upgrade leaves out falls to 1 if Helm set it last; it stays if an autoscaler did, by server-side
apply. Only then it is left out: an autoscaler may move it between rendering and upgrade.
*/ -}}
{{- define "duebridge.keptReplicas" -}}
{{- $applied := false -}}
{{- $scaled := false -}}
{{- range dig "metadata" "managedFields" list . -}}
  {{- $owned := default dict (get (default dict .fieldsV1) "f:spec") -}}
  {{- if and (eq .operation "Apply") (hasKey $owned "f:template") }}{{ $applied = true }}{{ end -}}
  {{- if and (eq (default "" .subresource) "scale") (hasKey $owned "f:replicas") }}{{ $scaled = true }}{{ end -}}
{{- end -}}
{{- if not (and $applied $scaled) -}}
{{- with dig "spec" "replicas" nil . }}{{ int . }}{{ end -}}
{{- end -}}
{{- end -}}
