{{- define "sallyport-kube.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "sallyport-kube.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "sallyport-kube.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "sallyport-kube.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "sallyport-kube.selector" -}}
app.kubernetes.io/name: {{ include "sallyport-kube.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "sallyport-kube.labels" -}}
{{ include "sallyport-kube.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end -}}

{{- define "sallyport-kube.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "sallyport-kube.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is not set: name the ServiceAccount that is there, or leave serviceAccount.create true" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "sallyport-kube.secret" -}}
{{- with .Values.token -}}
{{- if and .existingSecret .value -}}
{{- fail "token.existingSecret and token.value are both set: keep token.existingSecret" -}}
{{- else if .existingSecret -}}
{{- .existingSecret -}}
{{- else if not .value -}}
{{- fail "there is no token: create a Secret (kubectl create secret generic sallyport-token --from-file=token=FILE) and give --set token.existingSecret=sallyport-token" -}}
{{- else if not .allowValue -}}
{{- fail "token.value is readable in the release that Helm stores: create a Secret and give token.existingSecret, or accept it by --set token.allowValue=true" -}}
{{- else -}}
{{- include "sallyport-kube.fullname" $ -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "sallyport-kube.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Options of every command: which installation. */ -}}
{{- define "sallyport-kube.installation" -}}
- {{ printf "--cluster=%s" (required "cluster is not set: give --set cluster=NAME, the same name for the life of this cluster, since its sockets are found by it" .Values.cluster) | quote }}
- {{ printf "--api=%s" (required "api is not set: give --set api=URL, the address of the API of Sallyport, such as https://api.example.com" .Values.api) | quote }}
- --token-file=/run/sallyport/token/token
{{- with .Values.organisation }}
- {{ printf "--organisation=%s" . | quote }}
{{- end }}
{{- if .Values.ca.existingConfigMap }}
- --ca=/run/sallyport/ca/ca.pem
{{- end }}
{{- range .Values.watchNamespaces }}
- {{ printf "--watch-namespace=%s" . | quote }}
{{- end }}
- {{ printf "--class=%s" .Values.loadBalancerClass | quote }}
{{- end -}}

{{- define "sallyport-kube.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "sallyport-kube.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "sallyport-kube.env" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- end -}}

{{- define "sallyport-kube.mounts" -}}
- name: token
  mountPath: /run/sallyport/token
  readOnly: true
{{- if .Values.ca.existingConfigMap }}
- name: ca
  mountPath: /run/sallyport/ca
  readOnly: true
{{- end }}
{{- end -}}

{{- /* Whole folders are mounted: a file that is mounted alone would stay the old one when the token changes. */ -}}
{{- define "sallyport-kube.volumes" -}}
- name: token
  secret:
    secretName: {{ include "sallyport-kube.secret" . | quote }}
    defaultMode: 0440
    items: [{key: {{ .Values.token.key | quote }}, path: token}]
{{- if .Values.ca.existingConfigMap }}
- name: ca
  configMap:
    name: {{ .Values.ca.existingConfigMap | quote }}
    items: [{key: {{ .Values.ca.key | quote }}, path: ca.pem}]
{{- end }}
{{- end -}}

{{- /* What pods of every kind have: the account, and where they run. */ -}}
{{- define "sallyport-kube.placement" -}}
serviceAccountName: {{ include "sallyport-kube.serviceAccount" . | quote }}
automountServiceAccountToken: true
enableServiceLinks: false
securityContext:
  {{- include "sallyport-kube.podSecurityContext" . | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}

{{- /* Rights in the namespaces that are watched. */ -}}
{{- define "sallyport-kube.rules" -}}
- apiGroups: [""]
  resources: [services]
  # To patch is for the finalizer.
  verbs: [get, list, watch, patch]
- apiGroups: [""]
  resources: [services/status]
  verbs: [patch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
- apiGroups: [networking.k8s.io]
  resources: [ingresses]
  verbs: [get, list, watch, patch]
- apiGroups: [networking.k8s.io]
  resources: [ingresses/status]
  verbs: [patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}
