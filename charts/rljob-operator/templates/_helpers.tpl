{{- define "rljob-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "rljob-operator.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- $name := include "rljob-operator.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Name of cluster-scoped objects: two installs in two namespaces must not fight over one. */}}
{{- define "rljob-operator.clusterName" -}}
{{- printf "%s-%s" (include "rljob-operator.fullname" .) .Release.Namespace }}
{{- end }}

{{- define "rljob-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "rljob-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "rljob-operator.labels" -}}
{{ include "rljob-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: rlcore
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "rljob-operator.serviceAccountName" -}}
{{- default (include "rljob-operator.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{/* A repository behind imageRegistry. Takes (dict "root" $ "repository" NAME). */}}
{{- define "rljob-operator.repository" -}}
{{- with .root.Values.imageRegistry }}{{ trimSuffix "/" . }}/{{ end }}{{ .repository }}
{{- end }}

{{- define "rljob-operator.image" -}}
{{- include "rljob-operator.repository" (dict "root" $ "repository" .Values.image.repository) }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ default .Chart.AppVersion .Values.image.tag }}{{ end }}
{{- end }}

{{/* A training image by its own name, or ours. Takes (dict "root" $ "image" GIVEN "repository" OURS). */}}
{{- define "rljob-operator.trainingImage" -}}
{{- default (printf "%s:%s" (include "rljob-operator.repository" .) .root.Chart.AppVersion) .image }}
{{- end }}

{{/* The operator's settings file. */}}
{{- define "rljob-operator.settings" -}}
{{- $settings := deepCopy .Values.settings }}
{{- $cpu := include "rljob-operator.trainingImage" (dict "root" $ "image" $settings.image "repository" "rlcore-cpu") }}
{{- $gpu := include "rljob-operator.trainingImage" (dict "root" $ "image" $settings.gpuImage "repository" "rlcore-gpu") }}
{{- $settings = mergeOverwrite $settings (dict "image" $cpu "gpuImage" $gpu "namespaces" .Values.watchNamespaces) }}
{{- toYaml $settings }}
{{- end }}

{{/* Namespace of the leader's Lease. */}}
{{- define "rljob-operator.leaseNamespace" -}}
{{- default .Release.Namespace .Values.settings.leaderElection.namespace }}
{{- end }}

{{/* What no schema can say. Included by the ConfigMap, which is always there. */}}
{{- define "rljob-operator.validate" -}}
{{- if and (gt (int .Values.replicaCount) 1) (not .Values.settings.leaderElection.enabled) }}
{{- fail (printf "replicaCount: %d replicas need settings.leaderElection.enabled, or each would act on every job" (int .Values.replicaCount)) }}
{{- end }}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
{{- fail "serviceAccount.name: name the ServiceAccount that you made; `default` would give the operator's rights to every pod beside it" }}
{{- end }}
{{- end }}
