{{/* What every pod of this program has, be it a worker, the check before an upgrade or a job. */}}

{{- define "duebridge.podSecurity" -}}
runAsNonRoot: true
{{- with .Values.user }}
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
fsGroupChangePolicy: OnRootMismatch
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "duebridge.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "duebridge.podBasics" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- include "duebridge.podSecurity" . | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "duebridge.env" -}}
{{- range $name, $value := .Values.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- range $name, $from := .Values.secrets.env }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef:
      name: {{ $from.secret }}
      key: {{ $from.key }}
{{- end }}
{{- end -}}

{{- define "duebridge.mounts" -}}
- name: config
  mountPath: /etc/duebridge
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- range $name, $_ := .Values.secrets.files }}
- name: secret-{{ $name }}
  mountPath: /secrets/{{ $name }}
  readOnly: true
{{- end }}
{{- end -}}

{{- /* Of the root, and the name of a ConfigMap with the configuration. */ -}}
{{- define "duebridge.volumes" -}}
- name: config
  configMap:
    name: {{ last . }}
- name: tmp
  emptyDir: {}
{{- range $name, $from := (first .).Values.secrets.files }}
- name: secret-{{ $name }}
  secret:
    secretName: {{ $from.secret }}
    defaultMode: 0440
{{- end }}
{{- end -}}
