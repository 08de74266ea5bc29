//! The cost of Digest: parsing, checking the nonce, verifying, and building `Authentication-Info`.
//!
//! The bound fails only after a gross regression: work that is done twice, or a thousand times. The figure
//! itself is printed, and is meaningful only in a release build.

use std::hint::black_box;

use super::*;
use crate::auth::nonce::Nonces;

#[test]
#[expect(clippy::disallowed_methods, reason = "a test may look at the clock")]
fn digest_verification_stays_cheap() {
    const ROUNDS: u32 = 2_000;
    let nonces = Nonces::new(&[[7; 32]]).unwrap();
    let opaques = nonces.opaques("store");
    for (algorithm, name) in [(Algorithm::Md5, "MD5"), (Algorithm::Sha256, "SHA-256")] {
        let right = ha1(algorithm, "ann", "store", "secret");
        let header = format!(
            r#"username="ann", realm="store", nonce="{}", uri="/customers?limit=1", cnonce="NTg6RKcb9boFIAS3KrFK9BGeh+niz/sm", nc=00000001, qop=auth, response="{}", algorithm={name}, opaque="{}""#,
            nonces.issue(1, 1_800_000_000, [3; 6]),
            "0".repeat(right.as_text().len()),
            opaques[0],
        );
        let expected =
            parsed(&header).with_ha1(&right).unwrap().compute_response("GET", None).unwrap();
        let header = header.replace(&"0".repeat(right.as_text().len()), expected.as_text());
        let realm = realm("store");
        let target = DigestTarget { text: "/customers?limit=1", host: "localhost:8080" };
        let mut best = std::time::Duration::MAX;
        for _ in 0..5 {
            let start = std::time::Instant::now();
            for _ in 0..ROUNDS {
                let proof = read(black_box(header.as_bytes())).unwrap();
                let fits = proof.check_scope(&realm, &opaques, &target);
                assert!(nonces.read(&proof.nonce, 1_800_000_100).is_ok());
                assert!(fits.is_ok() && proof.verify(&right, "GET", None));
                black_box(proof.with_ha1(&right).unwrap().authentication_info(None, None));
            }
            best = best.min(start.elapsed() / ROUNDS);
        }
        println!("{name}: {} ns a proof", best.as_nanos());
        assert!(best.as_micros() < 1_000, "{name}: {best:?}");
    }
}
