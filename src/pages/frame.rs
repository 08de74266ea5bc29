//! The frame of every page: navigation, breadcrumbs, footer and dialogs.

use super::assets::asset_address;
use super::html::Html;
use super::related::{PageSource, ancestors, child_collections};
use super::source::{PageContext, heading};
use crate::formats::Asset;
use crate::intent::{PathIds, ResourcePath, format_path};
use crate::model::{Model, Resource};
use crate::openapi::Viewer;

/// A page under construction.
pub struct Frame<'a> {
    context: &'a PageContext<'a>,
    viewer: Option<Viewer<'a>>,
    title: String,
    /// Address and text; the last one has no address.
    crumbs: Vec<(Option<String>, String)>,
    /// The target, by which the navigation marks where the reader is.
    place: Option<ResourcePath>,
    main: Html,
    dialogs: Html,
    is_narrow: bool,
}

impl<'a> Frame<'a> {
    pub fn new(context: &'a PageContext<'a>, title: &str) -> Self {
        Self {
            context,
            viewer: context.caller.map(|caller| Viewer::new(context.model, caller)),
            title: title.to_owned(),
            crumbs: vec![(Some(format!("{}/", context.base_path())), site(context).to_owned())],
            place: None,
            main: Html::new(),
            dialogs: Html::new(),
            is_narrow: false,
        }
    }

    /// A page without content.
    pub fn bare(context: &'a PageContext<'a>) -> Self {
        Self::new(context, site(context))
    }

    pub fn narrow(mut self) -> Self {
        self.is_narrow = true;
        self
    }

    pub fn crumb(mut self, address: Option<&str>, text: &str) -> Self {
        self.crumbs.push((address.map(str::to_owned), text.to_owned()));
        self
    }

    /// The breadcrumbs of a collection or an item, up to its own collection.
    pub fn place(mut self, page: &PageSource<'_>, path: &ResourcePath, is_item: bool) -> Self {
        let model = page.context.model;
        let mut above = ancestors(model, path).into_iter();
        for resource in model.lineage(path.resource) {
            let ids = path.ids.as_ref().map_or(&[][..], |ids| &ids.ancestors);
            let ids = ids.get(..resource.depth).unwrap_or_default();
            let collection = format_path(model, resource.index, ids, None);
            let is_last = resource.index == path.resource;
            let address = Some(collection).filter(|_| is_item || !is_last);
            self.crumbs.push((address, resource.plural.to_string()));
            if let Some((_, item)) = above.next() {
                let label = page.related.label(&item);
                self.crumbs.push((Some(item), label));
            }
        }
        self.place = Some(path.clone());
        self
    }

    pub fn main(mut self, main: Html) -> Self {
        self.main = main;
        self
    }

    pub fn dialogs(mut self, dialogs: Html) -> Self {
        self.dialogs = dialogs;
        self
    }

    pub fn finish(self) -> String {
        let (context, base_path) = (self.context, self.context.base_path());
        let site = site(context);
        let title = match &*self.title == site {
            true => site.to_owned(),
            false => format!("{} · {site}", self.title),
        };
        let mark = site.chars().next().map(|first| first.to_uppercase().to_string());
        let api = format!("{base_path}/-/openapi.json");
        let api = match self.viewer.as_ref().is_some_and(|viewer| viewer.caller.rights().has_any())
        {
            true => Html::of("<a href=\"{}\">OpenAPI document</a>", &[&api]),
            false => Html::new(),
        };
        let class = if self.is_narrow { " class=\"narrow\"" } else { "" };
        let page = Html::fill(
            include_str!("frame.html"),
            &[
                ("title", &title),
                ("stylesheet", &asset_address(base_path, Asset::Stylesheet)),
                ("script", &asset_address(base_path, Asset::Script)),
                ("home", &format!("{base_path}/")),
                ("mark", &mark.unwrap_or_default()),
                ("site", &site),
                ("navigation", &self.navigation()),
                ("who", &self.who()),
                ("main_class", &Html::of(class, &[])),
                ("crumbs", &self.crumbs_list()),
                ("main", &self.main),
                ("api", &api),
                ("dialogs", &self.dialogs),
            ],
        );
        page.into_string()
    }

    fn crumbs_list(&self) -> Html {
        if self.crumbs.len() < 2 {
            return Html::new();
        }
        let mut html = Html::of("<nav class=\"crumbs\" aria-label=\"Where you are\"><ol>", &[]);
        for (address, text) in &self.crumbs {
            match address {
                Some(address) => {
                    html.add("<li><a href=\"{}\">{}</a></li>", &[address, text]);
                }
                None => {
                    html.add("<li><span aria-current=\"page\">{}</span></li>", &[text]);
                }
            }
        }
        html.add("</ol></nav>\n", &[]);
        html
    }

