//! Fault injection: panics that tests plant, and the message of any panic.
//!
//! `point` names a failpoint; a debug build that is started with `NOUNS_FAULT=PLACE:3` panics there at the
//! third hit, with `PLACE:3-5` at the third to the fifth, with `PLACE:3-` at every one from the third on.
//! It catches nothing. A release build contains only `panic_message` of this file.

use std::any::Any;

#[cfg(debug_assertions)]
mod planted {
    use std::ops::RangeInclusive;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The planted panic, for the whole process.
    static INJECTED: OnceLock<InjectedPanic> = OnceLock::new();

    #[derive(Debug)]
    struct InjectedPanic {
        place: Box<str>,
        hits: RangeInclusive<u64>,
        hit_count: AtomicU64,
    }

    /// Parses `PLACE:N`, `PLACE:N-M` or `PLACE:N-`; hits are counted from here on.
    pub fn inject(text: &str) -> Result<(), String> {
        let wrong = || format!("NOUNS_FAULT: expected PLACE:N, PLACE:N-M or PLACE:N-, got {text}");
        let (place, passings) = text.split_once(':').ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let passings = match passings.split_once('-') {
            None => number(passings)?..=number(passings)?,
            Some((first, "")) => number(first)?..=u64::MAX,
            Some((first, last)) => number(first)?..=number(last)?,
        };
        let planted =
            InjectedPanic { place: place.into(), hits: passings, hit_count: AtomicU64::new(0) };
        INJECTED.set(planted).map_err(|_| "NOUNS_FAULT: planted twice".to_owned())
    }

    #[expect(clippy::panic, reason = "this is what it is for")]
    pub fn point(place: &str) {
        let Some(planted) = INJECTED.get().filter(|planted| &*planted.place == place) else {
            return;
        };
        let passing = planted.hit_count.fetch_add(1, Ordering::Relaxed) + 1;
        if planted.hits.contains(&passing) {
            panic!("planted at {place}");
        }
    }
}

#[cfg(debug_assertions)]
pub use planted::inject;

/// A failpoint: a place that a test may want to break.
#[inline]
pub fn point(place: &'static str) {
    #[cfg(debug_assertions)]
    planted::point(place);
    #[cfg(not(debug_assertions))]
    let _ = place;
}

/// The message of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    let words = words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    format!("panic: {words}")
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn panic_message_reads_str_and_string() {
        let fixed = catch_unwind(|| panic!("planted")).unwrap_err();
        assert_eq!(panic_message(&*fixed), "panic: planted");
        let made = catch_unwind(|| panic!("planted {}", 2)).unwrap_err();
        assert_eq!(panic_message(&*made), "panic: planted 2");
    }
}
