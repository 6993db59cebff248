{{/* A quantity in MiB. */}}
{{- define "quickstart.mebibytes" -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- if hasSuffix "Ti" . }}{{ mul $number 1048576 }}{{ else if hasSuffix "Gi" . }}{{ mul $number 1024 }}{{ else }}{{ $number }}{{ end -}}
{{- end }}

{{- define "quickstart.natsConfig" -}}
{{- if ge (include "quickstart.mebibytes" .Values.nats.maxFileStore | int64) (include "quickstart.mebibytes" .Values.nats.storage.size | int64) }}
{{- fail (printf "nats.maxFileStore %s leaves no space on a volume of nats.storage.size %s: give the volume at least a tenth more" .Values.nats.maxFileStore .Values.nats.storage.size) }}
{{- end -}}
server_name: $POD_NAME
listen: "0.0.0.0:4222"
# For the kubelet's probes and `kubectl port-forward`: no Service leads here.
http: "0.0.0.0:8222"

include auth.conf

# Clients show credentials. A FeedConsumer's Secret holds no certificate, so none is asked for.
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
    # Gateways and feed servers have certificates of the same authority: one that joins must also have the name of a route.
    verify_cert_and_check_known_urls: true
  }
}
{{- end }}
{{- if or .Values.nats.leafnodes.enabled .Values.nats.leafOf.url }}
{{ include "quickstart.natsLeafnodes" . }}
{{- end }}
{{- end }}

{{- define "quickstart.natsLeafnodes" -}}
leafnodes {
  {{- if .Values.nats.leafnodes.enabled }}
  listen: "0.0.0.0:7422"
  # Leaves come by the address that they are told; the pods' own are in no certificate.
  no_advertise: true
  tls {
    cert_file: /etc/nats-leafnodes/tls.crt
    key_file: /etc/nats-leafnodes/tls.key
  }
  {{- end }}
  {{- with .Values.nats.leafOf }}
  {{- if .url }}
  reconnect: "5s"
  remotes: [{
    url: {{ .url | quote }}
    account: {{ required "nats.leafOf.account is the account.id in the Secret <namePrefix>-nats-account" .account | quote }}
    credentials: /etc/nats-leaf/user.creds
    tls { ca_file: /etc/nats-leaf/ca.crt }
    {{- $site := $.Values.nats.domain }}
    {{- $api := printf "$JS.%s.API" $site }}
    # What the hub gets at: making and deleting consumers of the two base streams.
    deny_imports: [
      {{- range list "obs.>" "notice.>" "gap.>" "request.>" "decision.>" "live.>" "health.>" "command.>" "$KV.>" "$OBJ.>" "_INBOX.>" }}
      {{ quote . }}
      {{- end }}
      {{- range list "INFO" "STREAM.>" "DIRECT.>" "META.>" "SERVER.>" "ACCOUNT.>" "$KV.>" "$OBJ.>" "CONSUMER.MSG.>" "CONSUMER.DURABLE.>" "CONSUMER.LIST.>" "CONSUMER.NAMES.>" "CONSUMER.LEADER.>" }}
      {{ printf "%s.%s" $api . | quote }}
      {{- end }}
      {{- range list "REGISTRY" "LEDGER" "LEASE" "STATUS" "CURSOR" "REQUESTS" "NAMES" "INDEX" "GAPS" "DESCRIPTIONS" "DOWNLOADS" }}
      {{ printf "%s.CONSUMER.*.KV_%s_%s.>" $api . $site | quote }}
      {{ printf "%s.CONSUMER.*.KV_%s_%s" $api . $site | quote }}
      {{- end }}
      {{- range $.Values.nats.leafOf.denyStreams }}
      {{ printf "%s.CONSUMER.*.%s.>" $api . | quote }}
      {{ printf "%s.CONSUMER.*.%s" $api . | quote }}
      {{- end }}
    ]
    # What leaves by itself: nothing. The hub asks.
    deny_exports: [
      {{- range list "obs.>" "notice.>" "gap.>" "request.>" "decision.>" "live.>" "health.>" "command.>" "$KV.>" "$OBJ.>" "_INBOX.>" }}
      {{ quote . }}
      {{- end }}
    ]
  }]
  {{- end }}
  {{- end }}
}
{{- end }}

{{- define "quickstart.natsTLS" -}}
cert_file: /etc/nats-tls/tls.crt
key_file: /etc/nats-tls/tls.key
ca_file: /etc/nats-tls/ca.crt
{{- end }}
