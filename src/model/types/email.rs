//! `email`: an address as the HTML standard defines it for `<input type=email>`, at most 254 characters.
//!
//! Deliberately narrower than RFC 5322: no comments, no quoted local parts, no domain literals. Any accepted
//! address can be typed into a form and mailed to.

use super::read::expect_form;
use crate::model::field::{DefaultSource, FieldType, StorageClass};

// RFC 5321 §4.5.3.1.3: a path has at most 256 octets, two of which are the angle brackets.
const EMAIL_BYTES_MAX: usize = 254;

pub static EMAIL: FieldType = FieldType {
    is_searchable_text: true,
    chars_max: Some(EMAIL_BYTES_MAX),
    default_sources: &[DefaultSource::User],
    keys: &["min_length", "max_length", "pattern", "one_of", "unique", "filter", "match", "order"],
    json_format: Some("email"),
    example: Some("ann@example.com"),
    ..FieldType::new("email", "an e-mail address", StorageClass::Text, |_, json, faults| {
        expect_form(json, "an e-mail address", is_email, faults)
    })
};

// HTML Living Standard, "valid e-mail address".
fn is_email(text: &str) -> bool {
    let bytes = text.as_bytes();
    let Some(at) = bytes.iter().position(|b| *b == b'@') else { return false };
    let (local, domain) = (bytes.get(..at).unwrap_or_default(), bytes.get(at + 1..));
    let local_byte = |b: &u8| b.is_ascii_alphanumeric() || b".!#$%&'*+/=?^_`{|}~-".contains(b);
    bytes.len() <= EMAIL_BYTES_MAX
        && !local.is_empty()
        && local.iter().all(local_byte)
        && domain.unwrap_or_default().split(|b| *b == b'.').all(is_label)
}

// RFC 1034 §3.5 as the HTML standard uses it: letters, digits and inner hyphens, at most 63.
fn is_label(label: &[u8]) -> bool {
    (1..=63).contains(&label.len())
        && label.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
        && !label.starts_with(b"-")
        && !label.ends_with(b"-")
}

#[cfg(test)]
mod tests {
    use super::is_email;

    #[test]
    fn is_email_agrees_with_html_forms() {
        let long = |local: usize| format!("{}@example.com", "a".repeat(local));
        for good in
            ["ann@example.com", "a.b+c@x", "o'neil@mail.example.org", ".a.@b-c.d", &long(242)]
        {
            assert!(is_email(good), "{good}");
        }
        for bad in [
            "",
            "ann",
            "@b",
            "a@",
            "a@b@c",
            "a b@c",
            "a@b..c",
            "a@-b",
            "a@b-",
            "a@b.",
            "ä@b",
            "a@ä",
            "\"a\"@b",
            "a@[::1]",
            &long(243),
            &format!("a@{}", "b".repeat(64)),
        ] {
            assert!(!is_email(bad), "{bad}");
        }
    }
}
