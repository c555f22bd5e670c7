{{/* The workers: those of the lanes, and those that run one intake alone. */}}

{{- /* Of the root and an intake's name, or none. */ -}}
{{- define "duebridge.workerName" -}}
{{- $name := include "duebridge.fullname" (first .) -}}
{{- with last . -}}
  {{- $name = printf "%s-%s" $name . -}}
  {{- if gt (len $name) 52 -}}
    {{- fail (printf "intakeWorkers.%s: expected at most 52 characters with the name before it; got %s" . $name) -}}
  {{- end -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- /* Of an intake worker's key, or none: the labels that tell its pods from all others. */ -}}
{{- define "duebridge.workerComponent" -}}
{{- if . -}}
app.kubernetes.io/component: intake
duebridge/intake: {{ . }}
{{- else -}}
app.kubernetes.io/component: worker
{{- end -}}
{{- end -}}

{{- /* Of the root, the key and the block with replicas and resources. */ -}}
{{- define "duebridge.deployment" -}}
{{- $root := first . -}}
{{- $key := index . 1 -}}
{{- $of := last . -}}
{{- $name := include "duebridge.workerName" (list $root $key) -}}
{{- $component := include "duebridge.workerComponent" $key -}}
{{- $intake := and $key (default $key $of.intake) -}}
{{- with $root -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  labels:
    {{- include "duebridge.labels" . | nindent 4 }}
    {{- $component | nindent 4 }}
spec:
  {{- if eq .Values.scaling.mode "none" }}
  replicas: {{ $of.replicas }}
  {{- end }}
  revisionHistoryLimit: 5
  # A worker that ends soon after its start stops the rollout before the next one is replaced.
  minReadySeconds: 5
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
  selector:
    matchLabels:
      {{- include "duebridge.selector" . | nindent 6 }}
      {{- $component | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "duebridge.podLabels" . | nindent 8 }}
        {{- $component | nindent 8 }}
        {{- with .Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        checksum/config: {{ include "duebridge.configText" . | sha256sum }}
        kubectl.kubernetes.io/default-container: worker
        {{- with .Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "duebridge.serviceAccount" . }}
      terminationGracePeriodSeconds: {{ include "duebridge.gracePeriod" . }}
      {{- include "duebridge.podBasics" . | nindent 6 }}
      {{- with .Values.topologySpread }}
      # ScheduleAnyway: a spread that cannot be had must never keep a pod, and so a drain, waiting.
      topologySpreadConstraints:
        {{- range . }}
        - topologyKey: {{ . }}
          maxSkew: 1
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "duebridge.selector" $root | nindent 14 }}
              {{- $component | nindent 14 }}
          matchLabelKeys: [pod-template-hash]
        {{- end }}
      {{- end }}
      containers:
        - name: worker
          image: {{ include "duebridge.image" (list .Values.image .Chart.AppVersion) }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          args: [--config, /etc/duebridge/duebridge.yaml, run, --health-port, "8080"{{ with $intake }}, --only, "intake:{{ . }}"{{ end }}]
          workingDir: /etc/duebridge
          ports:
            - name: health
              containerPort: 8080
          {{- with include "duebridge.env" . }}
          env:
            {{- . | nindent 12 }}
          {{- end }}
          volumeMounts:
            {{- include "duebridge.mounts" . | nindent 12 }}
          securityContext:
            {{- include "duebridge.containerSecurity" . | nindent 12 }}
          resources:
            {{- toYaml $of.resources | nindent 12 }}
          startupProbe:
            httpGet: {path: /livez, port: health}
            periodSeconds: 1
            timeoutSeconds: 3
            failureThreshold: 60
          # Asks neither the store nor a broker: an outage of theirs restarts nobody. A grace period
          # of its own: a frozen process hears no SIGTERM, and would hold its pod's whole one.
          livenessProbe:
            httpGet: {path: /livez, port: health}
            periodSeconds: 4
            timeoutSeconds: 3
            failureThreshold: 3
            terminationGracePeriodSeconds: 3
          # Asks what the worker knows of both: a new version that reaches neither ends its rollout.
          readinessProbe:
            httpGet: {path: /readyz, port: health}
            periodSeconds: 3
            timeoutSeconds: 3
            failureThreshold: 2
      volumes:
        {{- include "duebridge.volumes" (list . (include "duebridge.configMap" .)) | nindent 8 }}
{{- end -}}
{{- end -}}
