{{/* The one pod of all programs: workers, intake workers, `duebridge serve`, and the check. */}}

{{- /* Of the root and the labels of a component. */ -}}
{{- define "duebridge.spread" -}}
{{- $root := first . -}}
{{- $component := last . -}}
{{- if $root.Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- tpl (toYaml $root.Values.topologySpreadConstraints) $root | nindent 2 }}
{{- else if $root.Values.topologySpread }}
# ScheduleAnyway: a spread that cannot be had must never keep a pod, and so a drain, waiting.
topologySpreadConstraints:
  {{- range $root.Values.topologySpread }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "duebridge.selector" $root | nindent 8 }}
        {{- $component | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}
{{- end -}}

{{- /* Of the root, and the block of a Deployment, which may have its own. */ -}}
{{- define "duebridge.strategy" -}}
{{- $given := default (first .).Values.updateStrategy (last .).updateStrategy -}}
{{- if eq (default "" $given.type) "Recreate" -}}
type: Recreate
{{- else -}}
{{- include "duebridge.over" (list "{type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}" $given) -}}
{{- end -}}
{{- end -}}

{{- define "duebridge.probeDefaults" -}}
startupProbe:
  httpGet: {path: /livez}
  periodSeconds: 1
  timeoutSeconds: 3
  failureThreshold: 60
# Asks neither the store nor a broker: an outage of theirs restarts nobody. A grace period
# of its own: a frozen process hears no SIGTERM, and would hold its pod's whole one.
livenessProbe:
  httpGet: {path: /livez}
  periodSeconds: 4
  timeoutSeconds: 3
  failureThreshold: 3
  terminationGracePeriodSeconds: 3
# Asks what the process knows of store and brokers: a new version that reaches neither ends its rollout.
readinessProbe:
  httpGet: {path: /readyz}
  periodSeconds: 3
  timeoutSeconds: 3
  failureThreshold: 2
{{- end -}}

{{- /* Of the root and the port's name: what values say of a probe goes over its defaults. */ -}}
{{- define "duebridge.probes" -}}
{{- $root := first . -}}
{{- $port := last . -}}
{{- range $name, $probe := fromYaml (include "duebridge.probeDefaults" $root) -}}
  {{- $_ := set $probe.httpGet "port" $port -}}
  {{- $given := get $root.Values $name -}}
  {{- $own := get $root.Values (printf "custom%s" (title $name)) -}}
  {{- if $own }}
{{ tpl (toYaml (dict $name $own)) $root }}
  {{- else if ne (toString $given.enabled) "false" }}
    {{- if or $given.exec $given.tcpSocket $given.grpc }}{{ $probe = omit $probe "httpGet" }}{{ end }}
{{ toYaml (dict $name (mergeOverwrite $probe (omit $given "enabled"))) }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- /* What serve and each of intakeWorkers may have of its own, instead of that of all programs. */ -}}
{{- define "duebridge.ownSettings" -}}
affinity containerSecurityContext customLivenessProbe customReadinessProbe customStartupProbe dnsConfig dnsPolicy envFrom extraEnv extraEnvFrom extraEnvVars extraEnvVarsCM extraEnvVarsSecret extraVolumeMounts extraVolumes hostAliases initContainers lifecycle lifecycleHooks livenessProbe nodeSelector podAnnotations podLabels podSecurityContext priorityClassName readinessProbe runtimeClassName schedulerName sidecars startupProbe tolerations topologySpreadConstraints
{{- end -}}

