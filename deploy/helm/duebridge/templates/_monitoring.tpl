{{/* Alerts and dashboard: of this release alone, or of every one that Prometheus sees. */}}

{{- /* Whose they are: two releases must not have the same ones, or each alert comes twice. */ -}}
{{- define "duebridge.monitored" -}}
{{- $owner := .Values.monitoring.owner -}}
{{- if not $owner -}}
own
{{- else if eq $owner (printf "%s.%s" .Release.Namespace .Release.Name) -}}
all
{{- else -}}
none
{{- end -}}
{{- end -}}

{{- /* The chart's own monitor sets these labels; another may leave them out, and its series count too. */ -}}
{{- define "duebridge.ofRelease" -}}
{{- if (fromYaml (include "duebridge.monitoring" .)).serviceMonitor.enabled -}}
namespace={{ quote .Release.Namespace }},release={{ quote .Release.Name }}
{{- else -}}
namespace=~"{{ .Release.Namespace }}|",release=~"{{ .Release.Name }}|"
{{- end -}}
{{- end -}}

{{- /* The groups of files/alerts.yaml, as monitoring.rules changes them. */ -}}
{{- define "duebridge.rules" -}}
{{- $given := .Values.monitoring.rules.alerts -}}
{{- $known := list -}}
{{- $groups := list -}}
{{- range (fromYaml (.Files.Get "files/alerts.yaml")).groups -}}
  {{- $rules := list -}}
  {{- range .rules -}}
    {{- $known = append $known .alert -}}
    {{- $change := default dict (get $given .alert) -}}
    {{- if dig "enabled" true $change -}}
      {{- $rules = append $rules (fromYaml (include "duebridge.rule" (list $ . $change))) -}}
    {{- end -}}
  {{- end -}}
  {{- $groups = append $groups (dict "name" .name "rules" $rules) -}}
{{- end -}}
{{- range $name, $_ := $given -}}
  {{- if not (has $name $known) -}}
    {{- fail (printf "monitoring.rules.alerts.%s: expected one of %s" $name (join ", " $known)) -}}
  {{- end -}}
{{- end -}}
groups:
  {{- toYaml $groups | nindent 2 }}
{{- end -}}

{{- /* Of the root, a rule and its changes. */ -}}
{{- define "duebridge.rule" -}}
{{- $root := first . -}}
{{- $rule := deepCopy (index . 1) -}}
{{- $change := last . -}}
{{- if not (kindIs "invalid" $change.threshold) -}}
  {{- $limit := " (>|<=?) -?[0-9][0-9.e]*" -}}
  {{- if not (regexMatch $limit $rule.expr) -}}
    {{- fail (printf "monitoring.rules.alerts.%s.threshold: expected none, since it compares with no number" $rule.alert) -}}
  {{- end -}}
  {{- $_ := set $rule "expr" (regexReplaceAll $limit $rule.expr (printf " ${1} %v" $change.threshold)) -}}
{{- end -}}
{{- if ne (include "duebridge.monitored" $root) "all" -}}
  {{- $where := include "duebridge.ofRelease" $root -}}
  {{- $expr := regexReplaceAll "(duebridge_[a-z0-9_]+)\\{" $rule.expr (printf "${1}{%s," $where) -}}
  {{- $_ := set $rule "expr" (regexReplaceAll "(duebridge_[a-z0-9_]+)([^a-z0-9_{]|$)" $expr (printf "${1}{%s}${2}" $where)) -}}
{{- end -}}
{{- with $change.for }}{{ $_ := set $rule "for" . }}{{ end -}}
{{- with $change.severity }}{{ $_ := set $rule.labels "severity" . }}{{ end -}}
{{- $page := $rule.annotations.runbook_url -}}
{{- $_ := unset $rule.annotations "runbook_url" -}}
{{- with $root.Values.monitoring.rules.runbookUrl -}}
  {{- $_ := set $rule.annotations "runbook_url" (printf "%s/%s" (trimSuffix "/" .) $page) -}}
{{- end -}}
{{- toYaml $rule -}}
{{- end -}}

{{- /* One dashboard chooses among all releases; one of this release alone has nothing to choose. */ -}}
{{- define "duebridge.dashboard" -}}
{{- $file := .Files.Get "files/dashboard.json" -}}
{{- if eq (include "duebridge.monitored" .) "all" -}}
{{- $file -}}
{{- else -}}
  {{- $chosen := "namespace=~\\\"$namespace\\\", release=~\\\"$release\\\"" -}}
  {{- $own := include "duebridge.ofRelease" . | replace ",release" ", release" | replace "\"" "\\\"" -}}
  {{- $dashboard := fromJson (replace $chosen $own $file) -}}
  {{- $kept := list -}}
  {{- range $dashboard.templating.list -}}
    {{- if not (has .name (list "namespace" "release")) }}{{ $kept = append $kept . }}{{ end -}}
  {{- end -}}
  {{- $_ := set $dashboard.templating "list" $kept -}}
  {{- $name := printf "%s.%s" .Release.Namespace .Release.Name -}}
  {{- $_ := set $dashboard "title" (printf "duebridge %s" $name) -}}
  {{- $_ := set $dashboard "uid" (printf "duebridge-%s" (sha1sum $name | trunc 12)) -}}
  {{- toPrettyJson $dashboard -}}
{{- end -}}
{{- end -}}

{{- /* Of the root, the name, the components that it scrapes, and the port. */ -}}
{{- define "duebridge.serviceMonitor" -}}
{{- $root := first . -}}
{{- $given := (fromYaml (include "duebridge.monitoring" $root)).serviceMonitor -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ index . 1 }}
  {{- with $given.namespace }}
  namespace: {{ . }}
  {{- end }}
  {{- include "duebridge.annotations" (list $root dict) | nindent 2 }}
  labels:
    {{- include "duebridge.labelsWith" (list $root $given.labels) | nindent 4 }}
spec:
  {{- if $given.namespace }}
  namespaceSelector:
    matchNames: [{{ $root.Release.Namespace }}]
  {{- end }}
  selector:
    matchLabels:
      {{- include "duebridge.selector" $root | nindent 6 }}
    matchExpressions:
      - key: app.kubernetes.io/component
        operator: In
        values: {{ toJson (index . 2) }}
  endpoints:
    - port: {{ last . }}
      path: /metrics
      interval: {{ $given.interval }}
      {{- with $given.scrapeTimeout }}
      scrapeTimeout: {{ . }}
      {{- end }}
      {{- if $given.honorLabels }}
      honorLabels: true
      {{- end }}
      {{- if eq (last .) "http" }}
      authorization:
        credentials:
          name: {{ $given.serveToken.secret }}
          key: {{ $given.serveToken.key }}
      {{- end }}
      relabelings:
        # By it alerts and dashboard tell releases apart.
        - sourceLabels: [__meta_kubernetes_service_label_app_kubernetes_io_instance]
          targetLabel: release
        {{- with $given.relabelings }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $given.metricRelabelings }}
      metricRelabelings:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end -}}
