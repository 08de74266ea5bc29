//! Certificate fields that rustls does not expose: the validity period, and whether it is self-signed.
//!
//! It walks only the outermost DER elements (RFC 5280 §4.1); anything of another shape gives `None`.

use crate::der::{SEQUENCE, parse_element, parse_expected};
use crate::fault::OrBug;
use crate::value::Moment;

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version, where it is not the first one.
const VERSION: u8 = 0xa0;

/// The fields of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CertificateInfo {
    pub(super) not_before: Moment,
    pub(super) not_after: Moment,
    /// Issuer and subject are the same.
    pub(super) is_self_signed: bool,
}

pub(super) fn read(certificate: &[u8]) -> Option<CertificateInfo> {
    let mut outer = parse_expected(&mut &*certificate, SEQUENCE)?.contents;
    let mut inner = parse_expected(&mut outer, SEQUENCE)?.contents;
    // In version 1 the serial number comes first.
    if parse_element(&mut inner)?.tag == VERSION {
        parse_element(&mut inner)?;
    }
    // The signature algorithm.
    parse_expected(&mut inner, SEQUENCE)?;
    let issuer = parse_expected(&mut inner, SEQUENCE)?.whole;
    let mut times = parse_expected(&mut inner, SEQUENCE)?.contents;
    let subject = parse_expected(&mut inner, SEQUENCE)?.whole;
    let (begin, end) = (read_time(&mut times)?, read_time(&mut times)?);
    Some(CertificateInfo { not_before: begin, not_after: end, is_self_signed: issuer == subject })
}

/// RFC 5280 §4.1.2.5: `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, always to the second and in UTC.
fn read_time(bytes: &mut &[u8]) -> Option<Moment> {
    let element = parse_element(bytes)?;
    let text = str::from_utf8(element.contents).ok()?.strip_suffix('Z')?;
    let text = match element.tag {
        // Two digits from 50 on are years of the last century.
        UTC_TIME if text.get(..2)? >= "50" => format!("19{text}"),
        UTC_TIME => format!("20{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    if text.len() != 14 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let part = |from: usize, to: usize| text.get(from..to).or_bug("it has 14 digits");
    Moment::parse(&format!(
        "{}-{}-{}T{}:{}:{}Z",
        part(0, 4),
        part(4, 6),
        part(6, 8),
        part(8, 10),
        part(10, 12),
        part(12, 14)
    ))
}

/// Formats a moment to the second, as certificates have it.
pub(super) fn format_to_seconds(moment: Moment) -> String {
    let text = moment.canonical_text();
    let text = str::from_utf8(&text).or_bug("the text of a moment is ASCII");
    let (seconds, _) = text.split_once('.').or_bug("the text of a moment has a fraction");
    format!("{seconds}Z")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn element(tag: u8, contents: &str) -> Vec<u8> {
        let mut bytes = vec![tag, u8::try_from(contents.len()).unwrap()];
        bytes.extend(contents.bytes());
        bytes
    }

    fn shown_time(tag: u8, contents: &str) -> Option<String> {
        read_time(&mut element(tag, contents).as_slice()).map(format_to_seconds)
    }

    #[test]
    fn certificate_times_are_parsed_in_both_formats() {
        for (tag, text, expected) in [
            (UTC_TIME, "261115022814Z", "2026-11-15T02:28:14Z"),
            (UTC_TIME, "491231235959Z", "2049-12-31T23:59:59Z"),
            (UTC_TIME, "500101000000Z", "1950-01-01T00:00:00Z"),
            (GENERALIZED_TIME, "20500101000000Z", "2050-01-01T00:00:00Z"),
            (GENERALIZED_TIME, "99991231235959Z", "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(shown_time(tag, text).as_deref(), Some(expected), "{text}");
        }
        for (tag, text) in [
            (UTC_TIME, "2611150228Z"),
            (UTC_TIME, "261115022814"),
            (UTC_TIME, "261115022814+0100"),
            (UTC_TIME, "261315022814Z"),
            (UTC_TIME, "é1115022814Z"),
            (GENERALIZED_TIME, "20261115022814.5Z"),
            (GENERALIZED_TIME, "2026111502281xZ"),
            (SEQUENCE, "261115022814Z"),
        ] {
            assert_eq!(shown_time(tag, text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn certificate_any_bytes_are_parsed_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }

        #[test]
        fn certificate_any_time_is_parsed_without_panic(text in ".{0,20}") {
            let _ = (shown_time(UTC_TIME, &text), shown_time(GENERALIZED_TIME, &text));
        }
    }
}
