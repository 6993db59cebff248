{{- define "substorm.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: substorm
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "substorm.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "substorm.podLabels" -}}
{{ include "substorm.selector" . }}
app.kubernetes.io/part-of: substorm
{{- end }}

{{/* The operator's name: cluster-scoped objects carry the namespace too. */}}
{{- define "substorm.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}-operator
{{- end }}

{{- define "substorm.bridgeName" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}-metrics-bridge
{{- end }}

{{- define "substorm.bridgeSelector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: metrics-bridge
{{- end }}

{{- define "substorm.clusterName" -}}
{{ .Release.Namespace }}:{{ include "substorm.name" . }}
{{- end }}

{{/* The namespaces that the operator looks after; empty where it looks after all of them. */}}
{{- define "substorm.watchNamespaces" -}}
{{- if .Values.operator.watchAllNamespaces -}}
  {{- if .Values.operator.watchNamespaces }}
    {{- fail "operator.watchAllNamespaces is true and operator.watchNamespaces names some: set one of them" }}
  {{- end }}
{{- else -}}
  {{- .Values.operator.watchNamespaces | default (list .Release.Namespace) | uniq | sortAlpha | join "," -}}
{{- end -}}
{{- end }}

{{/* An image's full name, with its digest where the values give one. Call with (dict "root" $ "image" .Values.X.image). */}}
{{- define "substorm.image" -}}
{{- with .root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{ .image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- with .image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* What the operator's pods, the Job for the CRDs and the bridge's pod have in common. */}}
{{- define "substorm.pod" -}}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.operator.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.operator.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.operator.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.operator.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "substorm.container" -}}
image: {{ include "substorm.image" (dict "root" . "image" .Values.operator.image) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources: {{- toYaml .Values.operator.resources | nindent 2 }}
{{- end }}
