//! A minimal DER parser (X.690), as far as certificates need it.
//!
//! It only finds where an element ends; its callers interpret the elements. It accepts a length in any
//! encoding of up to four bytes, since other programs made the input and it is only inspected.

/// X.690 §8.9: a sequence of elements.
pub const SEQUENCE: u8 = 0x30;

/// One element: its tag, its contents, and its complete encoding.
#[derive(Debug, Clone, Copy)]
pub struct DerElement<'a> {
    pub tag: u8,
    pub contents: &'a [u8],
    pub whole: &'a [u8],
}

/// Parses one element from the front of `bytes`.
pub fn parse_element<'a>(bytes: &mut &'a [u8]) -> Option<DerElement<'a>> {
    let all = *bytes;
    let (&tag, rest) = all.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // X.690 §8.1.3.5: the long form, with this many length bytes.
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    let whole = all.get(..all.len() - rest.len())?;
    Some(DerElement { tag, contents, whole })
}

/// Parses an element that must have this tag.
pub fn parse_expected<'a>(bytes: &mut &'a [u8], tag: u8) -> Option<DerElement<'a>> {
    parse_element(bytes).filter(|element| element.tag == tag)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn der_length_beyond_the_input_is_refused(length in any::<u32>(), tail in 0_usize..9) {
            let mut bytes = vec![SEQUENCE, 0x84];
            bytes.extend(length.to_be_bytes());
            bytes.extend(vec![SEQUENCE; tail]);
            let found = parse_element(&mut bytes.as_slice()).map(|element| element.contents.len());
            prop_assert_eq!(found, (length as usize <= tail).then_some(length as usize));
        }
    }
}
