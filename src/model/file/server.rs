//! The `[server]` table of the model file.

use super::keys::{self, KeyForm};
use super::toml_tree::{TomlEntry, TomlTable, TomlText};
use crate::model::builtin::{ADMIN, ANYONE};
use crate::model::cors_origins::normalize_origin;
use crate::model::ip_network::{Network, NetworkFault, is_port};
use crate::model::resource::{Realm, Role};
use crate::model::settings::{
    ChangeRetention, LIMIT_RANGE, LIMITS, RateLimit, RealmIndex, ServerLimits, ServerTable,
    StorageSettings,
};

pub fn read(table: &TomlTable<'_>, realms: &[Realm], roles: &[Role]) -> ServerTable {
    table.check(&keys::SERVER);
    let text = |key: &str| table.text(key).map(|text| text.value.to_owned());
    let file = |key: &str| table.text(key).and_then(|text| read_file(key, &text));
    let realm_names = realms.iter().map(|realm| &*realm.name);
    let retention = |key: &str| ChangeRetention::parse(table.text(key)?.value);
    ServerTable {
        storage: StorageSettings {
            database: table.text("database").and_then(|text| read_database(&text)),
            key_file: file("key_file"),
        },
        database_pooling: table.choice("database_pooling", keys::POOLING_MODES),
        listen: table.find("listen").map(read_listen),
        behind_proxy: table.find("behind_proxy").map(read_networks),
        tls_cert: file("tls_cert"),
        tls_key: file("tls_key"),
        redirect: table.find("redirect").map(read_listen),
        hsts: retention("hsts").and_then(ChangeRetention::duration),
        open: table.flag("open"),
        wait: table.flag("wait"),
        log: table.choice("log", keys::LOG_FORMATS),
        realm: table
            .text("realm")
            .and_then(|text| text.find("realm", realm_names))
            .map(RealmIndex)
            .unwrap_or_default(),
        base_path: text("base_path"),
        base_url: text("base_url"),
        changes_keep: retention("changes_keep"),
        cors_origins: table.find("cors_origins").map(read_origins).unwrap_or_default(),
        http2_prior_knowledge: table.flag("http2_prior_knowledge"),
        webhook_allow_private: table.flag("webhook_allow_private"),
        limits: table.table("limits").map(|table| read_limits(&table)).unwrap_or_default(),
        rate_limits: table
            .table("rate_limits")
            .map(|table| read_rate_limits(&table, roles))
            .unwrap_or_default(),
    }
}

fn read_rate_limits(table: &TomlTable<'_>, roles: &[Role]) -> Vec<RateLimit> {
    let known = roles.iter().map(|role| &*role.name).chain([ANYONE]);
    let read = |entry: &TomlEntry<'_>| {
        if entry.key.value == ADMIN {
            let help = "who looks after the server has to get in; leave this line out";
            entry.key.refuse_with_help("the role `admin` cannot be limited", help);
        } else {
            entry.key.find("role", known.clone());
        }
        let table = entry.table()?;
        table.check(&keys::RATE_LIMIT);
        for key in keys::RATE_LIMIT.names().filter(|key| table.find(key).is_none()) {
            let help = "so many requests in so many seconds: { requests = 600, seconds = 60 }";
            entry.key.refuse_with_help(format!("a rate limit needs `{key}`"), help);
        }
        let count = |key: &str| table.count(key)?.try_into().ok();
        let (requests, seconds) = (count("requests")?, count("seconds")?);
        Some(RateLimit { role: entry.key.value.into(), requests, seconds })
    };
    table.entries.iter().filter_map(read).collect()
}

fn read_database(text: &TomlText<'_>) -> Option<String> {
    // The store parses the rest of the address when it opens the database.
    let known = ["sqlite:", "postgres://", "postgresql://"];
    let rest = known.iter().find_map(|scheme| text.value.strip_prefix(scheme));
    if rest.is_some_and(|rest| !rest.is_empty()) {
        return Some(text.value.to_owned());
    }
    // The rest may contain a password.
    let scheme = text.value.split_once(':').map_or(text.value, |(scheme, _)| scheme);
    text.refuse_with_help(
        format!("`database` expected sqlite:PATH or postgres://USER@HOST/NAME, got \"{scheme}:…\""),
        "the database is a file, such as sqlite:nouns.db, or a PostgreSQL",
    );
    None
}

fn read_file(key: &str, text: &TomlText<'_>) -> Option<String> {
    if text.value.is_empty() {
        text.refuse(format!("`{key}` expected the path of a file, got nothing"));
        return None;
    }
    Some(text.value.to_owned())
}

fn read_listen(entry: &TomlEntry<'_>) -> Vec<String> {
    let (key, texts) = (entry.key.value, entry.texts());
    if entry.is_empty_list() {
        entry.refuse(format!("`{key}` is empty: nobody could connect"));
    }
    for text in &texts {
        let is_valid = text.value.rsplit_once(':').is_some_and(|(host, port)| {
            let is_bare_ipv6 =
                host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
            !host.is_empty() && !is_bare_ipv6 && is_port(port)
        });
        if !is_valid {
            let message = format!("`{key}` expected ADDRESS:PORT, got {:?}", text.value);
            text.refuse_with_help(message, "such as 127.0.0.1:8080, [::1]:8080 or localhost:0");
        }
    }
    texts.iter().map(|text| text.value.to_owned()).collect()
}

fn read_networks(entry: &TomlEntry<'_>) -> Vec<Network> {
    let read = |text: TomlText<'_>| match Network::parse(text.value) {
        Ok(network) => Some(network),
        Err(NetworkFault { what, help }) => {
            text.refuse_with_help(format!("`{}`: {what}", entry.key.value), help);
            None
        }
    };
    entry.texts().into_iter().filter_map(read).collect()
}

fn read_origins(entry: &TomlEntry<'_>) -> Vec<String> {
    let mut origins: Vec<String> = Vec::new();
    for text in entry.texts() {
        let help = match normalize_origin(text.value) {
            Ok(sent) if sent == text.value && origins.contains(&sent) => {
                text.refuse(format!("`cors_origins` has \"{sent}\" twice"));
                continue;
            }
            Ok(sent) if sent == text.value => {
                origins.push(sent);
                continue;
            }
            Ok(sent) => format!("a browser sends it as \"{sent}\""),
            Err(help) => help.to_owned(),
        };
        let expected = "`cors_origins` expected an origin such as \"https://app.example\"";
        text.refuse_with_help(format!("{expected}, got {:?}", text.value), help);
    }
    origins
}

fn read_limits(table: &TomlTable<'_>) -> ServerLimits {
    table.refuse_unknown_keys("`limits` has no such key", &LIMITS.iter().map(|(name, _, _)| *name));
    let mut limits = ServerLimits::default();
    for entry in LIMITS.iter().filter_map(|(name, _, _)| table.find(name)) {
        entry.check(&KeyForm::Count(LIMIT_RANGE));
        if let Some(count) = entry.count().filter(|count| LIMIT_RANGE.contains(count)) {
            limits.set(entry.key.value, count);
        }
    }
    for (low, low_value, high, high_value) in [
        ("page_items_default", limits.page_items_default, "page_items_max", limits.page_items_max),
        ("body_bytes_max", limits.body_bytes_max, "bulk_bytes_max", limits.bulk_bytes_max),
    ] {
        if low_value > high_value
            && let Some(entry) = table.find(low).or_else(|| table.find(high))
        {
            entry.refuse(format!("`{low}`, {low_value}, is above `{high}`, {high_value}"));
        }
    }
    limits
}