{{- /*
Of a dict: root, component (its labels), container (its name), args, of (the block with resources and
settings of its own); of those that listen: port, lifecycle; of the check: config and running (names of
ConfigMaps: what is to come, what the workers have), account, and no port: it ends by itself.
*/ -}}
{{- define "duebridge.podTemplate" -}}
{{- $values := deepCopy .root.Values -}}
{{- range $key := splitList " " (include "duebridge.ownSettings" .) -}}
  {{- if and (hasKey $.of $key) (not (kindIs "invalid" (get $.of $key))) }}{{ $_ := set $values $key (get $.of $key) }}{{ end -}}
{{- end -}}
{{- with .of.image }}{{ $_ := set $values "image" (merge (deepCopy .) (omit $values.image "repository" "tag" "digest")) }}{{ end -}}
{{- if and .port $values.podAntiAffinityPreset (not $values.affinity) -}}
  {{- $_ := set $values "affinity" (fromYaml (include "duebridge.antiAffinity" (list .root .component $values.podAntiAffinityPreset))) -}}
{{- end -}}
{{- /* Of its two names the nearer one counts. */ -}}
{{- if and .of.lifecycleHooks (not .of.lifecycle) }}{{ $_ := set $values "lifecycle" .of.lifecycleHooks }}{{ end -}}
{{- range $name, $_ := $values.podLabels -}}
  {{- $_ := unset $values.commonLabels $name -}}
  {{- if include "duebridge.isOwnLabel" $name }}{{ $_ := unset $values.podLabels $name }}{{ end -}}
{{- end -}}
{{- $root := dict "Values" $values "Chart" .root.Chart "Release" .root.Release "Capabilities" .root.Capabilities "Template" .root.Template "Files" .root.Files -}}
{{- $config := default (include "duebridge.configMap" $root) .config -}}
{{- $init := $root.Values.initContainers -}}
{{- if not .port -}}
  {{- /* A container beside the check would keep its Job from ending: here it ends with it. */ -}}
  {{- range $root.Values.sidecars }}{{ $init = append $init (merge (dict "restartPolicy" "Always") .) }}{{ end -}}
{{- end -}}
metadata:
  labels:
    {{- include "duebridge.podLabels" $root | nindent 4 }}
    {{- .component | nindent 4 }}
    {{- with $root.Values.podLabels }}
    {{- tpl (toYaml .) $root | nindent 4 }}
    {{- end }}
  {{- $own := dict "checksum/config" (include "duebridge.configText" $root | sha256sum) "kubectl.kubernetes.io/default-container" .container }}
  annotations:
    {{- toYaml (merge $own $root.Values.podAnnotations) | nindent 4 }}
spec:
  {{- if .port }}
  terminationGracePeriodSeconds: {{ include "duebridge.gracePeriod" $root }}
  {{- else }}
  restartPolicy: Never
  {{- end }}
  serviceAccountName: {{ default (include "duebridge.serviceAccount" $root) .account }}
  {{- include "duebridge.podBasics" $root | nindent 2 }}
  {{- if .port }}
  {{- include "duebridge.spread" (list $root .component) | nindent 2 }}
  {{- end }}
  {{- with $init }}
  initContainers:
    {{- tpl (toYaml .) $root | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .container }}
      image: {{ include "duebridge.image" (list $root $root.Values.image $root.Chart.AppVersion) }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: {{ toJson .args }}
      workingDir: /etc/duebridge
      {{- with .port }}
      ports: [{{ toJson . }}]
      {{- end }}
      {{- with trim (include "duebridge.env" $root) }}
      env:
        {{- . | nindent 8 }}
      {{- end }}
      {{- include "duebridge.envFrom" $root | nindent 6 }}
      volumeMounts:
        {{- include "duebridge.mounts" $root | nindent 8 }}
        {{- if not .port }}
        - name: running
          mountPath: /etc/duebridge-running
          readOnly: true
        {{- end }}
      securityContext:
        {{- include "duebridge.containerSecurity" $root | nindent 8 }}
      resources:
        {{- toYaml .of.resources | nindent 8 }}
      {{- if .port }}
      {{- $lifecycle := default dict .lifecycle }}
      {{- range $hook, $handler := default $root.Values.lifecycleHooks $root.Values.lifecycle }}
      {{- $_ := set $lifecycle $hook $handler }}
      {{- end }}
      {{- with $lifecycle }}
      lifecycle:
        {{- tpl (toYaml .) $root | nindent 8 }}
      {{- end }}
      {{- include "duebridge.probes" (list $root .port.name) | nindent 6 }}
      {{- end }}
    {{- if .port }}
    {{- with $root.Values.sidecars }}
    {{- tpl (toYaml .) $root | nindent 4 }}
    {{- end }}
    {{- end }}
  volumes:
    {{- include "duebridge.volumes" (list $root $config) | nindent 4 }}
    {{- if not .port }}
    # What the workers have now, if there are any: the check compares with it.
    - name: running
      configMap:
        name: {{ .running }}
        optional: true
    {{- end }}
{{- end -}}
