#!/usr/bin/env bash
# wget and wget2: one run for each step, so that no step knows a challenge of the one before.
# The scheme has the program before it: `wget2 digest`. Both answer what is asked; Basic they have to be
# told to send at once, since they would take Digest.
source "$(dirname "$0")/steps.sh"

version() { "${scheme% *}" --version | sed -n '1s/.*Wget2* \([0-9.]*\).*/\1/p'; }

send() {
    local program=${scheme% *} seen arguments
    arguments=(--no-config --no-hsts --tries=1 --timeout=60 --no-verbose --server-response --output-document=-)
    case $1 in
        GET) ;;
        POST) arguments+=(--header='Content-Type: application/json' --post-data="$3") ;;
        *) arguments+=(--header='Content-Type: application/json' --method="$1" --body-data="$3") ;;
    esac
    if [ "${scheme#* }" = basic ]; then arguments+=(--auth-no-challenge); fi
    seen=$(mktemp)
    text=$("$program" --user="$name" --password="$password" --ca-certificate="$CLIENT_CA" "${arguments[@]}" "$2" 2>"$seen")
    status=$(sed -n 's/^ *HTTP\/[0-9.]* \([0-9]*\).*/\1/p' "$seen" | tail -1)
    if [ -z "$status" ]; then status=0 text=$(<"$seen"); fi
    rm "$seen"
}

steps
