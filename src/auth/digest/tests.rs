//! Tests of Digest: the RFCs' examples, credentials as clients send them, refusals, and other implementations
//! as clients.

mod clients;
mod cost;

use proptest::prelude::*;

use super::*;
use crate::model::ChallengeForm;

/// RFC 2617 §3.5.
const MUFASA: &str = r#"username="Mufasa", realm="testrealm@host.com", nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093", uri="/dir/index.html", qop=auth, nc=00000001, cnonce="0a4f113b", response="6629fae49393a05397450978507c4ef1", opaque="5ccc069c403ebaf9f0171e9517f40e41""#;
const OPAQUE: &str = "5ccc069c403ebaf9f0171e9517f40e41";

fn realm(name: &str) -> Realm {
    Realm {
        name: name.into(),
        schemes: vec![AuthScheme::Digest],
        algorithms: vec![Algorithm::Sha256, Algorithm::Md5],
        qop: vec![Qop::Auth],
        challenge: ChallengeForm::Merged,
        legacy: false,
    }
}

fn parsed(header: &str) -> DigestCredentials<'_> {
    read(header.as_bytes()).unwrap_or_else(|error| panic!("{header}: {error:?}"))
}

#[test]
fn digest_rfc_2617_example_verifies() {
    let proof = parsed(MUFASA);
    assert_eq!(proof.user, DigestUsername::Name("Mufasa".into()));
    assert_eq!(proof.count(), Some(1));
    assert!(!proof.covers_body());
    let target = DigestTarget { text: "/dir/index.html", host: "localhost" };
    let fits = proof.check_scope(&realm("testrealm@host.com"), &[OPAQUE.into()], &target);
    assert_eq!(fits, Ok(Algorithm::Md5));
    let right = ha1(Algorithm::Md5, "Mufasa", "testrealm@host.com", "Circle Of Life");
    assert_eq!(right.as_text(), "939e7578ed9e3c518a452acee763bce9");
    assert!(proof.verify(&right, "GET", None));
    assert!(!proof.verify(&right, "POST", None));
    let wrong = ha1(Algorithm::Md5, "Mufasa", "testrealm@host.com", "Circle of Life");
    assert!(!proof.verify(&wrong, "GET", None));
    assert_eq!(
        proof.with_ha1(&right).unwrap().authentication_info(None, None).as_deref(),
        Some(
            r#"qop=auth, rspauth="376602cfd2f4e8e5e78b948a85263e85", cnonce="0a4f113b", nc=00000001"#
        )
    );
    assert_eq!(
        proof.with_ha1(&right).unwrap().authentication_info(None, Some("next")).as_deref(),
        Some(
            r#"qop=auth, rspauth="376602cfd2f4e8e5e78b948a85263e85", cnonce="0a4f113b", nc=00000001, nextnonce="next""#
        )
    );
}

