//! Strict JSON: RFC 8259, with the rules of I-JSON (RFC 7493) that prevent data loss and ambiguity.
//!
//! Knows nothing of models, fields or wrappers: field types decide which numbers and texts are valid. A
//! number stays the text it was sent as, which `parse_exact_double`, `parse_integer` and `parse_decimal_units` convert
//! without loss, or not at all.

mod number;
mod parse;
pub mod patch;
mod tree;
mod write;

pub use number::{is_number, parse_decimal_units, parse_exact_double, parse_integer};
pub use parse::{count_values, parse};
pub use tree::Json;
pub use write::{
    ObjectWriter, into_text, quote_for_message, to_text, value_to_text, write, write_id,
    write_indented, write_integer, write_list, write_moment, write_moment_text, write_text,
    write_value,
};

#[cfg(test)]
mod tests;
