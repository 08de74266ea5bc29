//! Pages for people: HTML made from the JSON of a reply, the model, and what the caller may do.
//!
//! Pure; knows no store. A page shows what the same GET shows in JSON, so that hidden fields and row filters hold
//! by themselves, and the checks of `permit` that admit requests decide which of them a page offers. The script
//! of the pages (`nouns.js`) sends writes as JSON and loads the page again; everything else works without it.

mod assets;
mod cell;
mod change_log;
mod collection;
mod columns;
mod curl;
mod filters;
mod form;
mod frame;
mod home;
mod html;
mod item;
mod json_view;
mod problem;
mod query_link;
mod related;
mod render;
mod source;

pub use assets::{asset_text, asset_version};
pub use related::related_addresses;
pub use render::{render, render_problem};
pub use source::{PageContext, PageData, RelatedReply};
