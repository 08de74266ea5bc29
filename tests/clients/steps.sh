# What the shell scripts here have in common: they read what is to be done and say what became of it.
# `tests/it/clients/driver.rs` has the other side. A script defines `version`, and `send METHOD URL BODY`,
# which sets `status` and `text`; it finds what it logs in with in `scheme`, `name` and `password`.
# The certificate that signs those of the servers is in `CLIENT_CA`.

steps() {
    local line method path body base word
    while IFS= read -r line; do
        case $line in
            VERSION) version ;;
            LOGIN)
                IFS= read -r base
                for word in scheme name password; do IFS= read -r "$word"; done
                ;;
            *)
                read -r method path body <<<"$line"
                status=0 text=
                send "$method" "$base$path" "$body" </dev/null
                printf '%s %s\n' "$status" "${text//$'\n'/ }"
                ;;
        esac
    done
}
