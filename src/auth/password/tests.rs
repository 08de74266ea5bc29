//! Tests of passwords and their records, with the parameters of production.

use proptest::prelude::*;

use super::*;
use crate::model;

fn keys(byte: u8) -> KeySet {
    use base64::Engine as _;
    KeySet::parse(&base64::engine::general_purpose::STANDARD.encode([byte; 32])).unwrap()
}

fn store(realms: &str) -> Model {
    let text = format!(
        "title = \"Store\"\n{realms}\n[resources.customer]\nrealm = \"store\"\n[resources.customer.fields]\nname = {{ type = \"text\" }}\n"
    );
    model::read("nouns.toml", &text).unwrap_or_else(|errors| panic!("{}", errors.render(false)))
}

const DIGEST: &str = "[realms.store]\nschemes = [\"digest\", \"basic\"]";

#[test]
fn password_record_verifies_its_password_only() {
    let (model, keys) = (store(DIGEST), keys(1));
    let record = make_record(&model, Some(&keys), "ann", "Circle of Life").unwrap();
    assert!(verify(Some(&record), "Circle of Life"));
    assert!(!verify(Some(&record), "Circle Of Life"));
    assert!(!verify(Some(&record), "Circle of Life "));
    assert!(!verify(Some(&record), ""));
    assert!(!verify(None, "Circle of Life"));
    let text = record.to_string();
    assert_eq!(PasswordRecord::parse(&text), Some(record));
    assert!(!text.contains("Circle"));
}

/// RFC 7617 §2.1 asks for NFC; a keyboard may send either.
#[test]
fn password_in_nfc_or_nfd_is_the_same() {
    let (model, keys) = (store(DIGEST), keys(1));
    let record = make_record(&model, Some(&keys), "jos\u{e9}", "caf\u{e9}").unwrap();
    assert!(verify(Some(&record), "cafe\u{301}"));
    assert!(!verify(Some(&record), "cafe"));
    let same = make_record(&model, Some(&keys), "jose\u{301}", "cafe\u{301}").unwrap();
    let ha1 = |record: &PasswordRecord| {
        record.ha1(&keys, "jose\u{301}", ("store", Algorithm::Md5)).unwrap().unwrap()
    };
    assert_eq!(ha1(&record), ha1(&same));
    assert!(verify(Some(&same), "caf\u{e9}"));
}

/// HA1 by `printf … | md5sum` and `sha256sum`.
#[test]
fn password_record_seals_an_ha1_for_each_algorithm() {
    let model =
        store("[realms.store]\nschemes = [\"basic\"]\n[realms.other]\nschemes = [\"digest\"]");
    let keys = keys(1);
    let record = make_record(&model, Some(&keys), "Mufasa", "Circle of Life").unwrap();
    assert_eq!(record.digests.len(), 2, "none for a realm without Digest");
    let ha1 = |algorithm| record.ha1(&keys, "Mufasa", ("other", algorithm));
    let md5 = ha1(Algorithm::Md5).unwrap().unwrap();
    assert_eq!(md5, "7e4d723ffd5acee07ac5651a6be94771");
    let sha = ha1(Algorithm::Sha256).unwrap().unwrap();
    assert_eq!(sha, "0898247e54846d2cadd2b2dd43f913b18cb20de0471d5fd9e06a971d98234be2");
    assert!(!record.to_string().contains(&md5) && !record.to_string().contains(&sha));
    assert_eq!(record.ha1(&keys, "Mufasa", ("store", Algorithm::Md5)), None);
    assert_eq!(record.ha1(&keys, "Simba", ("other", Algorithm::Md5)), Some(Err(SealError::Broken)));
}

