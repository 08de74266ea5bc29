#!/usr/bin/env bash
# curl: one run for each step, so that no step knows a challenge of the one before.
# The scheme is one of curl's own words: digest, basic, anyauth.
IFS= read -r base
IFS= read -r scheme
IFS= read -r name
IFS= read -r password
while read -r method path body; do
    arguments=(--disable --silent --show-error --max-time 60 "--$scheme" --user "$name:$password")
    if [ -n "$body" ]; then arguments+=(--json "$body"); fi
    arguments+=(--request "$method" --write-out '\n%{http_code}' "$base$path")
    if answer=$(curl "${arguments[@]}" 2>&1); then
        printf '%s %s\n' "${answer##*$'\n'}" "${answer%$'\n'*}"
    else
        printf '0 %s\n' "${answer//$'\n'/ }"
    fi
done
