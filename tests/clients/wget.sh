#!/usr/bin/env bash
# wget and wget2: one run for each step, so that no step knows a challenge of the one before.
# The scheme has the program before it: `wget2 digest`. Both answer what is asked, which is `either` where
# both schemes are offered; `basic` they send at once.
source "$(dirname "$0")/steps.sh"

version() { "${scheme% *}" --version | sed -n '1s/.*Wget2* \([0-9.]*\).*/\1/p'; }

ask() {
    case $scheme in
        # In docs/reference/clients.md:
        'wget digest' | 'wget either') wget --user="$name" --password="$password" "$@" ;;
        'wget basic') wget --auth-no-challenge --user="$name" --password="$password" "$@" ;;
        'wget2 digest') wget2 --user="$name" --password="$password" "$@" ;;
        'wget2 basic') wget2 --auth-no-challenge --user="$name" --password="$password" "$@" ;;
        # Not in it:
    esac
}

send() {
    local program=${scheme% *} arguments beside all
    arguments=(--no-config --no-hsts --tries=1 --timeout=60 --quiet --output-document=-)
    case $1 in
        GET) ;;
        POST) arguments+=(--header='Content-Type: application/json' --post-data="$3") ;;
        *) arguments+=(--header='Content-Type: application/json' --method="$1" --body-data="$3") ;;
    esac
    # The one shows the heads of answers beside their bodies, the other before them.
    case $program in
        wget) arguments+=(--server-response) ;;
        # Over HTTP/2 it makes a GET of a POST.
        wget2) arguments+=(--save-headers --content-on-error --no-http2) ;;
    esac
    beside=$(mktemp)
    text=$(ask --ca-certificate="$CLIENT_CA" "${arguments[@]}" "$2" 2>"$beside")
    all=$(<"$beside")$text
    rm "$beside"
    if [[ $all != *HTTP/1.1\ * ]]; then
        text=$all
        return
    fi
    status=${all##*HTTP/1.1 }
    status=${status:0:3}
    text=${text//$'\r'/}
    text=${text##*$'\n\n'}
}

steps
