//! The frame of every page: the base template `frame.html`, which the templates of the pages extend.

use askama::Template;

use super::assets::asset_address;
use super::navigation::{Navigation, NavigationLink};
use super::related::{PageSource, ancestors};
use super::source::PageContext;
use crate::fault::OrBug as _;
use crate::formats::Asset;
use crate::intent::{PathForm, ResourcePath, format_path};

/// The values of `frame.html`. Every page has them in its field `frame`.
pub struct Frame<'a> {
    pub title: String,
    /// The title of the interface, and its first letter.
    pub site: &'a str,
    pub mark: String,
    pub home: String,
    pub stylesheet: String,
    pub script: String,
    pub resources: Vec<NavigationLink>,
    pub server: Vec<NavigationLink>,
    pub login: Option<FrameLogin<'a>>,
    pub crumbs: Vec<Crumb>,
    pub openapi: Option<String>,
    pub is_narrow: bool,
}

/// Who the reader is, if that is known.
pub struct FrameLogin<'a> {
    pub name: Option<&'a str>,
    pub is_admin: bool,
    pub is_open: bool,
    pub logout: String,
}

/// A breadcrumb; the last one has no address.
pub struct Crumb {
    pub address: Option<String>,
    pub text: String,
}

impl<'a> Frame<'a> {
    pub fn new(context: &PageContext<'a>, title: &str) -> Self {
        Self::with_place(context, title, None)
    }

    fn with_place(context: &PageContext<'a>, title: &str, place: Option<&ResourcePath>) -> Self {
        let (base_path, site) = (context.base_path(), &*context.model.title);
        let navigation = context.viewer.map(|viewer| Navigation { context, viewer, place });
        let caller = context.viewer.map(|viewer| viewer.caller);
        let home = format!("{base_path}/");
        Self {
            title: if title == site { site.to_owned() } else { format!("{title} · {site}") },
            site,
            mark: site.chars().take(1).flat_map(char::to_uppercase).collect(),
            stylesheet: asset_address(base_path, Asset::Stylesheet),
            script: asset_address(base_path, Asset::Script),
            resources: navigation.as_ref().map(Navigation::resources).unwrap_or_default(),
            server: navigation.as_ref().map(Navigation::server).unwrap_or_default(),
            login: caller.map(|caller| FrameLogin {
                name: caller.user_name(),
                is_admin: caller.rights().is_admin(),
                is_open: caller.is_open(),
                logout: format!("{base_path}/-/logout"),
            }),
            crumbs: vec![Crumb { address: Some(home.clone()), text: site.to_owned() }],
            openapi: caller
                .filter(|caller| caller.rights().has_any())
                .map(|_| format!("{base_path}/-/openapi.json")),
            home,
            is_narrow: false,
        }
    }

    /// The frame of a collection or an item, with the breadcrumbs up to its own collection.
    pub fn at(page: &PageSource<'a>, title: &str, path: &ResourcePath, is_item: bool) -> Self {
        let model = page.context.model;
        let mut frame = Self::with_place(page.context, title, Some(path));
        if path.form == PathForm::Flat {
            let text = format!("all {}", model.resource(path.resource).plural);
            return frame.end(&text);
        }
        let mut above = ancestors(model, path).into_iter();
        for resource in model.lineage(path.resource) {
            let ids = path.ids.as_ref().map_or(&[][..], |ids| &ids.ancestors);
            let ids = ids.get(..resource.depth).unwrap_or_default();
            let collection = format_path(model, resource.index, ids, None);
            let is_last = resource.index == path.resource;
            let address = Some(collection).filter(|_| is_item || !is_last);
            frame.crumbs.push(Crumb { address, text: resource.plural.to_string() });
            if let Some((_, item)) = above.next() {
                let text = page.related.label(&item);
                frame.crumbs.push(Crumb { address: Some(item), text });
            }
        }
        frame
    }

    pub fn narrow(mut self) -> Self {
        self.is_narrow = true;
        self
    }

    /// With one more breadcrumb, a link.
    pub fn crumb(mut self, address: &str, text: &str) -> Self {
        self.crumbs.push(Crumb { address: Some(address.to_owned()), text: text.to_owned() });
        self
    }

    /// With the last breadcrumb.
    pub fn end(mut self, text: &str) -> Self {
        self.crumbs.push(Crumb { address: None, text: text.to_owned() });
        self
    }
}

/// The HTML of a page.
pub fn to_html(page: &impl Template) -> String {
    let html = page.render().or_bug("a template is rendered into memory");
    // No place of a document may have a NUL, and parsers disagree about it.
    if html.contains('\0') { html.replace('\0', "\u{fffd}") } else { html }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Template)]
    #[template(source = "<a title=\"{{ text }}\">{{ text }}</a>", ext = "html")]
    struct Link<'a> {
        text: &'a str,
    }

    #[test]
    fn values_are_escaped_and_nul_is_replaced() {
        let text = "<script>alert('1')</script>\"&\0{{ text }}";
        let escaped =
            "&#60;script&#62;alert(&#39;1&#39;)&#60;/script&#62;&#34;&#38;\u{fffd}{{ text }}";
        assert_eq!(to_html(&Link { text }), format!("<a title=\"{escaped}\">{escaped}</a>"));
    }
}
