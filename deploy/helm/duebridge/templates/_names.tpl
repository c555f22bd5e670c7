{{/* What everything is called, and by which labels it is found. */}}

{{- define "duebridge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "duebridge.fullname" -}}
{{- $name := include "duebridge.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- /* 45: a StatefulSet, with -valkey at its end, may have 52 */ -}}
{{- default $full .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- end -}}

{{- define "duebridge.selector" -}}
app.kubernetes.io/name: {{ include "duebridge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "duebridge.labels" -}}
{{ include "duebridge.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* Without the chart's version: a chart that renders the same pods restarts none. */ -}}
{{- define "duebridge.podLabels" -}}
{{ include "duebridge.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "duebridge.configMap" -}}
{{- default (include "duebridge.fullname" .) .Values.existingConfigMap -}}
{{- end -}}

{{- define "duebridge.serviceAccount" -}}
{{- default (ternary (include "duebridge.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "duebridge.valkey" -}}
{{ include "duebridge.fullname" . }}-valkey
{{- end -}}

{{- /* Of a block with repository, tag and digest, and the tag where it names none. */ -}}
{{- define "duebridge.image" -}}
{{- $image := first . -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ default (last .) $image.tag }}
{{- end -}}
{{- end -}}
