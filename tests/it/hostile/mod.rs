//! Hostile clients: every attack of `bench` in a short version, against short limits.
//!
//! The benchmark measures the server's speed; here each attacker is disconnected, memory is bounded,
//! every file descriptor is closed, other clients are served meanwhile, and nothing is logged as an
//! error.
//! No test asserts when an attacker is disconnected, only that and how it was: how soon depends on
//! the machine.
//! `NOUNS_SOAK=1` runs each with the strength of the benchmark, against the default limits.

mod abandoned;
mod attacks;
mod mixed;
mod oversized;
mod shared_limits;
mod tls_floods;
mod attack_run;
