//! HTML pages, rendered from the JSON of a reply, the model, and the rights of the caller.
//!
//! Pure; knows no store. A page contains only values of the JSON of the same GET, so hidden fields and row filters
//! apply to it, and it offers only requests that the checks of `permit` would admit. The markup is in `templates/`: a
//! page is a struct that its template is filled from, and a repeated part is a template or a macro. The script of the
//! pages (`nouns.js`) sends writes as JSON and loads the page again; everything else works without it.

mod assets;
mod change_entry;
mod change_log;
mod collection;
mod columns;
mod control;
mod curl;
mod filters;
mod form;
mod frame;
mod home;
mod item;
mod item_children;
mod json_view;
mod navigation;
mod openapi_reader;
mod problem;
mod query_link;
mod related;
mod reference;
mod render;
mod source;
mod table;
mod time_element;
mod value;

pub use assets::{asset_text, asset_version};
pub use related::{can_follow_changes, related_addresses};
pub use render::{render, render_problem};
pub use source::{PageContext, PageData, RelatedReply};
