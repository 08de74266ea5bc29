//! Who is asking?
//!
//! The place of authentication in the pipeline. Until there are schemes, a server runs only with
//! `--open`, and everyone who reaches it is the same caller.

#[cfg_attr(not(test), expect(dead_code, reason = "wired up with the schemes"))]
pub mod basic;
#[cfg_attr(not(test), expect(dead_code, reason = "wired up with the schemes"))]
mod challenge;
#[cfg_attr(not(test), expect(dead_code, unused_imports, reason = "wired up with the schemes"))]
pub mod digest;
#[cfg_attr(not(test), expect(dead_code, reason = "wired up with the schemes"))]
mod nonce;
#[cfg_attr(not(test), expect(dead_code, reason = "wired up with the schemes"))]
pub mod parameters;
mod text;

use http::HeaderMap;

use crate::value::Caller;

/// Step 4 of the order of checks.
pub fn identify(_headers: &HeaderMap) -> Caller {
    crate::fault::point("identify");
    Caller::Open
}