    fn navigation(&self) -> Html {
        let Some(viewer) = &self.viewer else { return Html::new() };
        let (model, mut html) = (self.context.model, Html::new());
        let known = top_level(model, viewer);
        if !known.is_empty() {
            html.add(
                "<div><h2 id=\"nav-resources\">Resources</h2><ul aria-labelledby=\"nav-resources\">\n",
                &[],
            );
            for resource in known {
                let path = format_path(model, resource.index, &[], None);
                html.push(&self.link(&path, &heading(&resource.plural), "<li>"));
                html.push(&self.links_inside(viewer, resource));
            }
            html.add("</ul></div>\n", &[]);
        }
        let server = self.server_links(viewer);
        if !server.is_empty() {
            html.add(
                "<div><h2 id=\"nav-server\">Server</h2><ul aria-labelledby=\"nav-server\">\n{}</ul></div>\n",
                &[&server],
            );
        }
        html
    }

    /// The collections inside the item that the page is about, below its top-level resource.
    fn links_inside(&self, viewer: &Viewer<'_>, top: &Resource) -> Html {
        let (model, mut html) = (self.context.model, Html::new());
        let Some(place) = &self.place else { return html };
        let lineage = model.lineage(place.resource);
        if lineage.first().map(|first| first.index) != Some(top.index) {
            return html;
        }
        let Some(ids) = &place.ids else { return html };
        let all = ids.ancestors.iter().copied().chain(ids.item);
        let all: Vec<_> = all.collect();
        for (depth, resource) in lineage.iter().enumerate() {
            let Some(id) = all.get(depth) else { break };
            let above = all.get(..depth).unwrap_or_default().to_vec();
            let item = PathIds { ancestors: above, item: Some(*id) };
            let path = ResourcePath { resource: resource.index, ids: Some(item) };
            for (child, path) in child_collections(viewer, &path) {
                if viewer.can_read(child.index) {
                    html.push(&self.link(&path, &heading(&child.plural), "<li class=\"within\">"));
                }
            }
        }
        html
    }

    fn server_links(&self, viewer: &Viewer<'_>) -> Html {
        let (model, base_path) = (self.context.model, self.context.base_path());
        let mut html = Html::new();
        if viewer.caller.rights().can_read_changes() {
            let newest = format!("{base_path}/-/changes?sort=-sequence");
            html.push(&self.link(&newest, "Changes", "<li>"));
        }
        for resource in [model.webhooks, model.users] {
            if viewer.can_read(resource) {
                let path = format_path(model, resource, &[], None);
                let name = heading(&model.resource(resource).plural);
                html.push(&self.link(&path, &name, "<li>"));
            }
        }
        html
    }

    fn link(&self, path: &str, text: &str, item: &'static str) -> Html {
        let place = path.split('?').next().unwrap_or_default();
        let mut html = Html::of(item, &[]);
        let is_inside =
            self.context.path.strip_prefix(place).is_some_and(|rest| rest.starts_with('/'));
        let current = match () {
            () if self.context.path == place => " aria-current=\"page\"",
            () if is_inside && item == "<li>" => " aria-current=\"true\"",
            () => "",
        };
        let current = Html::of(current, &[]);
        html.add("<a href=\"{}\"{}>{}</a></li>\n", &[&path, &current, &text]);
        html
    }

    fn who(&self) -> Html {
        let (base_path, Some(viewer)) = (self.context.base_path(), &self.viewer) else {
            return Html::new();
        };
        let role = if viewer.caller.is_unrestricted() { "admin" } else { "" };
        match viewer.caller.user_name() {
            Some(name) => Html::of(
                "<p class=\"who\"><span><span class=\"unseen\">Logged in as </span>{} <span class=\"muted\">{}</span></span> \
                 <a href=\"{}\">Log out</a></p>\n",
                &[&name, &role, &format!("{base_path}/-/logout")],
            ),
            None if viewer.caller.is_open() => {
                Html::of("<p class=\"who\"><span class=\"muted\">open: no login</span></p>\n", &[])
            }
            None => {
                Html::of("<p class=\"who\"><span class=\"muted\">not logged in</span></p>\n", &[])
            }
        }
    }
}

/// The title of the interface.
fn site<'a>(context: &PageContext<'a>) -> &'a str {
    &context.model.title
}

/// The top-level resources of the model file that the caller may use.
pub fn top_level<'a>(model: &'a Model, viewer: &Viewer<'_>) -> Vec<&'a Resource> {
    let tops = model.declared().filter(|resource| resource.parent.is_none());
    tops.filter(|resource| viewer.knows(resource.index)).collect()
}

/// The place where news of the page appears; only the script says that it is live.
pub fn live_marker() -> Html {
    Html::of(
        "<span class=\"live needs-script\" data-state=\"off\" role=\"status\">Connecting</span>",
        &[],
    )
}
