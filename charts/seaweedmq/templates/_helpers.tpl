{{/* Names begin with the release's name; 40 characters leave room for suffixes. */}}
{{- define "smq.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "smq.selector" -}}
app.kubernetes.io/name: seaweedmq
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "smq.labels" -}}
{{ include "smq.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* (dict "image" … "root" $) */}}
{{- define "smq.image" -}}
image: {{ printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) | quote }}
imagePullPolicy: {{ .image.pullPolicy | default "IfNotPresent" }}
{{- end }}

{{- define "smq.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "smq.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
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
{{- include "smq.filerCredentials" . }}
{{- end }}

{{- define "smq.filerCredentials" }}
{{- with .Values.filer.secretName }}
- {name: AWS_ACCESS_KEY_ID, valueFrom: {secretKeyRef: {name: {{ . }}, key: AWS_ACCESS_KEY_ID}}}
- {name: AWS_SECRET_ACCESS_KEY, valueFrom: {secretKeyRef: {name: {{ . }}, key: AWS_SECRET_ACCESS_KEY}}}
{{- end }}
{{- end }}

{{/* (dict "Values of scheduling" …): the scheduling of Pods. */}}
{{- define "smq.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "smq.spread" -}}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- toYaml $.labels | nindent 6 }}
  matchLabelKeys: [pod-template-hash]      # in a rollout, spread the new Pods independently of the old ones
{{- end }}
{{- end }}

{{/* The default limit of a journal in bytes, from the memory of a broker: tails cannot be larger than that. */}}
{{- define "smq.journalSize" -}}
{{- $factors := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- $memory := kindIs "string" . | ternary . (int64 . | toString) }}
{{- $factor := get $factors (regexFind "[A-Za-z]*$" $memory) | default 1 }}
{{- add (mulf 2 (regexFind "^[0-9.]+" $memory | float64) (float64 $factor) | int64) 1073741824 }}
{{- end }}
