{{- define "site.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: substorm
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The names of the pool and of the feed servers: the Site's, where the values give none. */}}
{{- define "site.pool" -}}
{{ .Values.ingestGateway.name | default .Values.site.name }}
{{- end }}
{{- define "site.feedServer" -}}
{{ .Values.feedServer.name | default .Values.site.name }}
{{- end }}

{{/* The labels of the pods that the operator makes. Call with (dict "program" "archivist" "of" "demo"). */}}
{{- define "site.pods" -}}
app.kubernetes.io/name: {{ .program }}
{{- with .of }}
app.kubernetes.io/instance: {{ . }}
{{- end }}
{{- end }}

{{/* A spec with its Site, where the values name none. Call with (dict "root" $ "spec" .Values.X.spec). */}}
{{- define "site.spec" -}}
{{- $spec := deepCopy .spec }}
{{- if not (hasKey $spec "siteRef") }}
  {{- $_ := set $spec "siteRef" (dict "name" .root.Values.site.name) }}
{{- end }}
{{- tpl (toYaml $spec) .root }}
{{- end }}

{{/* Adds to one map what another has. Call with (dict "into" $map "at" "its.path" "from" $other "source" "its.path"); into is changed. */}}
{{- define "site.join" -}}
{{- range $key, $value := .from }}
  {{- $is := get $.into $key }}
  {{- if not (hasKey $.into $key) }}
    {{- $_ := set $.into $key $value }}
  {{- else if and (kindIs "map" $is) (kindIs "map" $value) }}
    {{- include "site.join" (dict "into" $is "at" (printf "%s.%s" $.at $key) "from" $value "source" (printf "%s.%s" $.source $key)) }}
  {{- else if ne (toJson $is) (toJson $value) }}
    {{- fail (printf "%s.%s is %s, and %s.%s is %s: set one of them" $.at $key (toJson $is) $.source $key (toJson $value)) }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The ports in URLs, or those of their schemes. Call with (dict "root" $ "urls" (list ...)). */}}
{{- define "site.ports" -}}
{{- $ports := list }}
{{- range .urls }}
  {{- $url := urlParse (tpl . $.root) }}
  {{- $default := get (dict "http" "80" "https" "443") $url.scheme | default "4222" }}
  {{- $ports = append $ports (regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default $default) }}
{{- end }}
{{- $ports | uniq | join "," }}
{{- end }}

{{/* What a policy lets out: DNS, what the Site names, and what the values say. Call with (dict "root" $ "policy" $policy). */}}
{{- define "site.egress" -}}
# DNS.
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- if and .policy.backends .root.Values.site.enabled }}
# The Site's object store and NATS servers, which may be anywhere.
- ports:
    {{- $spec := .root.Values.site.spec }}
    {{- range include "site.ports" (dict "root" .root "urls" (prepend $spec.jetStream.servers $spec.objectStore.endpoint)) | splitList "," }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end }}
{{- with .policy.egress }}
{{ toYaml . }}
{{- end }}
{{- end }}
