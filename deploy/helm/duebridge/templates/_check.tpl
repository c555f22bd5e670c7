{{- /*
Whether there is a store to ask. The bundled one comes with an install, or with the upgrade after one that
failed: it is looked for, and where no cluster answers (as in "duebridge.checkAccount") an upgrade has it.
*/ -}}
{{- define "duebridge.hasStore" -}}
{{- if not .Values.valkey.enabled -}}
true
{{- else if include "duebridge.seesAccount" (list . "default") -}}
{{- include "duebridge.seesStore" . -}}
{{- else if .Release.IsUpgrade -}}
true
{{- end -}}
{{- end -}}

{{- define "duebridge.seesStore" -}}
{{- if lookup "apps/v1" "StatefulSet" .Release.Namespace (include "duebridge.valkey" .) }}true{{ end -}}
{{- end -}}

{{- /*
Of the root, the Job's last word, and its hooks. It ends an install, an upgrade or a rollback before
anything changes, where the configuration is wrong, the store is unfit or unreachable, a target is
missing, or the workers that run have another namespace of the store. Until the bundled store is made only
the file itself is checked.
*/ -}}
{{- define "duebridge.check" -}}
{{- $root := first . -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "duebridge.fullname" $root }}-{{ index . 1 }}
  labels:
    {{- include "duebridge.labels" $root | nindent 4 }}
    app.kubernetes.io/component: check
  annotations:
    helm.sh/hook: {{ last . }}
    helm.sh/hook-weight: "0"
    # One that failed stays, so that its log can be read.
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
    helm.sh/hook-output-log-policy: hook-failed
    {{- with $root.Values.commonAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  backoffLimit: 0
  activeDeadlineSeconds: {{ int64 $root.Values.preflight.timeoutSeconds }}
  template:
    {{- $args := list "config" "check" "/etc/duebridge/duebridge.yaml" "--running" "/etc/duebridge-running/duebridge.yaml" }}
    {{- if include "duebridge.hasStore" $root }}
    {{- $args = append $args "--connect" }}
    {{- end }}
    {{- $config := default (printf "%s-check" (include "duebridge.fullname" $root)) $root.Values.existingConfigMap }}
    {{- /* A rollback is checked later than it is rendered: by then all this may have changed, but for the release's own. */}}
    {{- $account := include "duebridge.serviceAccount" $root }}
    {{- $running := include "duebridge.fullname" $root }}
    {{- if ne (index . 1) "check-rollback" }}
    {{- $account = include "duebridge.checkAccount" $root }}
    {{- $running = default $running (include "duebridge.installedConfigMap" $root) }}
    {{- end }}
    {{- $of := dict "resources" $root.Values.resources }}
    {{- include "duebridge.podTemplate" (dict "root" $root "component" "app.kubernetes.io/component: check" "container" "check" "args" $args "of" $of "config" $config "running" $running "account" $account) | nindent 4 }}
{{- end -}}
