{{/* What the operator may do in a namespace that it acts in: each verb that it uses, and no other. */}}
{{- define "rljob-operator.rules" -}}
# Jobs are written by people; the operator deletes them when their ttlAfterFinished is over.
- apiGroups: [rlcore.io]
  resources: [rljobs]
  verbs: [list, watch, delete]
- apiGroups: [rlcore.io]
  resources: [rljobs/status]
  verbs: [patch]
- apiGroups: [ray.io]
  resources: [rayjobs]
  verbs: [get, list, watch, create, delete]
# Pool limits of a running cluster.
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [list, watch, patch]
# An annotation makes the kubelet sync a ConfigMap at once; deleted is only a head whose node is gone.
# admissionPolicy holds the operator to that.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch, delete]
# admissionPolicy holds it to those that carry its label.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, create]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{/* Binds a role to the operator. Takes (dict "root" $ "kind" Role|ClusterRole "role" NAME). */}}
{{- define "rljob-operator.binding" -}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .role }}
subjects:
  - kind: ServiceAccount
    name: {{ include "rljob-operator.serviceAccountName" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}
