//! `username*`: a name with any characters, as `UTF-8''J%C3%A4s%C3%B8n` (RFC 5987 §3.2).

/// `None` if it is malformed, in another charset, or has characters that no name has.
pub fn read(value: &[u8]) -> Option<String> {
    let value = str::from_utf8(value).ok()?;
    let (charset, rest) = value.split_once('\'')?;
    let (_language, encoded) = rest.split_once('\'')?;
    if !charset.eq_ignore_ascii_case("UTF-8") {
        return None;
    }
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'%' => {
                let (digits, after) = rest.split_first_chunk::<2>()?;
                let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
                bytes.push(u8::try_from(high? * 16 + low?).ok()?);
                rest = after;
            }
            byte if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(byte) => {
                bytes.push(*byte);
            }
            _ => return None,
        }
    }
    String::from_utf8(bytes).ok().filter(|text| !text.chars().any(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_username_is_decoded_or_refused() {
        let check = |value: &str, expected: Option<&str>| {
            assert_eq!(read(value.as_bytes()).as_deref(), expected, "{value}");
        };
        check("UTF-8''J%C3%A4s%C3%B8n%20Doe", Some("Jäsøn Doe"));
        check("utf-8'en'%e2%82%ac", Some("€"));
        check("UTF-8''", Some(""));
        check("UTF-8''a*b", None);
        check("UTF-8'a", None);
        check("ISO-8859-1''%A3", None);
        check("UTF-8''%A3", None);
        check("UTF-8''%4", None);
        check("UTF-8''%+1", None);
        check("UTF-8''%00", None);
        check("UTF-8''a'b", None);
        check("Ann", None);
    }
}
