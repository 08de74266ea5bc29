#!/usr/bin/env bash
# curl: one run for each step, so that no step knows a challenge of the one before.
# The scheme is one of curl's own words, digest, basic, anyauth; with http2 after it for HTTP/2 or nothing.
source "$(dirname "$0")/steps.sh"

version() { curl --version | sed -n '1s/^curl \([0-9.]*\).*/\1/p'; }

ask() {
    case $scheme in
        # In docs/reference/clients.md:
        digest*) curl --digest --user "$name:$password" "$@" ;;
        anyauth*) curl --anyauth --user "$name:$password" "$@" ;;
        basic*) curl --basic --user "$name:$password" "$@" ;;
        # Not in it:
    esac
}

send() {
    local seen arguments
    arguments=(--silent --show-error --max-time 60 --write-out '\n%{http_version} %{http_code}')
    if [ -n "$3" ]; then arguments+=(--json "$3"); fi
    if [[ $scheme == *' http2' ]]; then arguments+=(--http2); else arguments+=(--http1.1); fi
    arguments+=(--cacert "$CLIENT_CA" --request "$1" "$2")
    text=$(ask "${arguments[@]}" 2>&1) || return 0
    seen=${text##*$'\n'} text=${text%$'\n'*} status=${seen#* }
    if [[ $scheme == *' http2' && $seen != '2 '* ]]; then status=0 text="HTTP/${seen% *}"; fi
}

steps
