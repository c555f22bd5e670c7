{{/* What is refused because it may be a password: ConfigMaps and pods are read by many. */}}

{{- /*
Of the root: every value, whether or not it is rendered today. Not those of other charts (global), the
names of Secrets, and whole objects of the user's own, among them what a controller makes Secrets of.
No rule is right of every text: what the user names as harmless, by its place, is taken.
*/ -}}
{{- define "duebridge.refuseSecrets" -}}
{{- $values := omit .Values "global" "secrets" "extraDeploy" -}}
{{- if .Values.existingConfigMap }}{{ $values = omit $values "config" }}{{ end -}}
{{- include "duebridge.refuseSecretsAt" (list "" $values .Values.secrets.harmless false) -}}
{{- end -}}

{{- /* Of a place, its value, harmless places, and whether a name above says that it is a secret. */ -}}
{{- define "duebridge.refuseSecretsAt" -}}
{{- $place := first . -}}
{{- $value := index . 1 -}}
{{- $harmless := index . 2 -}}
{{- $isSecret := last . -}}
{{- if kindIs "map" $value -}}
  {{- include "duebridge.refuseSecretsIn" . -}}
{{- else if kindIs "slice" $value -}}
  {{- $flag := "" -}}
  {{- range $number, $inner := $value -}}
    {{- /* --token TEXT: the word before says so */ -}}
    {{- $says := include "duebridge.isSecretName" (list "args" $flag) -}}
    {{- include "duebridge.refuseSecretsAt" (list (printf "%s.%d" $place $number) $inner $harmless (or $isSecret $says)) -}}
    {{- $flag = regexFind "^--?[A-Za-z][^=\\s]*$" (toString $inner) -}}
  {{- end -}}
{{- else if not (or (kindIs "bool" $value) (kindIs "invalid" $value) (has $place $harmless)) -}}
  {{- $shown := include "duebridge.withoutReferences" (list $place (toString $value)) -}}
  {{- $says := and $isSecret (not (has $shown (list "" "true" "false"))) -}}
  {{- if or $says (and $shown (include "duebridge.holdsSecret" (list $place $shown))) -}}
    {{- $wanted := "no secret here, but a Secret's key under secrets.env" -}}
    {{- if hasPrefix "config." $place -}}
      {{- $wanted = "its secret as a reference without a default, such as ${VAR}, and VAR under secrets.env" -}}
    {{- end -}}
    {{- fail (printf "%s: expected %s; got a value (if that is no secret, add %s to secrets.harmless)" $place $wanted $place) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* The same of a map. A variable or a header of Kubernetes has its name in a field of its own. */ -}}
{{- define "duebridge.refuseSecretsIn" -}}
{{- $place := first . -}}
{{- $map := index . 1 -}}
{{- $harmless := index . 2 -}}
{{- $isSecret := last . -}}
{{- $areNames := has $place (list "config.brokers" "config.routes" "config.intakes" "intakeWorkers" "spark.jobs") -}}
{{- $ofPrograms := regexMatch "^(config|env|spark\\.conf)(\\.|$)" $place -}}
{{- $named := "" -}}
{{- if and (not $ofPrograms) (kindIs "string" $map.name) (hasKey $map "value") -}}
  {{- $named = include "duebridge.isSecretName" (list "env" $map.name) -}}
{{- end -}}
{{- range $key, $inner := $map -}}
  {{- if or $ofPrograms (not (include "duebridge.namesSecret" $key)) -}}
    {{- $says := and (not $areNames) (include "duebridge.isSecretName" (list $place $key)) -}}
    {{- if eq $key "value" }}{{ $says = or $says $named }}{{ end -}}
    {{- include "duebridge.refuseSecretsAt" (list (trimPrefix "." (printf "%s.%s" $place $key)) $inner $harmless (or $isSecret $says)) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* Of a key of Kubernetes: what stands there is the name of an object. */ -}}
{{- define "duebridge.namesSecret" -}}
{{- if regexMatch "(^s|S)ecrets?(Name|Ref|KeyRef|ProviderClass)?$|Ref$|^(valueFrom|serveToken|serviceAccountToken|authentication)$" . -}}
true
{{- end -}}
{{- end -}}

{{- /*
Of a place and a key there, however clients spell it: in one word, with dots, dashes or capitals. In
doubt it is one; not so paths, names of code, and what is told of a secret: its type, its id, its age.
*/ -}}
{{- define "duebridge.isSecretName" -}}
{{- $place := first . -}}
{{- $key := last . -}}
{{- $names := printf "%s|pswd|pwd|secret|token|credential|jaas|api[._-]?key" (include "duebridge.passWords" .) -}}
{{- if regexMatch "(Annotations|Labels|annotations|labels|nodeSelector)$" $place -}}
  {{- /* Annotations name Secrets to injectors, and say how to fetch them. */ -}}
  {{- $names = "passw|passphrase|pwd|token|credential|api[._-]?key" -}}
{{- else if regexMatch "^(config|env|spark\\.conf|args)(\\.|$)" $place -}}
  {{- $words := "auth|authorization|pw|sas|sig|signature|jwt|kinit|dsn|cookies?|psk|key|(key|client|private)[._-]pem" -}}
  {{- $names = printf "%s|sasl|headers$|user[._-]?info|conn(ection)?[._-]?str|(^|[._-])(%s)([._-]|$)|(?-i:[a-z]Key([A-Z._-]|$))|(private|access|account|shared|ssl|keystore|signing|master|customer|storage)key" $names $words -}}
{{- end -}}
{{- $isPath := "(?i)(url|uri|location|file|path|provider|providers)$" -}}
{{- $tells := "id|type|name|user|username|principal|keytab|mechanisms?|method|scope|class|algorithm|protocols?|source|serializer|sock|dir|enabled?|ms|seconds|minutes|timeout|interval|ttl|factor|jitter|prefix|mode|relogin|size|count|limit" -}}
{{- $isTold := printf "(?i)([._-]|(?-i:[a-z]))(%s)$" $tells -}}
{{- $isHarmless := "(?i)(routing|partition|topology|partitioning|sort|primary)[._-]?key$|^spark\\.kubernetes\\.(driver|executor)\\.secret(s|KeyRef)\\." -}}
{{- if regexMatch (printf "(?i)(%s)" $names) (include "duebridge.withoutOtherPasses" $key) -}}
{{- if not (or (regexMatch $isPath $key) (regexMatch $isTold $key) (regexMatch $isHarmless $key)) -}}
true
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* As in PASSWORD, MYSQLPASS and dbPass; PASSENGERS and PASSIVE are other words, and so is BYPASS. */ -}}
{{- define "duebridge.passWords" -}}
pass(w|phrase|code|key|[0-9._-]|\b)|(?-i:Pass[A-Z])
{{- end -}}

