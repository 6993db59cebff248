{{/* Labels of every object. Call with (dict "root" $ "component" "nats"). */}}
{{- define "quickstart.labels" -}}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{ include "quickstart.selector" . }}
app.kubernetes.io/part-of: substorm
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{- define "quickstart.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Without what changes with every version of the chart: a new one need not restart a server. */}}
{{- define "quickstart.podLabels" -}}
{{ include "quickstart.selector" . }}
app.kubernetes.io/part-of: substorm
{{- end }}

{{/* An image's full name, with its digest where the values give one. Call with (dict "root" $ "image" .Values.X.image). */}}
{{- define "quickstart.image" -}}
{{- with .root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{ .image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- with .image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* What every pod has in common: no way into the API server, no root. Call with the root. */}}
{{- define "quickstart.pod" -}}
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "quickstart.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* The claim of a server's volume. Call with the server's storage values. */}}
{{- define "quickstart.claim" -}}
metadata:
  name: data
spec:
  accessModes: [ReadWriteOnce]
  {{- with .storageClassName }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests:
      storage: {{ .size }}
{{- end }}
