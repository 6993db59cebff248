{{/* A quantity in MiB. */}}
{{- define "quickstart.mebibytes" -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- if hasSuffix "Ti" . }}{{ mul $number 1048576 }}{{ else if hasSuffix "Gi" . }}{{ mul $number 1024 }}{{ else }}{{ $number }}{{ end -}}
{{- end }}

{{- define "quickstart.natsConfig" -}}
{{- if ge (include "quickstart.mebibytes" .Values.nats.maxFileStore | int64) (include "quickstart.mebibytes" .Values.nats.storage.size | int64) }}
{{- fail (printf "nats.maxFileStore %s leaves no room on a volume of nats.storage.size %s: give the volume at least a tenth more" .Values.nats.maxFileStore .Values.nats.storage.size) }}
{{- end -}}
server_name: $POD_NAME
listen: "0.0.0.0:4222"
# For the kubelet's probes and `kubectl port-forward`: no Service leads here.
http: "0.0.0.0:8222"

include auth.conf

tls {
  {{- include "quickstart.natsTLS" . | nindent 2 }}
}

jetstream {
  store_dir: /data
  domain: {{ .Values.nats.domain | quote }}
  # An acknowledgement comes after fsync, or a power cut takes what a sender was told is safe.
  sync_interval: always
  max_file_store: {{ .Values.nats.maxFileStore }}
  max_memory_store: 64Mi
}
{{- if gt (int .Values.nats.replicas) 1 }}

cluster {
  name: {{ .Values.namePrefix }}
  listen: "0.0.0.0:6222"
  # Clients come through the Service; the pods' own addresses are in no certificate.
  no_advertise: true
  routes: [
    {{- range until (int .Values.nats.replicas) }}
    "tls://{{ $.Values.namePrefix }}-nats-{{ . }}.{{ $.Values.namePrefix }}-nats-pods.{{ $.Release.Namespace }}.svc:6222"
    {{- end }}
  ]
  tls {
    {{- include "quickstart.natsTLS" . | nindent 4 }}
  }
}
{{- end }}
{{- end }}

{{- define "quickstart.natsTLS" -}}
cert_file: /etc/nats-tls/tls.crt
key_file: /etc/nats-tls/tls.key
ca_file: /etc/nats-tls/ca.crt
verify: true
{{- end }}
