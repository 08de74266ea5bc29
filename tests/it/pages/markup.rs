//! A reader of the HTML that the pages are made of. It is stricter than a browser: every element is closed, and
//! every attribute value is in double quotes, so that text which breaks out of its place is a fault.

use std::collections::BTreeSet;

const VOID: &[&str] = &["meta", "link", "input", "col", "br"];

/// The elements and the attributes of a page, and its text.
#[derive(Debug, Default)]
pub struct Markup {
    pub elements: BTreeSet<String>,
    pub attributes: BTreeSet<String>,
    /// The values of `href` and `src`.
    pub addresses: Vec<String>,
    /// The values of `id`.
    pub ids: Vec<String>,
    pub text: String,
}

/// Panics where the page is not well-formed.
pub fn read(page: &str) -> Markup {
    let mut markup = Markup::default();
    let mut open: Vec<String> = Vec::new();
    let mut rest = page.strip_prefix("<!doctype html>").expect("a page has a doctype");
    while let Some((text, after)) = rest.split_once('<') {
        assert!(!text.contains('>'), "a bare > in {text:?}");
        markup.text.push_str(&decode(text));
        markup.text.push(' ');
        if let Some(name) = after.strip_prefix('/') {
            let (name, after) = name.split_once('>').unwrap();
            assert_eq!(open.pop().as_deref(), Some(name), "in {open:?} before {after:.80}");
            rest = after;
            continue;
        }
        let name: String = after.chars().take_while(char::is_ascii_alphanumeric).collect();
        assert!(!name.is_empty(), "no element at {after:.80}");
        rest = read_attributes(&mut markup, &after[name.len()..], &mut open, &name);
        markup.elements.insert(name);
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "open at the end: {open:?} {rest}");
    markup
}

/// Reads up to the end of a tag, and returns what follows it.
fn read_attributes<'a>(
    markup: &mut Markup,
    mut rest: &'a str,
    open: &mut Vec<String>,
    name: &str,
) -> &'a str {
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix("/>") {
            return after;
        }
        if let Some(after) = rest.strip_prefix('>') {
            if !VOID.contains(&name) {
                open.push(name.to_owned());
            }
            return after;
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"-_:".contains(c)).unwrap();
        let attribute = rest[..end].to_owned();
        assert!(!attribute.is_empty(), "no attribute of {name} at {rest:.80}");
        rest = &rest[end..];
        if let Some(after) = rest.strip_prefix("=\"") {
            let (value, after) = after.split_once('"').unwrap();
            assert!(!value.contains(['<', '>']), "{attribute} of {name}: {value:?}");
            match &*attribute {
                "href" | "src" => markup.addresses.push(decode(value)),
                "id" => markup.ids.push(decode(value)),
                _ => {}
            }
            rest = after;
        }
        markup.attributes.insert(attribute);
    }
}

fn decode(text: &str) -> String {
    text.replace("&#60;", "<")
        .replace("&#62;", ">")
        .replace("&#34;", "\"")
        .replace("&#39;", "'")
        .replace("&#38;", "&")
}
