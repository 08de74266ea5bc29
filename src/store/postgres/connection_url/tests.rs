//! Tests of connection URLs: the parsed parts, the error messages, and that no password is shown.

mod passwords;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use tokio_postgres::config::ChannelBinding;

use super::address::*;
use super::*;

fn environment() -> LibpqEnvironment {
    LibpqEnvironment { user: Some("ann".to_owned()), ..LibpqEnvironment::default() }
}

fn password_of(target: &HostTarget) -> Option<&str> {
    target.config.get_password().map(|password| std::str::from_utf8(password).unwrap())
}

/// All that was parsed from one URL, in a line.
fn url_summary(address: &PostgresUrl) -> String {
    let mut words = vec![address.to_string(), format!("{:?}", address.tls.mode)];
    for target in &address.targets {
        words.extend(target.config.get_hostaddrs().iter().map(|number| format!("at {number}")));
        words.extend(password_of(target).map(|password| format!("password {password:?}")));
    }
    let config = &address.targets[0].config;
    let mut said = |is_said: bool, words_of: String| words.extend(is_said.then_some(words_of));
    let application = config.get_application_name().unwrap();
    said(application != "nouns", format!("as {application}"));
    said(config.get_options().is_some(), format!("{:?}", config.get_options()));
    said(address.is_standby_allowed, "Any".to_owned());
    let connect_timeout = config.get_connect_timeout();
    said(connect_timeout.is_some(), format!("connect {connect_timeout:?}"));
    said(!config.get_keepalives(), "no keepalive".to_owned());
    said(address.tls.roots.is_some(), format!("{:?}", address.tls.roots));
    said(address.tls.client.is_some(), format!("{:?}", address.tls.client));
    let binding = config.get_channel_binding();
    said(binding != ChannelBinding::Prefer, format!("binding {binding:?}"));
    words.join(" · ")
}

fn check_urls(texts: &[&str], expected: &Expect) {
    let line = |text: &&str| match PostgresUrl::parse(text, &environment()) {
        Ok(address) => format!("{text}\n    {}\n", url_summary(&address)),
        Err(mistake) => format!("{text}\n    NO: {mistake}\n"),
    };
    expected.assert_eq(&texts.iter().map(line).collect::<String>());
}

