//! Tests of the parser: it accepts headers of real clients, and refuses those that parsers could read
//! differently.

use proptest::prelude::*;

use super::*;

/// Names and unquoted values.
fn read(text: &[u8]) -> Result<Vec<(String, String)>, MalformedCredentials> {
    let parameters = AuthParameters::read(text)?;
    let pairs = parameters.all.into_iter().map(|parameter| {
        let name = String::from_utf8(parameter.name.to_vec()).unwrap();
        (name, credential_text::decode_utf8_or_latin1(parameter.value).into_owned())
    });
    Ok(pairs.collect())
}

#[test]
fn scheme_is_split_off() {
    assert_eq!(split_scheme(b"Basic YTpi"), Some((AuthScheme::Basic, &b"YTpi"[..])));
    assert_eq!(split_scheme(b"dIGEST   a=b "), Some((AuthScheme::Digest, &b"a=b"[..])));
    assert_eq!(split_scheme(b"Digest"), Some((AuthScheme::Digest, &b""[..])));
    assert_eq!(split_scheme(b"Bearer x"), None);
    assert_eq!(split_scheme(b"Digested a=b"), None);
    assert_eq!(split_scheme(b""), None);
}

#[test]
fn parameters_of_real_clients_are_parsed() {
    let check = |text: &[u8], expected: &[(&str, &str)]| {
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        assert_eq!(read(text), Ok(expected), "{}", String::from_utf8_lossy(text));
    };
    check(b"", &[]);
    check(b" ,\t, ", &[]);
    check(b"a=b", &[("a", "b")]);
    check(b"a=b,c=\"d\"", &[("a", "b"), ("c", "d")]);
    check(b",, a = b , ,\tc\t=\t\"d\" ,", &[("a", "b"), ("c", "d")]);
    check(br#"a="b, c=\"d\" \\ \e""#, &[("a", r#"b, c="d" \ e"#)]);
    check(br#"a="""#, &[("a", "")]);
    check(b"a=\"tab\there\"", &[("a", "tab\there")]);
    check("a=\"Jäsøn\"".as_bytes(), &[("a", "Jäsøn")]);
    check(b"a=\"J\xe4s\xf8n\"", &[("a", "Jäsøn")]);
    check(b"a=\"J\\\xe4s\xf8n\"", &[("a", "Jäsøn")]);
    check(b"username*=UTF-8''J%C3%A4", &[("username*", "UTF-8''J%C3%A4")]);
}

#[test]
fn parameters_malformed_lists_are_refused() {
    for text in [
        "a",
        "=b",
        "a=",
        "a=,b=c",
        "a==b",
        "a=b c=d",
        "a=\"b\"c=d",
        "a=\"b\"c",
        "a=\"b",
        "a=\"b\\",
        "a=\"b\\\"",
        "a=b/c",
        "a=é",
        "é=a",
        "a=b;c=d",
        "a=b, A=b",
        "a=b, b=c, a=\"\"",
        "a=\"\u{1}\"",
        "a=\"\\\u{1}\"",
        "a=\"x\\y\u{7f}\"",
        "YTpi",
    ] {
        assert!(read(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn parameters_number_and_length_are_limited() {
    let many = |count: usize| (0..count).map(|n| format!("p{n}=v,")).collect::<String>();
    assert_eq!(read(many(24).as_bytes()).unwrap().len(), 24);
    assert!(read(many(25).as_bytes()).is_err());
    let long = |count: usize| format!("a=\"{}\"", "b".repeat(count));
    assert!(read(long(16 * 1024 - 4).as_bytes()).is_ok());
    assert!(read(long(16 * 1024 - 3).as_bytes()).is_err());
}

#[test]
fn parameters_quoting_is_enforced() {
    let mut sent = AuthParameters::read(b"a=b, c=\"d\", e=\"\xc3\xa9\"").unwrap();
    assert!(sent.take_quoted("a").is_err());
    assert!(sent.take_token("C").is_err());
    assert!(sent.take_ascii("e").is_err());
    assert_eq!(sent.take_token("A"), Ok(Some(b"b"[..].into())));
    assert_eq!(sent.take_quoted("c"), Ok(Some(b"d"[..].into())));
    assert_eq!(sent.take_value("x"), None);
}

proptest! {
    #[test]
    fn parameters_any_bytes_are_parsed_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = AuthParameters::read(&bytes);
        let _ = split_scheme(&bytes);
    }

    #[test]
    fn parameters_any_quoted_value_round_trips(value in "[^\\p{C}]{0,40}", token in "[!#-'*+.0-9A-Z^-z|~-]{1,9}") {
        let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
        let text = format!("first={token} ,\tsecond = \"{escaped}\"");
        let expected = vec![("first".to_owned(), token), ("second".to_owned(), value)];
        prop_assert_eq!(read(text.as_bytes()), Ok(expected));
    }
}
