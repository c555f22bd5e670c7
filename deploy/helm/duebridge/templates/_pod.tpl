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

{{- define "duebridge.spread" -}}
{{- $root := first . -}}
{{- $component := last . -}}
{{- with $root.Values.topologySpread }}
# ScheduleAnyway: a spread that cannot be had must never keep a pod, and so a drain, waiting.
topologySpreadConstraints:
  {{- range . }}
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

{{- /* Of a port's name. */ -}}
{{- define "duebridge.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: {{ . }}}
  periodSeconds: 1
  timeoutSeconds: 3
  failureThreshold: 60
# Asks neither the store nor a broker: an outage of theirs restarts nobody. A grace period
# of its own: a frozen process hears no SIGTERM, and would hold its pod's whole one.
livenessProbe:
  httpGet: {path: /livez, port: {{ . }}}
  periodSeconds: 4
  timeoutSeconds: 3
  failureThreshold: 3
  terminationGracePeriodSeconds: 3
# Asks what the process knows of store and brokers: a new version that reaches neither ends its rollout.
readinessProbe:
  httpGet: {path: /readyz, port: {{ . }}}
  periodSeconds: 3
  timeoutSeconds: 3
  failureThreshold: 2
{{- end -}}

{{- /*
The pod of workers, of `serve` and of the check. Of a dict: root, component (its labels), container
(its name), args, resources; of those that listen: port, lifecycle; of the check: config (the name of
a ConfigMap), and no port: it ends by itself.
*/ -}}
{{- define "duebridge.podTemplate" -}}
{{- $root := .root -}}
{{- $config := default (include "duebridge.configMap" $root) .config -}}
metadata:
  labels:
    {{- include "duebridge.podLabels" $root | nindent 4 }}
    {{- .component | nindent 4 }}
    {{- with $root.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ include "duebridge.configText" $root | sha256sum }}
    kubectl.kubernetes.io/default-container: {{ .container }}
    {{- with $root.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- if .port }}
  terminationGracePeriodSeconds: {{ include "duebridge.gracePeriod" $root }}
  {{- else }}
  restartPolicy: Never
  {{- end }}
  serviceAccountName: {{ include "duebridge.serviceAccount" $root }}
  {{- include "duebridge.podBasics" $root | nindent 2 }}
  {{- if .port }}
  {{- include "duebridge.spread" (list $root .component) | nindent 2 }}
  {{- end }}
  containers:
    - name: {{ .container }}
      image: {{ include "duebridge.image" (list $root.Values.image $root.Chart.AppVersion) }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: {{ toJson .args }}
      workingDir: /etc/duebridge
      {{- with .port }}
      ports: [{{ toJson . }}]
      {{- end }}
      {{- with include "duebridge.env" $root }}
      env:
        {{- . | nindent 8 }}
      {{- end }}
      volumeMounts:
        {{- include "duebridge.mounts" $root | nindent 8 }}
      securityContext:
        {{- include "duebridge.containerSecurity" $root | nindent 8 }}
      resources:
        {{- toYaml .resources | nindent 8 }}
      {{- with .lifecycle }}
      lifecycle:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .port }}
      {{- include "duebridge.probes" .name | nindent 6 }}
      {{- end }}
  volumes:
    {{- include "duebridge.volumes" (list $root $config) | nindent 4 }}
{{- end -}}