#[test]
fn connection_url_all_parts_are_parsed() {
    check_urls(
        &[
            "postgres://",
            "postgresql://bob@db.example.com/shop",
            "postgres://bob:s%40c%3Ar%2Ft@db:5433/shop",
            "postgres://bob:with?mark@db",
            "postgres://a,b:5433,c/shop",
            "postgres://[::1]:5433,[fe80::1%25eth0]/shop",
            "postgres://%2Frun%2Fpg:5433/shop",
            "postgres:///shop?host=/run/pg&port=5433&user=bob@corp",
            "postgres://db/a/b",
            "postgres:///shop?host=a,b&port=5433",
            "postgres:///shop?host=a,b&hostaddr=10.0.0.1,::1",
            "postgres:///shop?hostaddr=10.0.0.1",
            "postgres://,db/shop",
            "postgres://db?user=bob&password=p%26w&dbname=x",
            "postgres://db?connect_timeout=7&application_name=till&options=-c%20search_path%3Dshop",
            "postgres://db?connect_timeout=0&keepalives=0&target_session_attrs=any&client_encoding=UTF8",
            "postgres://db?sslmode=&gssencmode=disable&load_balance_hosts=disable&sslnegotiation=postgres",
            "postgres://db/Übung?application_name=%C3%BC",
        ],
        &expect![[r#"
            postgres://
                postgres://ann@%2Frun%2Fpostgresql:5432/ann · Prefer
            postgresql://bob@db.example.com/shop
                postgres://bob@db.example.com:5432/shop · Prefer
            postgres://bob:s%40c%3Ar%2Ft@db:5433/shop
                postgres://bob@db:5433/shop · Prefer · password "s@c:r/t"
            postgres://bob:with?mark@db
                postgres://bob@db:5432/bob · Prefer · password "with?mark"
            postgres://a,b:5433,c/shop
                postgres://ann@a:5432,b:5433,c:5432/shop · Prefer
            postgres://[::1]:5433,[fe80::1%25eth0]/shop
                postgres://ann@[::1]:5433,[fe80::1%25eth0]:5432/shop · Prefer
            postgres://%2Frun%2Fpg:5433/shop
                postgres://ann@%2Frun%2Fpg:5433/shop · Prefer
            postgres:///shop?host=/run/pg&port=5433&user=bob@corp
                postgres://bob%40corp@%2Frun%2Fpg:5433/shop · Prefer
            postgres://db/a/b
                postgres://ann@db:5432/a%2Fb · Prefer
            postgres:///shop?host=a,b&port=5433
                postgres://ann@a:5433,b:5433/shop · Prefer
            postgres:///shop?host=a,b&hostaddr=10.0.0.1,::1
                postgres://ann@a:5432,b:5432/shop · Prefer · at 10.0.0.1 · at ::1
            postgres:///shop?hostaddr=10.0.0.1
                postgres://ann@10.0.0.1:5432/shop · Prefer · at 10.0.0.1
            postgres://,db/shop
                postgres://ann@%2Frun%2Fpostgresql:5432,db:5432/shop · Prefer
            postgres://db?user=bob&password=p%26w&dbname=x
                postgres://bob@db:5432/x · Prefer · password "p&w"
            postgres://db?connect_timeout=7&application_name=till&options=-c%20search_path%3Dshop
                postgres://ann@db:5432/ann · Prefer · as till · Some("-c search_path=shop") · connect Some(7s)
            postgres://db?connect_timeout=0&keepalives=0&target_session_attrs=any&client_encoding=UTF8
                postgres://ann@db:5432/ann · Prefer · Any · no keepalive
            postgres://db?sslmode=&gssencmode=disable&load_balance_hosts=disable&sslnegotiation=postgres
                postgres://ann@db:5432/ann · Prefer
            postgres://db/Übung?application_name=%C3%BC
                postgres://ann@db:5432/%C3%9Cbung · Prefer · as ü
        "#]],
    );
}

#[test]
fn connection_url_each_sslmode() {
    check_urls(
        &[
            "postgres://db",
            "postgres://db?sslmode=disable",
            "postgres://db?sslmode=allow",
            "postgres://db?sslmode=prefer",
            "postgres://db?sslmode=require",
            "postgres://db?ssl=true",
            "postgres://db?sslmode=require&sslrootcert=/ca.pem",
            "postgres://db?sslmode=verify-ca&sslrootcert=/ca.pem",
            "postgres://db?sslmode=verify-full&sslrootcert=/ca.pem",
            "postgres://db?sslrootcert=system",
            "postgres://db?sslmode=verify-full&sslrootcert=system&channel_binding=require",
            "postgres://db?sslmode=require&sslcert=/c.pem&sslkey=/k.pem&channel_binding=disable",
            "postgres://db?sslmode=verify-ca",
            "postgres://db?sslmode=verify-full",
            "postgres://db?sslmode=require&sslrootcert=system",
            "postgres://db?sslmode=verify-fll",
            "postgres://db?sslmode=yes",
            "postgres://db?sslcert=/c.pem",
            "postgres://db?channel_binding=always",
        ],
        &expect![[r#"
            postgres://db
                postgres://ann@db:5432/ann · Prefer
            postgres://db?sslmode=disable
                postgres://ann@db:5432/ann · Disable
            postgres://db?sslmode=allow
                postgres://ann@db:5432/ann · Prefer
            postgres://db?sslmode=prefer
                postgres://ann@db:5432/ann · Prefer
            postgres://db?sslmode=require
                postgres://ann@db:5432/ann · Require
            postgres://db?ssl=true
                postgres://ann@db:5432/ann · Require
            postgres://db?sslmode=require&sslrootcert=/ca.pem
                postgres://ann@db:5432/ann · VerifyCa · Some(File("/ca.pem"))
            postgres://db?sslmode=verify-ca&sslrootcert=/ca.pem
                postgres://ann@db:5432/ann · VerifyCa · Some(File("/ca.pem"))
            postgres://db?sslmode=verify-full&sslrootcert=/ca.pem
                postgres://ann@db:5432/ann · VerifyFull · Some(File("/ca.pem"))
            postgres://db?sslrootcert=system
                postgres://ann@db:5432/ann · VerifyFull · Some(System)
            postgres://db?sslmode=verify-full&sslrootcert=system&channel_binding=require
                postgres://ann@db:5432/ann · VerifyFull · Some(System) · binding Require
            postgres://db?sslmode=require&sslcert=/c.pem&sslkey=/k.pem&channel_binding=disable
                postgres://ann@db:5432/ann · Require · Some(ClientCertificateFiles { certificate: "/c.pem", key: "/k.pem" }) · binding Disable
            postgres://db?sslmode=verify-ca
                NO: database: sslmode=verify-ca needs a trust anchor: add sslrootcert=FILE
            postgres://db?sslmode=verify-full
                NO: database: sslmode=verify-full needs a trust anchor: add sslrootcert=FILE, or sslrootcert=system
            postgres://db?sslmode=require&sslrootcert=system
                NO: database: sslrootcert=system requires sslmode=verify-full: anyone can get a certificate from those it trusts
            postgres://db?sslmode=verify-fll
                NO: database: there is no sslmode "verify-fll"; did you mean "verify-full"?
            postgres://db?sslmode=yes
                NO: database: there is no sslmode "yes"; expected one of disable, allow, prefer, require, verify-ca, verify-full
            postgres://db?sslcert=/c.pem
                NO: database: sslcert and sslkey must be given together: a certificate and its key
            postgres://db?channel_binding=always
                NO: database: channel_binding expected disable, prefer or require, got "always"
        "#]],
    );
}

#[test]
fn connection_url_errors_name_the_remedy() {
    check_urls(
        &[
            "postgres:db",
            "postgres://db?sslmod=require",
            "postgres://db?colour=red",
            "postgres://db?sslcrl=/x",
            "postgres://db?user",
            "postgres://db?user=a=b",
            "postgres://db:0",
            "postgres://db:65536",
            "postgres://db:+1",
            "postgres://a,b,c/?port=1,2",
            "postgres://a,b/?hostaddr=10.0.0.1",
            "postgres://db?hostaddr=db",
            "postgres://::1/shop",
            "postgres://[::1/shop",
            "postgres://[::1]5432/shop",
        ],
        &expect![[r#"
            postgres:db
                NO: database: expected an address that begins with postgres://
            postgres://db?sslmod=require
                NO: database: there is no parameter "sslmod"; did you mean "sslmode"?
            postgres://db?colour=red
                NO: database: there is no parameter "colour"; known are application_name, channel_binding, client_encoding, connect_timeout, dbname, gssencmode, host, hostaddr, keepalives, keepalives_count, keepalives_idle, keepalives_interval, load_balance_hosts, options, passfile, password, port, sslcert, sslkey, sslmode, sslnegotiation, sslrootcert, target_session_attrs, tcp_user_timeout, user
            postgres://db?sslcrl=/x
                NO: database: the parameter "sslcrl" is not supported; leave it out
            postgres://db?user
                NO: database: expected key=value after the ?, with & between pairs; another = is %3D
            postgres://db?user=a=b
                NO: database: expected key=value after the ?, with & between pairs; another = is %3D
            postgres://db:0
                NO: database: expected a port from 1 to 65535 after the host; is the host missing, as in USER:PASSWORD@HOST?
            postgres://db:65536
                NO: database: expected a port from 1 to 65535 after the host; is the host missing, as in USER:PASSWORD@HOST?
            postgres://db:+1
                NO: database: expected a port from 1 to 65535 after the host; is the host missing, as in USER:PASSWORD@HOST?
            postgres://a,b,c/?port=1,2
                NO: database: 2 ports for 3 hosts; give one, or one to each host
            postgres://a,b/?hostaddr=10.0.0.1
                NO: database: hostaddr has 1 entries for 2 hosts; give one to each
            postgres://db?hostaddr=db
                NO: database: hostaddr expected an IP address, got "db"
            postgres://::1/shop
                NO: database: an IPv6 address stands in brackets, such as [::1]
            postgres://[::1/shop
                NO: database: the [ before an IPv6 address has no ] behind it
            postgres://[::1]5432/shop
                NO: database: expected : and a port, or nothing, after the ]
        "#]],
    );
    let nobody = PostgresUrl::parse("postgres://db", &LibpqEnvironment::default());
    expect!["database: no user is named: write postgres://USER@HOST/NAME, or set PGUSER"]
        .assert_eq(&nobody.unwrap_err());
}

#[test]
fn connection_url_invalid_values_are_refused() {
    check_urls(
        &[
            "postgres://db/%zz",
            "postgres://db/%",
            "postgres://db/%ff",
            "postgres://db/%00",
            "postgres://db%0a/shop",
            "postgres://db?connect_timeout=soon",
            "postgres://db?connect_timeout=-1",
            "postgres://db?connect_timeout=99999999999999999999",
            "postgres://db?target_session_attrs=standby",
            "postgres://db?client_encoding=LATIN1",
            "postgres://db?gssencmode=require",
            "postgres://db?load_balance_hosts=random",
            "postgres://db?sslnegotiation=direct",
            "postgres://db?passfile=/there/is/none",
        ],
        &expect![[r#"
            postgres://db/%zz
                NO: database: the name of the database has a % without two hexadecimal digits; a % itself is %25
            postgres://db/%
                NO: database: the name of the database has a % without two hexadecimal digits; a % itself is %25
            postgres://db/%ff
                NO: database: the name of the database is not text in UTF-8
            postgres://db/%00
                NO: database: the name of the database has a zero byte in it
            postgres://db%0a/shop
                NO: database: host has a control character in it
            postgres://db?connect_timeout=soon
                NO: database: connect_timeout expected a number from 0 to 86400000, got "soon"
            postgres://db?connect_timeout=-1
                NO: database: connect_timeout expected a number from 0 to 86400000, got "-1"
            postgres://db?connect_timeout=99999999999999999999
                NO: database: connect_timeout expected a number from 0 to 86400000, got "99999999999999999999"
            postgres://db?target_session_attrs=standby
                NO: database: target_session_attrs expected read-write, primary or any, got "standby": this server writes to the database
            postgres://db?client_encoding=LATIN1
                NO: database: client_encoding expected UTF8 or utf8 or UTF-8 or auto, got "LATIN1": text is always sent as UTF-8
            postgres://db?gssencmode=require
                NO: database: gssencmode expected disable or prefer, got "require": encryption is by TLS alone
            postgres://db?load_balance_hosts=random
                NO: database: load_balance_hosts expected disable, got "random": only the primary takes writes, so hosts are tried in turn
            postgres://db?sslnegotiation=direct
                NO: database: sslnegotiation expected postgres, got "direct": only the negotiation that every server supports is used
            postgres://db?passfile=/there/is/none
                NO: database: cannot read the passfile /there/is/none (No such file or directory (os error 2))
        "#]],
    );
}

proptest! {
    #[test]
    fn connection_url_any_text_does_not_panic(text in ".{0,60}") {
        for scheme in SCHEMES {
            let text = format!("{scheme}{text}");
            let _ = (PostgresUrl::parse(&text, &environment()), PostgresUrl::has_password(&text));
        }
    }

    /// Percent-encoded parts are decoded to themselves, and the displayed URL parses to the same host.
    #[test]
    fn connection_url_percent_encoding_round_trips(
        user in "[^\\p{Cc}]{1,12}",
        password in "[^\\x00]{1,12}",
        name in "[^\\p{Cc}]{1,12}",
        port in 1_u16..,
    ) {
        let text = format!(
            "postgres://{}:{}@db:{port}/{}",
            percent_encode(&user), percent_encode(&password), percent_encode(&name)
        );
        let address = PostgresUrl::parse(&text, &environment()).unwrap();
        prop_assert_eq!(&address.user, &user);
        prop_assert_eq!(&address.database, &name);
        prop_assert_eq!(password_of(&address.targets[0]), Some(&*password));
        let again = PostgresUrl::parse(&address.to_string(), &environment()).unwrap();
        prop_assert_eq!(password_of(&again.targets[0]), None);
        prop_assert_eq!((&again.user, &again.database), (&user, &name));
        prop_assert_eq!(again.targets[0].port, port);
        // A short one may occur by chance.
        if password.chars().count() > 8 {
            let shown = format!("{address:?} {address}");
            prop_assert!(!shown.contains(&password));
        }
    }
}
