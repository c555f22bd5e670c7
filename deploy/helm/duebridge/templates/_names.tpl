{{/* What everything is called, and by which labels it is found. */}}

{{- define "duebridge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "duebridge.fullname" -}}
{{- $name := include "duebridge.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- /* 45: a StatefulSet, with -valkey at its end, may have 52 */ -}}
{{- default $full .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- end -}}

{{- define "duebridge.selector" -}}
app.kubernetes.io/name: {{ include "duebridge.name" . }}
app.kubernetes.io/instance: {{ quote .Release.Name }}
{{- end -}}

{{- define "duebridge.labels" -}}
{{ include "duebridge.podLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* Without the chart's version: a chart that renders the same pods restarts none. */ -}}
{{- define "duebridge.podLabels" -}}
{{ include "duebridge.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- with trim (include "duebridge.commonLabels" .) }}
{{ . }}
{{- end }}
{{- end -}}

{{- /* Of the root and labels of an object's own, which are nearer than those of all objects. */ -}}
{{- define "duebridge.labelsWith" -}}
{{- toYaml (merge (deepCopy (last .)) (fromYaml (include "duebridge.labels" (first .)))) -}}
{{- end -}}

{{- /* But for those that selectors and Helm itself need. */ -}}
{{- define "duebridge.commonLabels" -}}
{{- range $name, $value := .Values.commonLabels -}}
{{- if not (or (regexMatch "^(app\\.kubernetes\\.io/managed-by|helm\\.sh/chart)$" $name) (include "duebridge.isOwnLabel" $name)) }}
{{ $name }}: {{ tpl $value $ | quote }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Of a label: whether the chart's own pods are found by it, so that values cannot change it. */ -}}
{{- define "duebridge.isOwnLabel" -}}
{{- if regexMatch "^(app\\.kubernetes\\.io/(name|instance|version|component)|duebridge/(intake|job))$" . }}true{{ end -}}
{{- end -}}

{{- /* The block of an object's metadata, of the root and of its own annotations. */ -}}
{{- define "duebridge.annotations" -}}
{{- $root := first . -}}
{{- with merge (last .) $root.Values.commonAnnotations -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- define "duebridge.configMap" -}}
{{- default (include "duebridge.fullname" .) .Values.existingConfigMap -}}
{{- end -}}

{{- define "duebridge.serviceAccount" -}}
{{- default (ternary (include "duebridge.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- /* Of the root and a name: whether that account is there, as far as `lookup` says. */ -}}
{{- define "duebridge.seesAccount" -}}
{{- if lookup "v1" "ServiceAccount" (first .).Release.Namespace (last .) }}true{{ end -}}
{{- end -}}

{{- /*
The check's pod needs the workers' account before an install makes it, so a hook makes a copy, and deletes it. Of the
same name (rights are often given to a name) only where that is certain to be free. Every namespace has an account
"default": without one Helm sees no cluster (Argo CD, `helm template`), or the namespace is still to be made. Then the
live account may be there unseen, and the copy has a name of its own.
*/ -}}
{{- define "duebridge.checkAccount" -}}
{{- $name := include "duebridge.serviceAccount" . -}}
{{- if or (not .Values.serviceAccount.create) (include "duebridge.seesAccount" (list . "default")) (include "duebridge.seesAccount" (list . $name)) -}}
{{- $name -}}
{{- else -}}
{{ include "duebridge.fullname" . }}-check
{{- end -}}
{{- end -}}

{{- define "duebridge.valkey" -}}
{{ include "duebridge.fullname" . }}-valkey
{{- end -}}

{{- /* Of the root, a block with repository, tag and digest, and the tag where it names none. */ -}}
{{- define "duebridge.image" -}}
{{- $root := first . -}}
{{- $image := index . 1 -}}
{{- /* A repository that names its host, as docker does, is not below the registry of the values. */ -}}
{{- $own := ternary "" $image.registry (regexMatch "^(localhost|[^/]*[.:][^/]*)/" $image.repository) -}}
{{- $registry := default $own $root.Values.global.imageRegistry -}}
{{- with $registry }}{{ . }}/{{ end -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ default (last .) $image.tag }}
{{- end -}}
{{- end -}}

{{- /* The names of Secrets for pulling, each once; a value may be a name or {name: NAME}. */ -}}
{{- define "duebridge.pullSecrets" -}}
{{- $given := concat (default list .Values.global.imagePullSecrets) (default list .Values.imagePullSecrets) -}}
{{- range list .Values.image .Values.spark.image .Values.valkey.image -}}
  {{- $given = concat $given (default list .pullSecrets) -}}
{{- end -}}
{{- $names := list -}}
{{- range $given -}}
  {{- $names = append $names (ternary . (dig "name" "" (ternary dict . (kindIs "string" .))) (kindIs "string" .)) -}}
{{- end -}}
{{- toYaml (uniq $names) -}}
{{- end -}}

{{- /* Of a Deployment: Stakater's Reloader replaces its pods when a Secret of theirs changes. */ -}}
{{- define "duebridge.reloader" -}}
{{- if .Values.secrets.reloader }}
secret.reloader.stakater.com/auto: "true"
{{- end }}
{{- end -}}
