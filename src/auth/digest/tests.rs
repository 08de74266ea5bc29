//! The RFCs' own examples, what clients send, and what is refused.

use super::*;
