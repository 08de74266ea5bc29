//! The page of `/`: the resources, the last changes, and three command lines to begin with.

use super::change_log::entries;
use super::curl::{self, code_box, create_line};
use super::frame::{Frame, top_level};
use super::html::Html;
use super::related::{PageSource, recent_changes_address};
use super::source::{heading, member, text_of};
use crate::formats::json::path_template;
use crate::intent::format_path;
use crate::model::Resource;

const FIELDS_SHOWN: usize = 4;

pub fn render(page: &PageSource<'_>) -> String {
    let (context, model) = (page.context, page.context.model);
    let known = top_level(model, page.viewer);
    let mut main = Html::of(
        "<div class=\"head\"><div class=\"title\"><h1>{}</h1><p class=\"sub\">{}</p></div></div>\n",
        &[&model.title, &subtitle(page, known.len())],
    );
    main.add(
        "<section aria-labelledby=\"h-res\"><div class=\"section-head\"><h2 id=\"h-res\">Resources</h2></div>\n",
        &[],
    );
    if known.is_empty() {
        main.add(
            "<div class=\"empty\"><p>There is nothing here that your roles show.</p></div>\n",
            &[],
        );
    }
    main.add("<ul class=\"cards\">\n", &[]);
    for resource in &known {
        main.push(&card(page, resource));
    }
    main.add("</ul></section>\n", &[]);
    if let Some(address) = recent_changes_address(page.viewer) {
        let all = format!("{}/-/changes", context.base_path());
        main.add(
            "<section aria-labelledby=\"h-new\"><div class=\"section-head\"><h2 id=\"h-new\">Recent changes</h2>\
             <a href=\"{}\">All changes</a></div>\n",
            &[&format!("{all}?sort=-sequence")],
        );
        let reply = page.related.reply(&address);
        let list = reply.map(|json| entries(page, json)).unwrap_or_default();
        let about = reply.and_then(|json| member(json, "page"));
        let has_more = about.and_then(|about| text_of(member(about, "next"))).is_some();
        let words = match reply {
            None => "The changes could not be read.",
            Some(_) if has_more => "Your roles show none of the last changes.",
            Some(_) => "Nothing has changed yet.",
        };
        match list.is_empty() {
            false => main.add("<ol class=\"log\">\n{}</ol>\n", &[&list]),
            true => main.add("<div class=\"empty\"><p>{}</p></div>\n", &[&words]),
        }
        main.add("</section>\n", &[]);
    }
    main.push(&commands(page, &known));
    Frame::new(context, &model.title).narrow().main(main).finish()
}

fn subtitle(page: &PageSource<'_>, count: usize) -> String {
    let resources = match count {
        1 => "1 resource.".to_owned(),
        count => format!("{count} resources."),
    };
    match page.viewer.caller.user_name() {
        Some(name) => format!("{resources} You are {name}."),
        None if page.viewer.caller.is_open() => {
            format!("{resources} This server is open: no login is needed.")
        }
        None => format!("{resources} You are not logged in."),
    }
}

fn card(page: &PageSource<'_>, resource: &Resource) -> Html {
    let model = page.context.model;
    let path = format_path(model, resource.index, &[], None);
    let names: Vec<&str> =
        page.viewer.readable_fields(resource).map(|(_, field)| &*field.name).collect();
    let shown = names.get(..FIELDS_SHOWN.min(names.len())).unwrap_or_default().join(", ");
    let mut about = match names.len().saturating_sub(FIELDS_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    };
    let children = resource.children.iter().filter(|child| page.viewer.knows(**child));
    let children: Vec<&str> = children.map(|child| &*model.resource(*child).plural).collect();
    if !children.is_empty() {
        about.push_str(&format!(". Each has {}.", children.join(", ")));
    }
    Html::of(
        "<li class=\"card\"><h3><a href=\"{}\">{}</a></h3><p><code>{}</code></p><p>{}</p></li>\n",
        &[&path, &heading(&resource.plural), &path_template(model, resource), &about],
    )
}

/// Three command lines, as far as the caller may use them.
fn commands(page: &PageSource<'_>, known: &[&Resource]) -> Html {
    let (context, curl) = (page.context, curl::command(page.context));
    let mut html = Html::of(
        "<section aria-labelledby=\"h-curl\"><div class=\"section-head\"><h2 id=\"h-curl\">The same with curl</h2></div>\n\
         <p class=\"muted\">Every page here is an address of the interface. Ask for it without a browser and you get JSON.</p>\n",
        &[],
    );
    let mut is_any = false;
    if let Some(first) = known.first() {
        let path = format_path(context.model, first.index, &[], None);
        if page.viewer.can_read(first.index) {
            let line = format!("{curl} {}", curl::url(context, &format!("{path}?limit=3")));
            let comment = format!("the first {}", first.plural);
            html.push(&code_box(&comment, &line, "the line that reads"));
            is_any = true;
        }
        if let Some(line) = create_line(page, first, &path) {
            html.push(&code_box("a new one", &line, "the line that creates"));
            is_any = true;
        }
    }
    if page.viewer.caller.rights().can_read_changes() {
        let url = curl::url(context, &format!("{}/-/changes", context.base_path()));
        let line = format!("{curl} -N -H 'Accept: text/event-stream' {url}");
        html.push(&code_box("each change, as it happens", &line, "the line that follows changes"));
        is_any = true;
    }
    html.add("</section>\n", &[]);
    if is_any { html } else { Html::new() }
}
