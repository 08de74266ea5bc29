//! Hostile clients: every attack of `bench` in a short version, against short limits.
//!
//! How fast the server stays is the benchmark's to say; here each attacker is cut, memory is bounded,
//! every file is given back, others are answered meanwhile, and nothing is logged as an error.
//! The one surprising thing: an attack is never asserted to be cut in time, only that it was cut, and
//! in the right way: how soon depends on the machine.
//! `NOUNS_SOAK=1` runs each with the force of the benchmark, against the default limits.

mod abandoned;
mod attacks;
mod mixed;
mod oversized;
mod rooms;
mod siege;
