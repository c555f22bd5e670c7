{{/* What every pod of this program has, be it a worker, the check before an upgrade or a job. */}}

{{- /* Of defaults as text, and what values say over them: with `enabled: false` nothing. */ -}}
{{- define "duebridge.over" -}}
{{- $given := default dict (last .) -}}
{{- if ne (toString $given.enabled) "false" -}}
{{- toYaml (mergeOverwrite (fromYaml (first .)) (deepCopy (omit $given "enabled"))) -}}
{{- end -}}
{{- end -}}

{{- define "duebridge.podSecurity" -}}
{{- include "duebridge.over" (list (include "duebridge.podSecurityDefaults" .) .Values.podSecurityContext) -}}
{{- end -}}

{{- define "duebridge.containerSecurity" -}}
{{- include "duebridge.over" (list (include "duebridge.containerSecurityDefaults" .) .Values.containerSecurityContext) -}}
{{- end -}}

{{- define "duebridge.podSecurityDefaults" -}}
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

{{- define "duebridge.containerSecurityDefaults" -}}
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
{{- with fromYamlArray (include "duebridge.pullSecrets" .) }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- range $key := list "priorityClassName" "schedulerName" "runtimeClassName" "dnsPolicy" "dnsConfig" "hostAliases" "nodeSelector" "tolerations" "affinity" }}
{{- with get $.Values $key }}
{{ tpl (toYaml (dict $key .)) $ }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "duebridge.env" -}}
{{- $given := keys .Values.env .Values.secrets.env -}}
{{- range concat .Values.extraEnv .Values.extraEnvVars }}{{ $given = append $given .name }}{{ end -}}
{{- if not (has "PYTHONFAULTHANDLER" $given) }}
- name: PYTHONFAULTHANDLER   # a crash in C code leaves the stack of every thread in the log
  value: "1"
{{- end }}
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
{{- with concat .Values.extraEnv .Values.extraEnvVars }}
{{ tpl (toYaml .) $ }}
{{- end }}
{{- end -}}

{{- /* The whole block, or nothing. */ -}}
{{- define "duebridge.envFrom" -}}
{{- $from := concat .Values.envFrom .Values.extraEnvFrom -}}
{{- with .Values.extraEnvVarsCM }}{{ $from = append $from (dict "configMapRef" (dict "name" .)) }}{{ end -}}
{{- with .Values.extraEnvVarsSecret }}{{ $from = append $from (dict "secretRef" (dict "name" .)) }}{{ end -}}
{{- with $from -}}
{{ tpl (toYaml (dict "envFrom" .)) $ }}
{{- end -}}
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
{{- with .Values.extraVolumeMounts }}
{{ tpl (toYaml .) $ }}
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
{{- with (first .).Values.extraVolumes }}
{{ tpl (toYaml .) (first $) }}
{{- end }}
{{- end -}}
