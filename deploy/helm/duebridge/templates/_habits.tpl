{{/* Words of other charts: some are this chart's under another name, of others a refusal names ours. */}}

{{- /* Of a value: whether it asks for anything. What is empty or switched off does not, as whole blocks of habit are. */ -}}
{{- define "duebridge.asks" -}}
{{- if kindIs "map" . -}}
  {{- if and (ne (toString .enabled) "false") (ne (toString .create) "false") -}}
    {{- range . }}{{ include "duebridge.asks" . }}{{ end -}}
  {{- end -}}
{{- else if . -}}
true
{{- end -}}
{{- end -}}

{{- define "duebridge.refuseHabits" -}}
{{- $asItIs := dict "clusterDomain" "cluster.local" "containerPorts" "map[http:8080]" "resourcesPreset" "none" -}}
{{- range $key, $instead := fromYaml (.Files.Get "files/elsewhere.yaml") -}}
  {{- $given := get $.Values $key -}}
  {{- if and (include "duebridge.asks" $given) (ne (toString $given) (get $asItIs $key)) -}}
    {{- fail (printf "%s: expected no such value; instead: %s" $key $instead) -}}
  {{- end -}}
{{- end -}}
{{- range $place, $block := fromYaml (.Files.Get "files/habits.yaml") -}}
  {{- $given := $.Values -}}
  {{- range splitList "." $place }}{{ $given = default dict (get $given .) }}{{ end -}}
  {{- range $key, $value := omit $given "enabled" "create" -}}
    {{- $isDefault := eq (toString $value) (toString (get (default dict $block.asItIs) $key)) -}}
    {{- if and (not (has $key $block.known)) (not $isDefault) (include "duebridge.asks" $value) -}}
      {{- fail (printf "%s.%s: expected no such value; instead: %s" $place $key $block.instead) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $service := default dict .Values.service -}}
{{- if and (not .Values.serve.enabled) (has $service.type (list "NodePort" "LoadBalancer")) -}}
  {{- fail (printf "service.type: expected ClusterIP, since only serve has clients and serve.enabled is false; got %s" $service.type) -}}
{{- end -}}
{{- end -}}

{{- /* monitoring, and over it what metrics says; as in other charts its parts need metrics.enabled. */ -}}
{{- define "duebridge.monitoring" -}}
{{- $monitoring := deepCopy .Values.monitoring -}}
{{- $metrics := default dict .Values.metrics -}}
{{- if $metrics.enabled -}}
  {{- range $theirs, $ours := dict "serviceMonitor" "serviceMonitor" "prometheusRule" "rules" -}}
    {{- $part := get $monitoring $ours -}}
    {{- range $key, $value := default dict (get $metrics $theirs) -}}
      {{- if $value }}{{ $_ := set $part (ternary "labels" $key (eq $key "additionalLabels")) $value }}{{ end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- toYaml $monitoring -}}
{{- end -}}

{{- /* The Service of serve, whose own words count before those of service. */ -}}
{{- define "duebridge.httpService" -}}
{{- $own := .Values.serve.service -}}
{{- $theirs := default dict .Values.service -}}
type: {{ ternary (default "ClusterIP" $theirs.type) $own.type (eq $own.type "ClusterIP") }}
port: {{ ternary (default 80 (default dict $theirs.ports).http) .Values.serve.port (eq (int .Values.serve.port) 80) }}
annotations:
  {{- toYaml (merge (deepCopy $own.annotations) (default dict $theirs.annotations)) | nindent 2 }}
{{- end -}}

{{- /* Whether there are budgets: either word can say no. */ -}}
{{- define "duebridge.hasBudget" -}}
{{- if and .Values.podDisruptionBudget.enabled (ne (toString (default dict .Values.pdb).create) "false") -}}
true
{{- end -}}
{{- end -}}

{{- /*
Of the root, and how many pods there are at least. A budget always lets one of them go: a minimum that
keeps them all would hold every drain for good.
*/ -}}
{{- define "duebridge.budgetRule" -}}
{{- $values := (first .).Values -}}
{{- $pdb := default dict $values.pdb -}}
{{- $pods := int (last .) -}}
{{- $least := default "" $pdb.minAvailable -}}
{{- if and $least $pdb.maxUnavailable -}}
  {{- fail "pdb: expected minAvailable or maxUnavailable; got both" -}}
{{- end -}}
{{- if $least -}}
  {{- $count := int $least -}}
  {{- if kindIs "string" $least }}{{ $count = divf (mulf $pods (trimSuffix "%" $least | int)) 100 | ceil | int }}{{ end -}}
  {{- if ge $count $pods -}}
    {{- fail (printf "pdb.minAvailable: expected fewer than all of %d pods, so that drains end; got %v" $pods $least) -}}
  {{- end -}}
minAvailable: {{ $least }}
{{- else -}}
maxUnavailable: {{ default $values.podDisruptionBudget.maxUnavailable $pdb.maxUnavailable }}
{{- end -}}
{{- end -}}

{{- /* Of the root and a list of its own: who may ask, or nobody named, that is anybody. */ -}}
{{- define "duebridge.from" -}}
{{- $root := first . -}}
{{- $from := last . -}}
{{- with $root.Values.networkPolicy -}}
  {{- if not .allowExternal -}}
    {{- $from = append $from (dict "podSelector" (dict "matchLabels" (fromYaml (include "duebridge.selector" $root)))) -}}
    {{- $client := dict (printf "%s-client" (include "duebridge.fullname" $root)) "true" -}}
    {{- range list (ternary $client dict .addExternalClientAccess) .ingressPodMatchLabels -}}
      {{- if . }}{{ $from = append $from (dict "podSelector" (dict "matchLabels" .)) }}{{ end -}}
    {{- end -}}
    {{- if .ingressNSMatchLabels -}}
      {{- $other := dict "namespaceSelector" (dict "matchLabels" .ingressNSMatchLabels) -}}
      {{- if .ingressNSPodMatchLabels }}{{ $_ := set $other "podSelector" (dict "matchLabels" .ingressNSPodMatchLabels) }}{{ end -}}
      {{- $from = append $from $other -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- with $from -}}
from:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- /* Whether what leaves is restricted. */ -}}
{{- define "duebridge.hasEgress" -}}
{{- if or .Values.networkPolicy.egress (not .Values.networkPolicy.allowExternalEgress) -}}
true
{{- end -}}
{{- end -}}

{{- /* Of the root, a component's labels, and soft or hard: its pods on nodes of their own. */ -}}
{{- define "duebridge.antiAffinity" -}}
{{- $labels := merge (fromYaml (include "duebridge.selector" (first .))) (fromYaml (index . 1)) -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $labels) -}}
{{- if semverCompare ">=1.31.0-0" (first .).Capabilities.KubeVersion.Version -}}
  {{- /* Else no new pod finds a node while the old ones hold them all. */ -}}
  {{- $_ := set $term "matchLabelKeys" (list "pod-template-hash") -}}
{{- end -}}
podAntiAffinity:
  {{- if eq (last .) "hard" }}
  requiredDuringSchedulingIgnoredDuringExecution: {{ toJson (list $term) }}
  {{- else }}
  preferredDuringSchedulingIgnoredDuringExecution: {{ toJson (list (dict "weight" 1 "podAffinityTerm" $term)) }}
  {{- end }}
{{- end -}}
