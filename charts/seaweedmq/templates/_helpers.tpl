{{/* Names begin with the release's name as a DNS label; 40 characters leave room for suffixes. KubeSettings.name is the same. */}}
{{- define "smq.name" -}}
{{- $name := .Release.Name | replace "." "-" -}}
{{- $label := ternary $name (printf "smq-%s" $name) (regexMatch "^[a-z]" $name) -}}
{{- regexReplaceAll "-+$" (trunc 40 $label) "" -}}
{{- end }}

{{/* (list $ component): the labels by which resources are found. Deployment tools overwrite those of app.kubernetes.io. */}}
{{- define "smq.selector" -}}
seaweedmq.io/release: {{ (index . 0).Release.Name | quote }}
{{- with index . 1 }}
seaweedmq.io/component: {{ . }}
{{- end }}
{{- end }}

{{/* (list $ component own): the labels of a Pod. */}}
{{- define "smq.podLabels" -}}
{{- $root := index . 0 }}
{{- $labels := include "smq.selector" . | fromYaml }}
{{- $known := dict "app.kubernetes.io/name" "seaweedmq" "app.kubernetes.io/instance" $root.Release.Name "app.kubernetes.io/component" (index . 1) }}
{{- merge $labels $known (index . 2 | default dict) $root.Values.commonLabels | toYaml }}
{{- end }}

{{/* (list $ component): the labels of a resource. The component is empty for what all parts share. */}}
{{- define "smq.labels" -}}
{{- $root := index . 0 }}
{{- $labels := include "smq.selector" . | fromYaml }}
{{- $known := dict "app.kubernetes.io/name" "seaweedmq" "app.kubernetes.io/instance" $root.Release.Name }}
{{- with index . 1 }}{{ $_ := set $known "app.kubernetes.io/component" . }}{{ end }}
{{- $_ := set $known "app.kubernetes.io/managed-by" $root.Release.Service }}
{{- $_ := set $known "app.kubernetes.io/version" (include "smq.labelValue" $root.Chart.AppVersion) }}
{{- $_ := set $known "helm.sh/chart" (include "smq.labelValue" (printf "%s-%s" $root.Chart.Name $root.Chart.Version)) }}
{{- merge $labels $known $root.Values.commonLabels | toYaml }}
{{- end }}

{{/* Text as the value of a label: a version may be longer, and have a `+`. */}}
{{- define "smq.labelValue" -}}
{{- regexReplaceAll "[^A-Za-z0-9]+$" (. | replace "+" "_" | trunc 63) "" -}}
{{- end }}

{{/* Every template begins with it. A section or value that is empty, or that another chart set to null, gets its default. */}}
{{- define "smq.prepare" -}}
{{- include "smq.addDefaults" (list .Values (.Files.Get "files/defaults/values.yaml" | fromYaml)) }}
{{- if not .Values.enabled }}
{{- fail "enabled: false is for a chart that has this one as a dependency with condition: seaweedmq.enabled. Remove it here" }}
{{- end }}
{{- end }}

{{/* (list values defaults). What a user may remove single keys of stays as it is. */}}
{{- define "smq.addDefaults" -}}
{{- $values := index . 0 }}
{{- range $key, $default := index . 1 }}
{{- if kindIs "invalid" (index $values $key) }}
{{- $_ := set $values $key (deepCopy $default) }}
{{- else if and (kindIs "map" $default) (not (has $key (list "resources" "labels" "podSecurityContext" "containerSecurityContext"))) }}
{{- include "smq.addDefaults" (list (index $values $key) $default) }}
{{- end }}
{{- end }}
{{- end }}

{{/* (dict "image" … "root" $) */}}
{{- define "smq.image" -}}
{{- $tag := .image.tag | default (.root.Chart.AppVersion | replace "+" "_") -}}
image: {{ printf "%s:%s" .image.repository $tag | quote }}
imagePullPolicy: {{ .image.pullPolicy | default "IfNotPresent" }}
{{- end }}

{{/* (dict "root" $ "set" settings): what the Pods of all components have. */}}
{{- define "smq.podSpec" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- include "smq.withoutNulls" .root.Values.podSecurityContext | nindent 2 }}
{{- with .set.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .set.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .set.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .set.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .set.topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- else }}
{{- with .spread }}
topologySpreadConstraints: {{- include "smq.spread" . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- define "smq.withoutNulls" -}}
{{- $found := dict }}
{{- range $key, $value := . }}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $found $key $value }}{{ end }}
{{- end }}
{{- toYaml $found }}
{{- end }}

