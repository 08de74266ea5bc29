//! A page whose content is markup already.

use askama::Template;

use super::frame::Frame;
use super::html::Html;

#[derive(Template)]
#[template(path = "page.html")]
pub struct Page<'a> {
    pub frame: Frame<'a>,
    pub main: Html,
    pub dialogs: Html,
}
