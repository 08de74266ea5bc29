//! The name of a user; not available in model files, since only the built-in users have one.
//!
//! A name has one spelling, because Digest hashes its bytes: clients and RFC 7616 §3.4.4 use the composed
//! form (NFC), so no other is accepted. New names follow RFC 8265 (PRECIS, UsernameCasePreserved) for each
//! word, with one space between words. PRECIS does not check scripts. A name of Cyrillic letters that looks
//! like a Latin one is another name, and is accepted.

use precis_profiles::UsernameCasePreserved;
use precis_profiles::precis_core::profile::Profile as _;
use precis_profiles::precis_core::{CodepointInfo, Error};
use unicode_normalization::is_nfc;

use super::read::expect_text;
use crate::model::field::{FieldType, StorageClass};
use crate::problem::FaultCode;
use crate::value::Value;

/// Names that the log and the change log use for callers that are not users.
const RESERVED_NAMES: &[&str] = &["-", "anyone", "command line", "nouns", "open"];

pub static USER_NAME: FieldType = FieldType {
    refuse_new: new_name_fault,
    json_pattern: Some(r"^[^:\u0000-\u001f\u007f-\u009f]*$"),
    example: Some("ann"),
    ..FieldType::new("user_name", "a text", StorageClass::Text, |_, json, faults| {
        let text = expect_text(json, "a text", faults)?;
        let fault = if text.contains(':') {
            // RFC 7617 §2: a colon separates the name from the password.
            "expected a name without a colon"
        } else if text.chars().any(char::is_control) {
            "expected a name without control characters"
        } else if RESERVED_NAMES.contains(&text) {
            "expected another name: this one stands for something else in the log"
        } else if !is_nfc(text) {
            "expected a name in composed Unicode (NFC)"
        } else {
            return Some(Value::text(text));
        };
        faults.add(FaultCode::Format, fault);
        None
    })
};

fn new_name_fault(value: &Value) -> Option<String> {
    let Value::Text(name) = value else { return None };
    if name.split(' ').any(str::is_empty) {
        return Some("expected words with one space between them, and none around them".to_owned());
    }
    name.split(' ').find_map(word_fault)
}

/// Why a word may not be part of a new name.
fn word_fault(word: &str) -> Option<String> {
    match UsernameCasePreserved::new().enforce(word) {
        Ok(enforced) if *enforced == *word => None,
        // RFC 8265 §3.4.2: fullwidth and halfwidth characters are mapped.
        Ok(enforced) => Some(format!("expected \"{enforced}\", which looks like it")),
        Err(Error::BadCodepoint(CodepointInfo { position, .. })) => {
            // The character as it was sent: the mapping keeps the number of characters.
            let sign = word.chars().nth(position).map_or(0, u32::from);
            Some(format!("expected no U+{sign:04X}, which names may not have (RFC 8265)"))
        }
        Err(_) => Some("expected a name as RFC 8265 has it".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str) -> Option<String> {
        new_name_fault(&Value::text(name))
    }

    #[test]
    fn new_user_name_of_letters_digits_and_signs_is_accepted() {
        for name in [
            "ann",
            "Ann",
            "ann@example.com",
            "o'neil-7_x",
            "jos\u{e9}",
            "Ann of Green Gables",
            "\u{65e5}\u{672c}",
            "\u{410}\u{43d}\u{43d}\u{430}",
            "\u{5d0}\u{5d1}",
            "\u{3b1}",
            "admin",
        ] {
            assert_eq!(refused(name), None, "{name:?}");
        }
    }

    #[test]
    fn new_user_name_that_looks_like_another_is_refused() {
        let spaces = "expected words with one space between them, and none around them";
        for name in [" ann", "ann ", "ann  b", " "] {
            assert_eq!(refused(name).as_deref(), Some(spaces), "{name:?}");
        }
        for (name, sign) in [
            ("an\u{200b}n", "U+200B"),
            ("an\u{200d}n", "U+200D"),
            ("\u{feff}ann", "U+FEFF"),
            ("ann\u{a0}b", "U+00A0"),
            ("ann\u{3000}b", "U+3000"),
            ("an\u{ad}n", "U+00AD"),
            ("\u{202e}ann", "U+202E"),
            ("\u{fb01}ne", "U+FB01"),
            ("\u{2160}", "U+2160"),
            ("ann\u{1f600}", "U+1F600"),
            ("a\u{2215}b", "U+2215"),
        ] {
            let fault = refused(name).unwrap_or_else(|| panic!("{name:?}"));
            assert_eq!(
                fault,
                format!("expected no {sign}, which names may not have (RFC 8265)"),
                "{name:?}"
            );
        }
        let wide = refused("\u{ff41}\u{ff4e}\u{ff4e}").unwrap();
        assert_eq!(wide, "expected \"ann\", which looks like it");
        // RFC 5893: right-to-left letters do not mix with others.
        assert_eq!(refused("\u{5d0}ann").as_deref(), Some("expected a name as RFC 8265 has it"));
    }
}
