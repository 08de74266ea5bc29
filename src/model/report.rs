//! Error reports for model files: position, message and help of every mistake.
//!
//! All mistakes of a file are shown in one report. A mistake is stored as a byte span and rendered late, so
//! that collecting is cheap and the caller chooses the colour.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use super::nearest::nearest;

/// Maximum number of mistakes in a report.
const MISTAKES_SHOWN_MAX: usize = 100;
/// Maximum number of mistakes stored; further ones are only counted.
const MISTAKES_STORED_MAX: usize = 1000;

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// A byte range of the file.
    pub span: Range<usize>,
    pub message: String,
    /// How to correct it.
    pub help: Option<String>,
}

/// All mistakes of a model file, in file order.
#[derive(Debug)]
pub struct ModelErrors {
    file: Box<str>,
    text: Box<str>,
    mistakes: Vec<Mistake>,
    /// The number of mistakes that were not stored.
    not_stored: usize,
}

impl ModelErrors {
    pub fn new(file: &str, text: &str, found: Mistakes) -> Self {
        let mut list = found.list.into_inner();
        list.sort_by_key(|mistake| (mistake.span.start, mistake.span.end));
        list.dedup();
        Self {
            file: file.into(),
            text: text.into(),
            mistakes: list,
            not_stored: found.not_stored.get(),
        }
    }

    #[cfg(any(fuzzing, test))]
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }

    /// File, line, the underlined text and help, for each mistake.
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let mut out = String::new();
        for mistake in self.mistakes.iter().take(MISTAKES_SHOWN_MAX) {
            let annotation = AnnotationKind::Primary.span(self.to_char_boundaries(&mistake.span));
            let snippet = Snippet::source(&*self.text).path(&*self.file).annotation(annotation);
            let mut group = Level::ERROR.primary_title(&*mistake.message).element(snippet);
            if let Some(help) = &mistake.help {
                group = group.element(Level::HELP.message(&**help));
            }
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&renderer.render(&[group]));
            out.push('\n');
        }
        let more = self.mistakes.len().saturating_sub(MISTAKES_SHOWN_MAX) + self.not_stored;
        if more > 0 {
            out.push_str(&format!("\nand {more} more\n"));
        }
        out
    }

    /// The span, moved to character boundaries within the text.
    fn to_char_boundaries(&self, span: &Range<usize>) -> Range<usize> {
        let start = self.text.floor_char_boundary(span.start);
        let end = self.text.ceil_char_boundary(span.end).max(start);
        start..end
    }
}

impl fmt::Display for ModelErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for ModelErrors {}

/// Collects mistakes while a file is read. All parts of the tree share it.
#[derive(Debug, Default)]
pub struct Mistakes {
    list: RefCell<Vec<Mistake>>,
    not_stored: Cell<usize>,
    /// The text is a stored shape, maybe of an earlier version that accepted more keys.
    pub is_shape: bool,
}

impl Mistakes {
    pub fn for_shape() -> Self {
        Self { is_shape: true, ..Self::default() }
    }

    pub fn add(&self, span: Range<usize>, message: impl Into<String>) {
        self.push(span, message.into(), None);
    }

    pub fn add_with_help(
        &self,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.push(span, message.into(), Some(help.into()));
    }

    /// Adds a mistake for an unknown word, with the nearest known one, or with all of them if they are few.
    pub fn add_unknown<'c>(
        &self,
        span: Range<usize>,
        message: impl Into<String>,
        word: &str,
        known: impl IntoIterator<Item = &'c str>,
    ) {
        // The search takes time proportional to the known words, and the report omits these mistakes anyway.
        if self.is_full() {
            self.not_stored.update(|count| count + 1);
            return;
        }
        let known: Vec<&str> = known.into_iter().collect();
        let help = match nearest(word, known.iter().copied()) {
            Some(near) => Some(format!("did you mean `{near}`?")),
            None if known.is_empty() || known.len() > LISTED_MAX => None,
            None => Some(format!("known here: {}", join_with_and(&known))),
        };
        self.push(span, message.into(), help);
    }

    /// Adds a mistake for a reserved key or value that has no effect yet.
    pub fn add_reserved(&self, span: Range<usize>, what: &str, help: &str) {
        if !self.is_shape {
            self.add_with_help(span, format!("`{what}` has no effect yet"), help);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.list.borrow().is_empty()
    }

    fn is_full(&self) -> bool {
        self.list.borrow().len() >= MISTAKES_STORED_MAX
    }

    pub fn count(&self) -> usize {
        self.list.borrow().len() + self.not_stored.get()
    }

    pub fn push(&self, span: Range<usize>, message: String, help: Option<String>) {
        if self.is_full() {
            self.not_stored.update(|count| count + 1);
        } else {
            self.list.borrow_mut().push(Mistake { span, message, help });
        }
    }
}

/// The maximum number of listed words: a longer list does not help.
const LISTED_MAX: usize = 20;

/// Formats as `a`, `b` and `c`.
pub fn join_with_and(words: &[&str]) -> String {
    let mut out = String::new();
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            out.push_str(if index + 1 == words.len() { " and " } else { ", " });
        }
        out.push('`');
        out.push_str(word);
        out.push('`');
    }
    out
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn errors(text: &str, spans: impl IntoIterator<Item = Range<usize>>) -> ModelErrors {
        let mistakes = Mistakes::default();
        for span in spans {
            mistakes.add_with_help(span, "something is wrong", "do it right");
        }
        ModelErrors::new("nouns.toml", text, mistakes)
    }

    #[test]
    fn report_shows_position_and_help() {
        expect![[r#"
            error: something is wrong
             --> nouns.toml:2:5
              |
            2 | b = 2
              |     ^
              |
              = help: do it right
        "#]]
        .assert_eq(&errors("a = 1\nb = 2\n", std::iter::once(10..11)).to_string());
    }

    #[test]
    fn report_is_limited_to_a_hundred_mistakes() {
        let spans = (0..2000).map(|at| at..at + 1);
        let text = "x".repeat(3000);
        let shown = errors(&text, spans).to_string();
        assert_eq!(shown.matches("something is wrong").count(), 100);
        assert!(shown.ends_with("\nand 1900 more\n"), "{shown}");
    }

    #[test]
    fn report_is_coloured_on_request() {
        assert!(errors("a", std::iter::once(0..1)).render(true).contains('\u{1b}'));
        assert!(!errors("a", std::iter::once(0..1)).render(false).contains('\u{1b}'));
    }

    proptest::proptest! {
        #[test]
        fn report_renders_arbitrary_spans(text in "(?s).{0,60}", start in 0usize..80, length in 0usize..80) {
            let shown = errors(&text, std::iter::once(start..start + length)).render(false);
            assert!(shown.contains("something is wrong"));
        }
    }
}
