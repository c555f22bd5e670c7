{{/* What the jobs on Spark have in common, be they CronJobs or applications of the operator. */}}

{{- /*
Of the root and a job's key. A label holds 63: of it CronJobs take 11, and the operator 20, for a run's number.
*/ -}}
{{- define "duebridge.jobName" -}}
{{- $name := printf "%s-%s" (include "duebridge.fullname" (first .)) (last .) -}}
{{- $most := ternary 43 52 (eq (first .).Values.spark.mode "operator") -}}
{{- if gt (len $name) $most -}}
  {{- fail (printf "spark.jobs.%s: expected at most %d characters with the name before it; got %s" (last .) $most $name) -}}
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