#[test]
fn password_record_lacks_a_later_realm_until_completed() {
    let (before, keys) = (store("[realms.store]\nschemes = [\"basic\"]"), keys(1));
    let mut record = make_record(&before, Some(&keys), "ann", "secret").unwrap();
    assert!(!lacks_digests(&record, &before, &keys));
    let after = store(DIGEST);
    assert!(lacks_digests(&record, &after, &keys));
    let hash = record.argon2.clone();
    record.complete(&after, &keys, "ann", "secret").unwrap();
    assert!(!lacks_digests(&record, &after, &keys));
    assert_eq!(record.argon2, hash, "nothing is hashed anew");
    let sealed = record.digests.clone();
    record.complete(&after, &keys, "ann", "secret").unwrap();
    assert_eq!(record.digests, sealed, "what is there stays");
    record.complete(&before, &keys, "ann", "secret").unwrap();
    assert!(record.digests.is_empty(), "what a realm does not offer any more goes");
}

#[test]
fn digest_credentials_of_an_absent_realm_are_kept() {
    let (both, keys) = (store("[realms.store]\n[realms.desk]"), keys(1));
    let mut record = make_record(&both, Some(&keys), "ann", "secret").unwrap();
    let before = record.clone();
    let without = store("[realms.store]");
    record.complete(&without, &keys, "ann", "secret").unwrap();
    assert_eq!(record.digests.len(), 4);
    let md5 = |record: &PasswordRecord| record.ha1(&keys, "ann", ("desk", Algorithm::Md5));
    assert_eq!(md5(&record), md5(&before));
    assert_eq!(record.digest_mismatch(&without), None, "all that is offered is there");
    let new = make_record(&without, Some(&keys), "ann", "another").unwrap();
    assert_eq!((new.digests.len(), md5(&new)), (2, None));
}

#[test]
fn digest_credentials_of_absent_realms_are_limited() {
    let keys = keys(1);
    let mut record = make_record(&store(DIGEST), Some(&keys), "ann", "secret").unwrap();
    for number in 0..20 {
        let text = format!("title = \"Store\"\n[realms.r{number}]\n[resources.customer]\n");
        let model = model::read("nouns.toml", &text).unwrap();
        record.complete(&model, &keys, "ann", "secret").unwrap();
        assert!(!lacks_digests(&record, &model, &keys));
    }
    let realms: Vec<&str> = record.digests.iter().map(|(realm, _, _)| realm.as_str()).collect();
    assert_eq!((realms.len(), realms.first(), realms.last()), (18, Some(&"r11"), Some(&"r19")));
}

#[test]
fn digest_mismatch_names_realms_without_credentials_and_credentials_without_use() {
    let keys = keys(1);
    let of = |realms: &[&str]| {
        // The password is set for the first realm, and a Basic login completes it for each of the others.
        let mut record = make_record(&store(realms[0]), Some(&keys), "ann", "secret").unwrap();
        for realms in &realms[1..] {
            record.complete(&store(realms), &keys, "ann", "secret").unwrap();
        }
        record
    };
    let mismatch = |stored: &[&str], now: &str| {
        let found = of(stored).digest_mismatch(&store(now))?;
        let joined = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(" ");
        Some((joined(found.lacking), joined(found.unused)))
    };
    let found = |lacking: &str, unused: &str| Some((lacking.to_owned(), unused.to_owned()));
    let (one, other) = ("[realms.store]", "[realms.store]\n[realms.desk]");
    assert_eq!(mismatch(&[one], one), None);
    assert_eq!(mismatch(&[one], other), None, "a new realm is no loss");
    assert_eq!(mismatch(&[other], one), None, "nor is one less");
    let renamed = "[realms.store]\n[realms.counter]";
    assert_eq!(mismatch(&[other], renamed), found("counter", "desk"));
    assert_eq!(mismatch(&[other, renamed], renamed), None, "completed by a login");
    let basic = "[realms.store]\nschemes = [\"basic\"]";
    assert_eq!(mismatch(&[basic], one), None, "there was nothing");
    assert_eq!(mismatch(&[one], basic), None, "nothing is lacking");
    let (md5, sha) =
        ("[realms.store]\nalgorithms = [\"md5\"]", "[realms.store]\nalgorithms = [\"sha-256\"]");
    assert_eq!(mismatch(&[md5], sha), found("store", "store"));
    // One algorithm is enough to log in; stored credentials of a removed realm make no difference.
    let with_desk = "[realms.store]\nalgorithms = [\"md5\"]\n[realms.desk]";
    assert_eq!(mismatch(&[with_desk], one), None);
}

