{{- /*
Of the root, the Job's last word, and its hooks. It ends an install, an upgrade or a rollback before
anything changes, where the configuration is wrong, the store is unfit or unreachable, a target is
missing, or the workers that run have another namespace of the store. At an install the bundled store is not there yet: then only the file itself is checked.
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
  activeDeadlineSeconds: {{ $root.Values.preflight.timeoutSeconds }}
  template:
    {{- $args := list "config" "check" "/etc/duebridge/duebridge.yaml" "--running" "/etc/duebridge-running/duebridge.yaml" }}
    {{- if not (and $root.Values.valkey.enabled $root.Release.IsInstall) }}
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
