//! Dates and times on a page, in UTC; the script shows them in the reader's time zone.

use askama::Template;
use askama::filters::HtmlSafe;

#[derive(Template)]
#[template(path = "time_element.html")]
pub struct TimeElement {
    /// As it is in the JSON.
    at: String,
    words: String,
    is_date: bool,
    is_time_of_day: bool,
}

impl HtmlSafe for TimeElement {}

impl TimeElement {
    pub fn date(text: &str) -> Self {
        let words = date_words(text).unwrap_or_else(|| text.to_owned());
        Self { at: text.to_owned(), words, is_date: true, is_time_of_day: false }
    }

    /// A timestamp.
    pub fn time(text: &str) -> Self {
        let words = date_words(text).zip(text.get(11..16));
        let words = words.map_or_else(|| text.to_owned(), |(date, time)| format!("{date}, {time}"));
        Self { at: text.to_owned(), words, is_date: false, is_time_of_day: false }
    }

    /// The time of day of a timestamp.
    pub fn time_of_day(text: &str) -> Self {
        let words = text.get(11..19).unwrap_or(text).to_owned();
        Self { at: text.to_owned(), words, is_date: false, is_time_of_day: true }
    }
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `14 Nov 2026` for `2026-11-14…`.
pub fn date_words(text: &str) -> Option<String> {
    let (year, month, day) = (text.get(..4)?, text.get(5..7)?, text.get(8..10)?);
    let month = MONTHS.get(month.parse::<usize>().ok()?.checked_sub(1)?)?;
    Some(format!("{} {month} {year}", day.parse::<u8>().ok()?))
}