#[test]
fn digest_credentials_of_a_lost_key_are_lacking() {
    let model = store(DIGEST);
    let mut record = make_record(&model, Some(&keys(1)), "ann", "secret").unwrap();
    let new = keys(2);
    assert!(lacks_digests(&record, &model, &new));
    assert_eq!(
        record.ha1(&new, "ann", ("store", Algorithm::Md5)),
        Some(Err(SealError::UnknownKey))
    );
    record.complete(&model, &new, "ann", "secret").unwrap();
    assert!(!lacks_digests(&record, &model, &new));
    assert!(record.ha1(&new, "ann", ("store", Algorithm::Md5)).unwrap().is_ok());
    let open = make_record(&model, None, "ann", "secret").unwrap();
    assert!(open.digests.is_empty() && lacks_digests(&open, &model, &new));
}

#[test]
fn key_rotation_reseals_a_record_once() {
    let model = store(DIGEST);
    let mut record = make_record(&model, Some(&keys(1)), "ann", "secret").unwrap();
    let ha1 = record.ha1(&keys(1), "ann", ("store", Algorithm::Sha256));
    let both = keys(1).begin_rotation(keys(2));
    assert_eq!(record.reseal(&both, "ann"), Some(ResealResult { is_changed: true, dropped: 0 }));
    assert_eq!(record.reseal(&both, "ann"), Some(ResealResult { is_changed: false, dropped: 0 }));
    let new = both.end_rotation();
    assert_eq!(record.ha1(&new, "ann", ("store", Algorithm::Sha256)), ha1);
    let dropped = Some(ResealResult { is_changed: true, dropped: record.digests.len() });
    assert_eq!(record.reseal(&keys(3), "ann"), dropped, "what nobody can open is dropped");
    assert!(record.digests.is_empty());
}

#[test]
fn password_invalid_is_refused_and_never_truncated() {
    let model = store(DIGEST);
    let refused = |password: &str| make_record(&model, None, "ann", password).unwrap_err();
    assert_eq!(refused(""), PasswordError::Empty);
    assert_eq!(refused(&"x".repeat(4097)), PasswordError::TooLong);
    assert_eq!(refused("a\nb"), PasswordError::Control);
    assert_eq!(refused("a\u{85}b"), PasswordError::Control);
    let longest = "x".repeat(4096);
    let record = make_record(&model, None, "ann", &longest).unwrap();
    assert!(verify(Some(&record), &longest));
    assert!(!verify(Some(&record), &longest[..4095]));
}

#[test]
fn password_record_damaged_verifies_nothing() {
    let damaged = PasswordRecord { argon2: "$argon2id$v=19$".to_owned(), digests: Vec::new() };
    assert!(!verify(Some(&damaged), "secret"));
    for text in [
        "",
        "{}",
        "[]",
        r#"{"argon2":1,"digests":[]}"#,
        r#"{"argon2":"","digests":[["a","MD5"]]}"#,
        r#"{"argon2":"","digests":[["a","MD4","x"]]}"#,
        r#"{"argon2":"","other":[]}"#,
    ] {
        assert_eq!(PasswordRecord::parse(text), None, "{text}");
    }
}

proptest! {
    #[test]
    fn password_record_round_trips(argon2 in "\\PC*", digests in proptest::collection::vec(("\\PC*", any::<bool>(), "\\PC*"), 0..4)) {
        let digests = digests.into_iter().map(|(realm, md5, sealed)| {
            (realm, if md5 { Algorithm::Md5 } else { Algorithm::Sha256 }, sealed)
        });
        let record = PasswordRecord { argon2, digests: digests.collect() };
        prop_assert_eq!(PasswordRecord::parse(&record.to_string()), Some(record));
    }

    #[test]
    fn password_record_any_text_is_parsed_or_refused(text in "\\PC{0,200}") {
        let _ = PasswordRecord::parse(&text);
        let _ = check_password(&text);
        prop_assert!(unicode_normalization::is_nfc(&credential_text::to_nfc(&text)));
    }
}
