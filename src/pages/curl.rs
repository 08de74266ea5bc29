//! Command lines for `curl`: the requests of a page, quoted for a POSIX shell.

use askama::Template;
use askama::filters::HtmlSafe;

use super::related::PageSource;
use super::source::PageContext;
use crate::json;
use crate::model::{GrantVerb, Resource};
use crate::openapi::{self, WritableFields};

/// `curl` with the name of the user and without a password, which it asks for.
pub fn command(context: &PageContext<'_>) -> String {
    match context.viewer.and_then(|viewer| viewer.caller.user_name()) {
        Some(name) => format!("curl -u {} --anyauth", quote(name)),
        None => "curl".to_owned(),
    }
}

/// The URL of a path of this server.
pub fn url(context: &PageContext<'_>, address: &str) -> String {
    quote(&format!("{}{address}", context.origin))
}

/// Quotes a word, if it needs quotes.
pub fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~:/@%+,=".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// The command that creates an item with example values, if the caller may do that.
pub fn create_line(page: &PageSource<'_>, resource: &Resource, path: &str) -> Option<String> {
    let access = page.viewer.access(resource.index, GrantVerb::Post)?;
    if resource.is_server_made {
        return None;
    }
    let writable = WritableFields { access, unseen: &[] };
    let required = openapi::required_item_text(resource, &writable)?;
    let mut body = Vec::new();
    let mut object = json::ObjectWriter::open(&mut body);
    object.json(&resource.name, &required);
    object.close();
    let body = quote(&json::into_text(body));
    let (curl, url) = (command(page.context), url(page.context, path));
    Some(format!("{curl} {url} --json {body}"))
}

/// A box with a command line and a button that copies it.
#[derive(Template)]
#[template(path = "code_box.html")]
pub struct CodeBox {
    /// Nothing, or the words of a comment above the line.
    comment: String,
    line: String,
    /// The name of the box: completes "Copy …".
    what: &'static str,
}

impl HtmlSafe for CodeBox {}

impl CodeBox {
    pub fn new(comment: &str, line: String, what: &'static str) -> Self {
        Self { comment: comment.to_owned(), line, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curl_words_are_quoted_for_the_shell() {
        assert_eq!(quote("http://a.example/b"), "http://a.example/b");
        assert_eq!(quote("http://a.example/b?c=1&d='"), r"'http://a.example/b?c=1&d='\'''");
        assert_eq!(quote("$(id)"), "'$(id)'");
        assert_eq!(quote(""), "''");
    }
}
