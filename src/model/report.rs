//! The mistakes of a model, for the person who wrote it: where, what, and the way out.
//!
//! All mistakes of a file are shown at once. The one surprising thing: a mistake is kept as a byte
//! span and rendered late, so that collecting costs nothing and colour is the caller's choice.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// How many mistakes are written out.
const SHOWN_MAX: usize = 100;
/// How many are kept at all; beyond it they are only counted.
const KEPT_MAX: usize = 1000;

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Bytes of the file.
    pub span: Range<usize>,
    pub message: String,
    /// What would be right.
    pub help: Option<String>,
}

/// Everything that is wrong with a model file, in the order of the file.
#[derive(Debug)]
pub struct ModelErrors {
    file: Box<str>,
    text: Box<str>,
    mistakes: Vec<Mistake>,
    /// Mistakes counted but not kept.
    uncounted: usize,
}

impl ModelErrors {
    pub(super) fn new(file: &str, text: &str, found: Mistakes) -> Self {
        let Mistakes { mut list, uncounted, is_shape: _ } = found;
        list.sort_by_key(|mistake| (mistake.span.start, mistake.span.end));
        list.dedup();
        Self { file: file.into(), text: text.into(), mistakes: list, uncounted }
    }

    #[cfg(any(fuzzing, test))]
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }

    /// File, line, the text underlined, and help, for each mistake.
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let mut out = String::new();
        for mistake in self.mistakes.iter().take(SHOWN_MAX) {
            let annotation = AnnotationKind::Primary.span(self.on_text(&mistake.span));
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
        let more = self.mistakes.len().saturating_sub(SHOWN_MAX) + self.uncounted;
        if more > 0 {
            out.push_str(&format!("\nand {more} more\n"));
        }
        out
    }

    /// A span that begins and ends between characters of the text, whatever came in.
    fn on_text(&self, span: &Range<usize>) -> Range<usize> {
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

/// Collects mistakes while a file is read.
#[derive(Debug, Default)]
pub(super) struct Mistakes {
    list: Vec<Mistake>,
    uncounted: usize,
    /// What is read was stored by this program, maybe by an earlier version that took more.
    is_shape: bool,
}

impl Mistakes {
    pub(super) fn in_shape() -> Self {
        Self { is_shape: true, ..Self::default() }
    }

    pub(super) fn add(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.push(span, message.into(), None);
    }

    pub(super) fn add_with(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.push(span, message.into(), Some(help.into()));
    }

    /// A word that is not known, with the nearest one that is, else with all of them if they are few.
    pub(super) fn add_unknown<'c>(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        word: &str,
        known: impl IntoIterator<Item = &'c str>,
    ) {
        // The search costs time by the number of known words; nobody reads the thousandth mistake.
        if self.list.len() >= KEPT_MAX {
            self.uncounted += 1;
            return;
        }
        let known: Vec<&str> = known.into_iter().collect();
        let help = match super::nearest(word, known.iter().copied()) {
            Some(near) => Some(format!("did you mean `{near}`?")),
            None if known.is_empty() || known.len() > LISTED_MAX => None,
            None => Some(format!("known here: {}", listed(&known))),
        };
        self.push(span, message.into(), help);
    }

    /// A key or value that is planned and has no effect yet.
    pub(super) fn add_without_effect(&mut self, span: Range<usize>, what: &str, help: &str) {
        if !self.is_shape {
            self.add_with(span, format!("`{what}` has no effect yet"), help);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn count(&self) -> usize {
        self.list.len() + self.uncounted
    }

    fn push(&mut self, span: Range<usize>, message: String, help: Option<String>) {
        if self.list.len() < KEPT_MAX {
            self.list.push(Mistake { span, message, help });
        } else {
            self.uncounted += 1;
        }
    }
}

/// More words than this are no help.
const LISTED_MAX: usize = 20;

/// `a`, `b` and `c`.
pub(super) fn listed(words: &[&str]) -> String {
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
        let mut mistakes = Mistakes::default();
        for span in spans {
            mistakes.add_with(span, "something is wrong", "do it right");
        }
        ModelErrors::new("nouns.toml", text, mistakes)
    }

    #[test]
    fn a_mistake_shows_its_place_and_the_way_out() {
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
    fn at_most_a_hundred_are_written_out() {
        let spans = (0..2000).map(|at| at..at + 1);
        let text = "x".repeat(3000);
        let shown = errors(&text, spans).to_string();
        assert_eq!(shown.matches("something is wrong").count(), 100);
        assert!(shown.ends_with("\nand 1900 more\n"), "{shown}");
    }

    #[test]
    fn colour_is_a_choice() {
        assert!(errors("a", std::iter::once(0..1)).render(true).contains('\u{1b}'));
        assert!(!errors("a", std::iter::once(0..1)).render(false).contains('\u{1b}'));
    }

    proptest::proptest! {
        #[test]
        fn any_span_on_any_text_is_shown(text in "(?s).{0,60}", start in 0usize..80, length in 0usize..80) {
            let shown = errors(&text, std::iter::once(start..start + length)).render(false);
            assert!(shown.contains("something is wrong"));
        }
    }
}
