{{/* What the jobs on Spark have in common, be they CronJobs or applications of the operator. */}}

{{- /* Of the root and a job's key. */ -}}
{{- define "duebridge.jobName" -}}
{{- $name := printf "%s-%s" (include "duebridge.fullname" (first .)) (last .) -}}
{{- if gt (len $name) 52 -}}
  {{- fail (printf "spark.jobs.%s: expected at most 52 characters with the name before it; got %s" (last .) $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- define "duebridge.sparkMounts" -}}
{{- include "duebridge.mounts" . }}
{{- with .Values.spark.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "duebridge.sparkVolumes" -}}
{{- include "duebridge.volumes" (list . (include "duebridge.configMap" .)) }}
{{- with .Values.spark.volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Of the operator: a driver and its executors have the same. */ -}}
{{- define "duebridge.sparkPod" -}}
cores: {{ .Values.spark.cores }}
memory: {{ .Values.spark.operator.memory }}
labels:
  {{- include "duebridge.podLabels" . | nindent 2 }}
  app.kubernetes.io/component: spark
{{- with include "duebridge.env" . }}
env:
  {{- . | nindent 2 }}
{{- end }}
{{- with include "duebridge.envFrom" . }}
{{ . }}
{{- end }}
volumeMounts:
  {{- include "duebridge.sparkMounts" . | nindent 2 }}
podSecurityContext:
  {{- include "duebridge.podSecurity" . | nindent 2 }}
securityContext:
  {{- include "duebridge.containerSecurity" . | nindent 2 }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