{{/* The labels of Pods that are spread over zones and nodes. */}}
{{- define "smq.spread" -}}
{{- $labels := . }}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- toYaml $labels | nindent 6 }}
  matchLabelKeys: [pod-template-hash]      # in a rollout, spread the new Pods independently of the old ones
{{- end }}
{{- end }}

{{/* (dict "root" $ "set" settings): the volumes and mounts that every container has, and those of the user. */}}
{{- define "smq.volumes" -}}
- {name: tmp, emptyDir: {}}
{{- with include "smq.caSource" (list "filer.ca" .root.Values.filer.ca) }}
- name: filer-ca
  {{- . | nindent 2 }}
{{- end }}
{{- with include "smq.clientCaSource" . }}
- name: client-ca
  {{- . | nindent 2 }}
{{- end }}
{{- if and .joins (ne .root.Values.security.mode "disabled") }}
- name: smq
  projected:
    sources:
      - configMap: {name: {{ include "smq.name" .root }}-security-roots, items: [{key: ca.crt, path: ca.crt}]}
      - serviceAccountToken: {audience: {{ include "smq.tokenAudience" .root | quote }}, expirationSeconds: 3600, path: token}
{{- end }}
{{- with .set.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The audience of tokens that count for this release. */}}
{{- define "smq.tokenAudience" -}}
{{- .Values.security.tokenAudience | default (printf "%s.%s.smq" .Release.Name .Release.Namespace) }}
{{- end }}

{{- /* By it `kubectl smq` knows which token to request. */}}
{{- define "smq.audienceAnnotation" -}}
{{- if ne .Values.security.mode "disabled" -}}
seaweedmq.io/token-audience: {{ include "smq.tokenAudience" . | quote }}
{{- end }}
{{- end }}

{{- /* What a broker or a client needs to join a release with security. The operator makes the ConfigMap of the roots. */}}
{{- define "smq.securityEnv" -}}
{{- if ne .Values.security.mode "disabled" -}}
- {name: SMQ_CA_FILE, value: /etc/smq/security/ca.crt}
- {name: SMQ_TOKEN_FILE, value: /etc/smq/security/token}
{{- end }}
{{- end }}

