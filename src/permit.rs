//! May this caller do this here?
//!
//! Pure. Today every caller is let in by `--open` and may do everything; the model's roles and
//! grants are read and checked, and take effect together with authentication.

use crate::intent::Route;
use crate::problem::Problem;
use crate::value::Caller;

/// Step 5 of the order of checks.
pub fn check(caller: &Caller, _route: &Route) -> Result<(), Problem> {
    crate::fault::point("permit");
    match caller {
        Caller::Open => Ok(()),
    }
}