{{- define "duebridge.withoutOtherPasses" -}}
{{- $begun := "(^|[^A-Za-z])(?i:by|com|over|sur|tres|under)|By|Com|Over|Sur|Tres|Under" -}}
{{- regexReplaceAll (printf "(%s)(?i:pass)([^wpckWPCK]|$)" $begun) . "${2}other${3}" -}}
{{- end -}}

{{- /* Of a place and a text: what is readable in it. A default of a reference is; $$ is a dollar sign. */ -}}
{{- define "duebridge.withoutReferences" -}}
{{- $place := first . -}}
{{- $text := regexReplaceAll "\\$\\$" (last .) "#" -}}
{{- $text = regexReplaceAll "\\$\\{[A-Za-z_][A-Za-z0-9_]*:-([^{}$]*)\\}" $text "${1}" -}}
{{- $text = regexReplaceAll "\\$\\{[^{}]*\\}" $text "" -}}
{{- if not (hasPrefix "config." $place) -}}
  {{- /* Kubernetes' references; the shell's in commands; a template is filled in, but those of annotations are an injector's. */ -}}
  {{- $text = regexReplaceAll "\\$\\([A-Za-z_][A-Za-z0-9_.-]*\\)" $text "" -}}
  {{- if regexMatch "\\.(command|args)\\.[0-9]+$" $place }}{{ $text = regexReplaceAll "\\$[A-Za-z_][A-Za-z0-9_]*" $text "" }}{{ end -}}
  {{- $text = regexReplaceAll "(?s)\\{\\{.*?\\}\\}" $text (ternary "" "#" (contains "nnotations." $place)) -}}
{{- end -}}
{{- regexReplaceAll "(?s)-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----" $text "" -}}
{{- end -}}

{{- /*
Of a place and a readable text: a URL with a password, even one that should have been escaped; an assignment; a
private key; a signed URL; a JWT; or so many letters of both cases and digits that nobody made them up,
but for OrderTimeout2Region3Europe4Production where a topic, a queue or a key of an exchange stands.
*/ -}}
{{- define "duebridge.holdsSecret" -}}
{{- $isTarget := regexMatch "^config\\.(routes|intakes)\\..*\\.(target|dead_letter|source|declare|allow_targets\\.[0-9]+)\\.(topic|queue|exchange|routing_key)$" (first .) -}}
{{- with last . -}}
{{- /* http://HOST:PORT/… has no password, whatever follows. */ -}}
{{- $urls := regexReplaceAll "(?i)https?://[^/@:\\s]+:[0-9]+(/|$)" . "http:///" -}}
{{- $inUrl := "://[^@\\n]*:[^@\\n]+@|(?i:https?)://[^/@?#\\s]+@" -}}
{{- $words := printf "%s|pswd|pwd|secret|token|credential|authorization|(api|access|account|shared|master|sas)[._-]?key" (include "duebridge.passWords" $) -}}
{{- $assigned := printf "(?i)(%s)[\\w.-]*(=|\\s=\\s+|[\"']\\s*:\\s*|:\\s+)[\"']?[^\"'\\s&;,]" $words -}}
{{- $parameter := "(?i)[?&;](x-(amz|goog)-)?(sig|signature|auth|key|apikey|code|jwt|sas|pw)=[^&\\s]|SharedAccessSignature|\\bbearer\\s+\\S" -}}
{{- /* Clients decode a parameter's name: ?pass%77ord= */ -}}
{{- $encoded := "://.*[?&][^=&]*%[^=&]*=" -}}
{{- $found := or (regexMatch $inUrl $urls) (regexMatch $assigned (include "duebridge.withoutOtherPasses" .)) (regexMatch $parameter .) (regexMatch $encoded .) -}}
{{- if or $found (regexMatch "PRIVATE KEY( BLOCK)?-----|\\beyJ[\\w-]{8,}\\.eyJ" .) -}}
true
{{- else if not $isTarget -}}
  {{- range $word := regexFindAll "[A-Za-z0-9+/=]{32,}" . -1 -}}
    {{- $isMixed := and (regexMatch "[a-z]" $word) (regexMatch "[A-Z]" $word) (regexMatch "([0-9][^0-9]+){3}" $word) -}}
    {{- if and $isMixed (not (hasPrefix "/" $word)) }}true{{ end -}}
  {{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