{{- define "smq.volumeMounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if include "smq.caSource" (list "filer.ca" .root.Values.filer.ca) }}
- {name: filer-ca, mountPath: /etc/smq/filer-ca, readOnly: true}
{{- end }}
{{- if include "smq.clientCaSource" . }}
- {name: client-ca, mountPath: /etc/smq/client-ca, readOnly: true}
{{- end }}
{{- if and .joins (ne .root.Values.security.mode "disabled") }}
- {name: smq, mountPath: /etc/smq/security, readOnly: true}
{{- end }}
{{- with .set.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The authorities whose client certificates count, for a leader of a release with security. */}}
{{- define "smq.clientCaSource" -}}
{{- if and .leads (ne .root.Values.security.mode "disabled") }}
{{- include "smq.caSource" (list "security.clientCa" .root.Values.security.clientCa) }}
{{- end }}
{{- end }}

{{- /* The source of a volume with the file ca.crt: the name of the value and the value. Empty if it names nothing. */}}
{{- define "smq.caSource" -}}
{{- $name := index . 0 }}
{{- with index . 1 }}
{{- $items := printf "items: [{key: %s, path: ca.crt}]" (quote .key) }}
{{- if and .secretName .configMapName }}
{{- fail (printf "%s: set secretName or configMapName, not both" $name) }}
{{- else if .secretName }}
secret: {secretName: {{ .secretName | quote }}, {{ $items }}}
{{- else if .configMapName }}
configMap: {name: {{ .configMapName | quote }}, {{ $items }}}
{{- end }}
{{- end }}
{{- end }}

{{/* Where the leader is reached. */}}
{{- define "smq.leader" -}}
{{- printf "%s.%s.svc:%v" (include "smq.name" .) .Release.Namespace .Values.service.port -}}
{{- end }}

{{/* By what Kafka clients find a first broker: the Service's names, and those of the user. */}}
{{- define "smq.kafkaNames" -}}
{{- $service := printf "%s-kafka" (include "smq.name" .) -}}
{{- $space := .Release.Namespace -}}
{{- $names := list $service (printf "%s.%s" $service $space) (printf "%s.%s.svc" $service $space) (printf "%s.%s.svc.cluster.local" $service $space) -}}
{{- concat $names .Values.kafka.names | join "," -}}
{{- end }}

{{/* Where the log is kept: as configured, or in the trial SeaweedFS. */}}
{{- define "smq.filerUrl" -}}
{{- $trial := ternary "s3://smq" "" .Values.seaweedfs.enabled -}}
{{- required "filer.url is needed: --set filer.url=s3://bucket, or --set seaweedfs.enabled=true for a trial" (.Values.filer.url | default $trial) -}}
{{- end }}

{{- define "smq.filerEndpoint" -}}
{{- $trial := printf "http://%s-seaweedfs.%s.svc:8333" (include "smq.name" .) .Release.Namespace -}}
{{- .Values.filer.endpoint | default (ternary $trial "" .Values.seaweedfs.enabled) -}}
{{- end }}

{{/* How to reach the filer: the same for the operator and the brokers. */}}
{{- define "smq.filerEnv" -}}
- {name: SMQ_FILER_URL, value: {{ include "smq.filerUrl" . | quote }}}
{{- with include "smq.filerEndpoint" . }}
- {name: SMQ_FILER_ENDPOINT, value: {{ . | quote }}}
{{- end }}
{{- with .Values.filer.region }}
- {name: SMQ_FILER_REGION, value: {{ . | quote }}}
{{- end }}
{{- include "smq.filerAccess" . }}
{{- end }}

{{/* What a client of the queue needs, too: it learns the rest from the leader. */}}
{{- define "smq.filerAccess" }}
{{- if include "smq.caSource" (list "filer.ca" .Values.filer.ca) }}
- {name: SSL_CERT_FILE, value: /etc/smq/filer-ca/ca.crt}
{{- end }}
{{- with .Values.filer.secretName }}
{{- range $key := list "AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY" "AWS_SESSION_TOKEN" }}
{{- $optional := ternary ", optional: true" "" (eq $key "AWS_SESSION_TOKEN") }}
- {name: {{ $key }}, valueFrom: {secretKeyRef: {name: {{ $.Values.filer.secretName | quote }}, key: {{ $key }}{{ $optional }}}}}
{{- end }}
{{- end }}
{{- end }}

{{/* (list $ type): the beginning of the spec of every Service. */}}
{{- define "smq.serviceSpec" -}}
{{- with (index . 0).Values.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with index . 1 }}
type: {{ .type }}
{{- with .loadBalancerSourceRanges }}
loadBalancerSourceRanges: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* The default limit of a journal in bytes, from the memory of a broker. */}}
{{- define "smq.journalSize" -}}
{{- $factors := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 }}
{{- $memory := kindIs "string" . | ternary . (int64 . | toString) }}
{{- $number := regexFind "^[0-9]+([.][0-9]*)?([eE][+-]?[0-9]+)?" $memory }}
{{- $unit := trimPrefix $number $memory }}
{{- if or (not $number) (not (hasKey $factors $unit)) }}
{{- fail (printf "brokers: resources.limits.memory: %s is no size: write one such as 1Gi" $memory) }}
{{- end }}
{{- add (mulf 2 (float64 $number) (get $factors $unit | float64) | int64) 1073741824 }}
{{- end }}

{{/* The window of a rate: four intervals between scrapes, and at least two minutes. */}}
{{- define "smq.rateWindow" -}}
{{- $seconds := mulf (regexFind "^[0-9]+" . | float64) (get (dict "ms" 0.001 "s" 1 "m" 60 "h" 3600) (regexFind "[a-z]+$" .) | float64) }}
{{- if gt $seconds 120.0 }}
{{- fail (printf "monitoring.serviceMonitor.interval: %s is too long: write at most 2m, because Prometheus forgets a sample after 5m" .) }}
{{- end }}
{{- printf "%ds" (max 120 (mulf 4 $seconds | int64)) }}
{{- end }}

{{/* Topics whose metric is higher than a quarter of an hour ago, also if nothing was scraped then, for up to a week. */}}
{{- define "smq.increased" -}}
{{- $before := printf "max by (topic) (%s offset 15m) or max by (topic) (last_over_time(%s[7d] offset 15m))" . . }}
{{- printf "max by (topic) (%s) - (%s or max by (topic) (%s) * 0) > 0" . $before . }}
{{- end }}
