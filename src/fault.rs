//! Panics: those that tests plant (fault injection), those of broken invariants, and the message of any.
//!
//! `point` names a failpoint; a debug build that is started with `NOUNS_FAULT=PLACE:3` panics there at the
//! third hit, with `PLACE:3-5` at the third to the fifth, with `PLACE:3-` at every one from the third on.
//! With `PLACE:3!` the process is aborted instead, as if it were killed.
//! `PLACE@THREAD:3` counts only hits of threads whose names begin with `THREAD`. A release build has no failpoints.

use std::any::Any;
use std::panic::catch_unwind;

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
        /// How the names of the threads begin.
        thread: Box<str>,
        hits: RangeInclusive<u64>,
        hit_count: AtomicU64,
        is_abort: bool,
    }

    /// Parses `PLACE:N`, `PLACE:N-M` or `PLACE:N-`, each also with `@THREAD`; hits are counted from here on.
    pub fn inject(text: &str) -> Result<(), String> {
        let wrong = || format!("NOUNS_FAULT: expected PLACE:N, PLACE:N-M or PLACE:N-, got {text}");
        let (text, is_abort) = match text.strip_suffix('!') {
            Some(text) => (text, true),
            None => (text, false),
        };
        let (place, hits) = text.split_once(':').ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let hits = match hits.split_once('-') {
            None => number(hits)?..=number(hits)?,
            Some((first, "")) => number(first)?..=u64::MAX,
            Some((first, last)) => number(first)?..=number(last)?,
        };
        let (place, thread) = place.split_once('@').unwrap_or((place, ""));
        let planted = InjectedPanic {
            place: place.into(),
            thread: thread.into(),
            hits,
            hit_count: AtomicU64::new(0),
            is_abort,
        };
        INJECTED.set(planted).map_err(|_| "NOUNS_FAULT: planted twice".to_owned())
    }

    #[expect(clippy::panic, reason = "this is what it is for")]
    pub fn point(place: &str) {
        let Some(planted) = INJECTED.get().filter(|planted| &*planted.place == place) else {
            return;
        };
        let thread = std::thread::current();
        if !thread.name().unwrap_or_default().starts_with(&*planted.thread) {
            return;
        }
        let hit = planted.hit_count.fetch_add(1, Ordering::Relaxed) + 1;
        if planted.hits.contains(&hit) {
            if planted.is_abort {
                std::process::abort();
            }
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

/// For values that an invariant guarantees. Without the value it panics, and the reason is logged: an invariant
/// that is broken must not look like a normal case. The pipeline answers with 500; in `server` the connection
/// ends.
pub trait OrBug<T> {
    fn or_bug(self, why: &'static str) -> T;
}

impl<T> OrBug<T> for Option<T> {
    #[inline]
    #[track_caller]
    fn or_bug(self, why: &'static str) -> T {
        match self {
            Some(value) => value,
            None => bug(why),
        }
    }
}

/// The error is not shown, since it may hold a secret.
impl<T, E> OrBug<T> for Result<T, E> {
    #[inline]
    #[track_caller]
    fn or_bug(self, why: &'static str) -> T {
        self.ok().or_bug(why)
    }
}

/// Ends a request, or a connection, whose state is impossible.
#[cold]
#[track_caller]
#[expect(clippy::panic, reason = "a broken invariant must be loud")]
pub fn bug(why: &str) -> ! {
    panic!("bug: {why}")
}

/// Logs a broken invariant, and goes on. For `Drop`: a panic that leaves it during another one would abort the
/// process.
#[cold]
pub fn log_bug(why: &str) {
    // The panic hook of the server logs it.
    let _: Result<(), _> = catch_unwind(|| bug(why));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_message_reads_str_and_string() {
        let fixed = catch_unwind(|| panic!("planted")).unwrap_err();
        assert_eq!(panic_message(&*fixed), "panic: planted");
        let made = catch_unwind(|| panic!("planted {}", 2)).unwrap_err();
        assert_eq!(panic_message(&*made), "panic: planted 2");
    }

    #[test]
    fn broken_invariant_panics_with_its_reason_and_without_the_error() {
        assert_eq!(Some(1).or_bug("is set"), 1);
        assert_eq!(Ok::<_, &str>(1).or_bug("is set"), 1);
        let absent = catch_unwind(|| None::<u8>.or_bug("it is set")).unwrap_err();
        assert_eq!(panic_message(&*absent), "panic: bug: it is set");
        let failed = catch_unwind(|| Err::<u8, _>("secret").or_bug("it is valid")).unwrap_err();
        assert_eq!(panic_message(&*failed), "panic: bug: it is valid");
    }
}
