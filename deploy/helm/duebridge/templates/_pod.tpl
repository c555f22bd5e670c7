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
runAsUser: {{ int64 . }}
runAsGroup: {{ int64 . }}
fsGroup: {{ int64 . }}
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

{{- /* The names of variables that values give. */ -}}
{{- define "duebridge.givenEnv" -}}
{{- $given := keys .Values.env .Values.secrets.env -}}
{{- range concat .Values.extraEnv .Values.extraEnvVars }}{{ $given = append $given .name }}{{ end -}}
{{- toYaml $given -}}
{{- end -}}

{{- /* A whole number of values.yaml comes as 1.34217728e+08; any other value stays as it is. */ -}}
{{- define "duebridge.digits" -}}
{{- if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end -}}

{{- define "duebridge.env" -}}
{{- if not (has "PYTHONFAULTHANDLER" (fromYamlArray (include "duebridge.givenEnv" .))) }}
- name: PYTHONFAULTHANDLER   # a crash in C code leaves the stack of every thread in the log
  value: "1"
{{- end }}
{{- range $name, $value := .Values.env }}
- name: {{ quote $name }}
  value: {{ $value | quote }}
{{- end }}
{{- range $name, $from := .Values.secrets.env }}
- name: {{ quote $name }}
  valueFrom:
    secretKeyRef:
      name: {{ quote $from.secret }}
      key: {{ quote $from.key }}
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
    secretName: {{ quote $from.secret }}
    defaultMode: 0440
{{- end }}
{{- with (first .).Values.extraVolumes }}
{{ tpl (toYaml .) (first $) }}
{{- end }}
{{- end -}}