#[test]
fn digest_rfc_7616_examples_verify() {
    // §3.9.1.
    for (algorithm, name, response) in [
        (Algorithm::Md5, "MD5", "8ca523f5e9506fed4657c9700eebdbec"),
        (
            Algorithm::Sha256,
            "SHA-256",
            "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1",
        ),
    ] {
        let header = format!(
            r#"username="Mufasa", realm="http-auth@example.org", uri="/dir/index.html", algorithm={name}, nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", nc=00000001, cnonce="f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ", qop=auth, response="{response}", opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS""#
        );
        let right = ha1(algorithm, "Mufasa", "http-auth@example.org", "Circle of Life");
        assert!(parsed(&header).verify(&right, "GET", None), "{name}");
    }
    // §3.9.2 has another algorithm, and hashes that do not fit it: these were recomputed.
    for (algorithm, name, hashed, response) in [
        (
            Algorithm::Md5,
            "MD5",
            "2e063fa2c54dea1c36808b7a6e3b14c9",
            "f33f35281ddf05582b8faae5b8014ef5",
        ),
        (
            Algorithm::Sha256,
            "SHA-256",
            "5a1a8a47df5c298551b9b42ba9b05835174a5bd7d511ff7fe9191d8e946fc4e7",
            "06d0c14162099f487a92ebceaf71097534ee5f90d858386449c337ab69f7f6b8",
        ),
    ] {
        let rest = format!(
            r#"realm="api@example.org", uri="/doe.json", algorithm={name}, nonce="5TsQWLVdgBdmrQ0XsxbDODV+57QdFR34I9HAbC/RVvkK", nc=00000001, cnonce="NTg6RKcb9boFIAS3KrFK9BGeh+niz/sm", qop=auth, response="{response}", opaque="HRPCssKJSGjCrkzDg8OhwpzCiGPChXYjwrI2QmXDnsOS""#
        );
        // The name is normalized (NFC) before it is hashed: the form that the client typed does not matter.
        let right = ha1(algorithm, "Ja\u{308}søn Doe", "api@example.org", "Secret, or not?");
        let header = format!(r#"username="{hashed}", userhash=true, {rest}"#);
        let DigestUsername::Hash(sent) = &parsed(&header).user else { panic!("{header}") };
        assert!(
            userhash(algorithm, "Jäsøn Doe", "api@example.org")
                .equals_constant_time(sent.as_bytes())
        );
        assert!(parsed(&header).verify(&right, "GET", None), "{name}");
        let header = format!("username*=UTF-8''J%C3%A4s%C3%B8n%20Doe, {rest}");
        assert_eq!(parsed(&header).user, DigestUsername::Name("Jäsøn Doe".into()));
        assert!(parsed(&header).verify(&right, "GET", None), "{name}");
    }
}

#[test]
fn digest_auth_int_covers_the_body() {
    for (algorithm, name, response, answered) in [
        (
            Algorithm::Md5,
            "MD5",
            "212c7f672dbb125d9a5e2fe3f08ae5dd",
            "784efc0f2340627ea2b53dafc71741d7",
        ),
        (
            Algorithm::Sha256,
            "SHA-256",
            "ef83b302e03f799a7d6ed21e17b82b5b7d9d959c7c5d28ccce740b2bee2e7ba2",
            "de85d72562c374f170d622fec19e242b87b9aaa9b49046dcab0ecbb6074a2659",
        ),
    ] {
        let header = format!(
            r#"username="Mufasa", realm="testrealm@host.com", nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093", uri="/customers", qop=auth-int, nc=0000000A, cnonce="0a4f113b", response="{response}", opaque="{OPAQUE}", algorithm={name}"#
        );
        let proof = parsed(&header);
        assert_eq!((proof.count(), proof.covers_body()), (Some(10), true));
        let target = DigestTarget { text: "/customers", host: "localhost" };
        let fits = proof.check_scope(&realm("testrealm@host.com"), &[OPAQUE.into()], &target);
        assert_eq!(fits, Ok(algorithm), "it proves more than was asked for");
        let right = ha1(algorithm, "Mufasa", "testrealm@host.com", "Circle Of Life");
        let of = |body: &[u8]| hash_bytes(algorithm, body);
        assert!(proof.verify(&right, "POST", Some(&of(br#"{"customer":{"name":"Ann"}}"#))));
        assert!(!proof.verify(&right, "POST", Some(&of(br#"{"customer":{"name":"Bob"}}"#))));
        assert!(!proof.verify(&right, "POST", None));
        let info = proof
            .with_ha1(&right)
            .unwrap()
            .authentication_info(Some(&of(br#"{"id":1}"#)), None)
            .unwrap();
        assert_eq!(
            info,
            format!(r#"qop=auth-int, rspauth="{answered}", cnonce="0a4f113b", nc=0000000A"#)
        );
        assert_eq!(
            proof.with_ha1(&right).unwrap().authentication_info(None, None),
            None,
            "nothing is proved of a body unseen"
        );
    }
}

#[test]
fn digest_without_qop_is_accepted_only_where_the_realm_is_legacy() {
    let header = |algorithm: &str, response: &str| {
        format!(
            r#"username="Mufasa", realm="testrealm@host.com", nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093", uri="/dir/index.html", response="{response}", opaque="{OPAQUE}"{algorithm}"#
        )
    };
    let old = header("", "670fd8c2df070c60b045671b8b24ff02");
    let proof = parsed(&old);
    let target = DigestTarget { text: "/dir/index.html", host: "localhost" };
    let mut realm = realm("testrealm@host.com");
    let opaques = [OPAQUE.into()];
    assert_eq!(proof.check_scope(&realm, &opaques, &target), Err(ScopeMismatch::Qop));
    realm.legacy = true;
    assert_eq!(proof.check_scope(&realm, &opaques, &target), Ok(Algorithm::Md5));
    let right = ha1(Algorithm::Md5, "Mufasa", "testrealm@host.com", "Circle Of Life");
    assert!(proof.verify(&right, "GET", None));
    assert_eq!(proof.count(), None);
    assert_eq!(proof.with_ha1(&right).unwrap().authentication_info(None, None), None);
    assert_eq!(
        proof.with_ha1(&right).unwrap().authentication_info(None, Some("next")).as_deref(),
        Some(r#"nextnonce="next""#)
    );
    // RFC 2069 never had SHA-256.
    let none = header(
        ", algorithm=SHA-256",
        "e71f89d8267982ee1cd4dfb3637698eaf2f55848fe056aee7be175262aab5d2a",
    );
    assert_eq!(parsed(&none).check_scope(&realm, &opaques, &target), Err(ScopeMismatch::Qop));
}

#[test]
fn digest_scope_mismatches_are_distinguished() {
    let target = DigestTarget { text: "/dir/index.html", host: "localhost" };
    let check = |from: &str, to: &str, expected: Result<Algorithm, ScopeMismatch>| {
        let header = MUFASA.replace(from, to);
        assert!(from.is_empty() || header != MUFASA, "{from}");
        let fits =
            parsed(&header).check_scope(&realm("testrealm@host.com"), &[OPAQUE.into()], &target);
        assert_eq!(fits, expected, "{header}");
    };
    check("", "", Ok(Algorithm::Md5));
    check("/dir/index.html", "/dir/index", Err(ScopeMismatch::Uri));
    check("/dir/index.html", "http://localhost/dir/index.html", Ok(Algorithm::Md5));
    check("/dir/index.html", "http://elsewhere/dir/index.html", Err(ScopeMismatch::Uri));
    check("testrealm@host.com", "other", Err(ScopeMismatch::Realm));
    check(OPAQUE, "other", Err(ScopeMismatch::Opaque));
    check(&format!(", opaque=\"{OPAQUE}\""), "", Err(ScopeMismatch::Opaque));
    check("qop=auth", "qop=auth-conf", Err(ScopeMismatch::Qop));
    check("qop=auth,", "", Err(ScopeMismatch::Qop));
    for (name, expected) in [
        ("MD5", Ok(Algorithm::Md5)),
        ("md5", Ok(Algorithm::Md5)),
        ("\"SHA-256\"", Ok(Algorithm::Sha256)),
        ("MD5-sess", Err(ScopeMismatch::Algorithm)),
        ("SHA-256-sess", Err(ScopeMismatch::Algorithm)),
        ("SHA-512-256", Err(ScopeMismatch::Algorithm)),
        ("\"\"", Err(ScopeMismatch::Algorithm)),
    ] {
        check("qop=auth", &format!("qop=auth, algorithm={name}"), expected);
    }
    let strong = Realm { algorithms: vec![Algorithm::Sha256], ..realm("testrealm@host.com") };
    let fits = parsed(MUFASA).check_scope(&strong, &[OPAQUE.into()], &target);
    assert_eq!(fits, Err(ScopeMismatch::Algorithm), "only what the realm enables counts");
    let other = Realm { schemes: vec![AuthScheme::Basic], ..realm("testrealm@host.com") };
    let fits = parsed(MUFASA).check_scope(&other, &[OPAQUE.into()], &target);
    assert_eq!(fits, Err(ScopeMismatch::Realm), "Digest is not for every realm");
    let fits = parsed(MUFASA).check_scope(
        &realm("testrealm@host.com"),
        &["new".into(), OPAQUE.into()],
        &target,
    );
    assert_eq!(fits, Ok(Algorithm::Md5), "a former key's opaque is known");
}

#[test]
fn digest_equivalent_spellings_are_the_same() {
    let plain = parsed(MUFASA);
    for (from, to) in [
        ("qop=auth", "qop=\"auth\""),
        ("nc=00000001", "nc=\"00000001\""),
        ("qop=auth", "qop=auth, algorithm=\"MD5\""),
        (", ", ","),
        (", ", " ,\t , "),
        ("=", " = "),
        ("username=", "USERNAME="),
        ("Mufasa", "Mu\\fasa"),
        ("qop=auth", "qop=auth, userhash=false, charset=UTF-8, unknown=\"\""),
    ] {
        let header = MUFASA.replace(from, to);
        assert_eq!(parsed(&header), plain, "{header}");
    }
}

#[test]
fn digest_malformed_credentials_are_refused() {
    for (from, to) in [
        ("username=\"Mufasa\", ", ""),
        ("username=\"Mufasa\"", "username=Mufasa"),
        ("username=\"Mufasa\"", "username=\"Mufasa\", username*=UTF-8''Mufasa"),
        ("username=\"Mufasa\"", "username*=UTF-8''%ff"),
        ("username=\"Mufasa\"", "username*=\"UTF-8''Mufasa\""),
        ("username=\"Mufasa\"", "username*=UTF-8''Mufasa, userhash=true"),
        ("username=\"Mufasa\"", "username=\"Mufasa\", userhash=maybe"),
        ("username=\"Mufasa\"", "username=\"Mufasa\", Username=\"Mufasa\""),
        ("username=\"Mufasa\"", "username=\"Mufasa"),
        ("realm=\"testrealm@host.com\", ", ""),
        ("nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\", ", ""),
        ("nonce=\"dcd98b71", "nonce=\"é"),
        ("uri=\"/dir/index.html\", ", ""),
        ("response=\"6629fae49393a05397450978507c4ef1\", ", ""),
        ("response=\"6629", "response=\"xyz6"),
        ("nc=00000001, ", ""),
        ("nc=00000001", "nc=1"),
        ("nc=00000001", "nc=000000001"),
        ("nc=00000001", "nc=0000000g"),
        ("nc=00000001", "nc=+0000001"),
        ("nc=00000001", "nc=00000001, nc=00000002"),
        ("cnonce=\"0a4f113b\", ", ""),
        ("cnonce=\"0a4f113b\"", "cnonce=\"\""),
        ("cnonce=\"0a4f113b\"", "cnonce=\"é\""),
        ("cnonce=\"0a4f113b\"", "cnonce=0a4f113b"),
    ] {
        let header = MUFASA.replace(from, to);
        assert_ne!(header, MUFASA, "{from}");
        assert!(read(header.as_bytes()).is_err(), "{header}");
    }
    let long = MUFASA.replace("0a4f113b", &"a".repeat(513));
    assert!(read(long.as_bytes()).is_err());
}

#[test]
fn digest_cnonce_is_echoed_as_it_came() {
    let header = MUFASA.replace("0a4f113b", r#"a\"b\\c"#);
    let right = ha1(Algorithm::Md5, "a", "b", "c");
    let info = parsed(&header).with_ha1(&right).unwrap().authentication_info(None, None).unwrap();
    assert!(info.contains(r#"cnonce="a\"b\\c","#), "{info}");
}

#[test]
fn ha1_debug_output_is_hidden_and_its_text_round_trips() {
    for algorithm in [Algorithm::Md5, Algorithm::Sha256] {
        let right = ha1(algorithm, "Mufasa", "testrealm@host.com", "Circle Of Life");
        assert_eq!(format!("{right:?}"), "Ha1");
        assert_eq!(Ha1::parse(algorithm, right.as_text()), Some(right));
    }
    let md5 = "939e7578ed9e3c518a452acee763bce9";
    assert_eq!(Ha1::parse(Algorithm::Sha256, md5), None);
    assert_eq!(Ha1::parse(Algorithm::Md5, &md5.to_uppercase()), None);
    // A hash for the other algorithm proves nothing.
    let other = ha1(Algorithm::Sha256, "Mufasa", "testrealm@host.com", "Circle Of Life");
    assert!(!parsed(MUFASA).verify(&other, "GET", None));
}

proptest! {
    #[test]
    fn digest_any_bytes_are_parsed_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
    }

    #[test]
    fn digest_damaged_header_is_parsed_without_panic(
        at in 0..MUFASA.len(),
        length in 0usize..12,
        piece in proptest::collection::vec(any::<u8>(), 0..8),
    ) {
        let mut bytes = MUFASA.as_bytes().to_vec();
        bytes.splice(at..(at + length).min(MUFASA.len()), piece);
        if let Ok(proof) = read(&bytes) {
            let right = ha1(Algorithm::Md5, "Mufasa", "testrealm@host.com", "Circle Of Life");
            let _ = proof.with_ha1(&right).map(|keyed| keyed.authentication_info(None, Some("next")));
            let is_same = proof == parsed(MUFASA);
            prop_assert!(is_same || proof.user != parsed(MUFASA).user
                || proof.realm != parsed(MUFASA).realm || proof.opaque != parsed(MUFASA).opaque
                || !proof.verify(&right, "GET", None));
        }
    }
}
