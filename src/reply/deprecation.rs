//! `Deprecation` (RFC 9745), `Sunset` (RFC 8594) and the link to a successor, on responses that involve
//! something deprecated: a resource, one of its ancestors, or a field that has a value in the response.

use std::time::{Duration, UNIX_EPOCH};

use http::header::{HeaderMap, LINK};
use http::{HeaderName, HeaderValue};

use crate::formats::{ItemMember, ItemView};
use crate::intent::format_path;
use crate::model::{Deprecated, Model};
use crate::plan::Collection;
use crate::value::{Item, Moment};

const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
const SUNSET: HeaderName = HeaderName::from_static("sunset");

/// For each resource, whether a response about it may involve something deprecated.
pub fn flags_by_resource(model: &Model) -> Vec<bool> {
    let resources = model.resources.iter();
    let may_be = resources.map(|resource| {
        let lineage = model.lineage(resource.index);
        lineage.iter().any(|resource| resource.deprecated.is_some())
            || resource.fields.iter().any(|field| field.deprecated.is_some())
    });
    may_be.collect()
}

/// Adds the headers. Of several dates the earliest counts. Fields and resources that the caller cannot see
/// are left out. `items` is `None` for a stream, where each field may have a value.
pub fn add_headers(
    headers: &mut HeaderMap,
    model: &Model,
    about: &Collection,
    view: ItemView<'_>,
    items: Option<&[Item]>,
) {
    let (index, reach) = (about.resource, &about.scope);
    let lineage = model.lineage(index);
    let resources = lineage.iter().filter_map(|resource| resource.deprecated.as_ref());
    let fields = model.resource(index).fields.iter().enumerate();
    let fields = fields.filter(|(at, _)| view.is_shown(ItemMember::Field(*at)));
    let fields = fields.filter_map(|(at, field)| {
        let has_value = |item: &Item| item.values.get(at).is_some_and(|value| !value.is_null());
        field.deprecated.as_ref().filter(|_| items.is_none_or(|items| items.iter().any(has_value)))
    });
    let touched: Vec<&Deprecated> = resources.chain(fields).collect();
    if let Some(since) = touched.iter().filter_map(|entry| day_start_seconds(&entry.since)).min() {
        // RFC 9651 §3.3.7: a date is an @ and the seconds since 1970.
        headers.extend(
            HeaderValue::try_from(format!("@{since}")).ok().map(|value| (DEPRECATION, value)),
        );
    }
    let sunset =
        touched.iter().filter_map(|entry| day_start_seconds(entry.sunset.as_deref()?)).min();
    if let Some(seconds) = sunset.and_then(|seconds| u64::try_from(seconds).ok()) {
        let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
        headers.extend(HeaderValue::try_from(date).ok().map(|value| (SUNSET, value)));
    }
    let successor =
        lineage.iter().find_map(|resource| resource.deprecated.as_ref()?.use_instead.as_deref());
    let successor = model.declared().find(|resource| Some(&*resource.name) == successor);
    // Only a top-level collection has a single URL.
    let successor = successor.filter(|successor| reach.has_any_grant(successor.index));
    if let Some(successor) = successor.filter(|resource| resource.parent.is_none()) {
        let link = format!(
            "<{}>; rel=\"successor-version\"",
            format_path(model, successor.index, &[], None)
        );
        if let Ok(value) = HeaderValue::try_from(link) {
            headers.append(LINK, value);
        }
    }
}

/// The start of a day in UTC, in Unix seconds.
fn day_start_seconds(day: &str) -> Option<i64> {
    Moment::parse(&format!("{day}T00:00:00Z")).map(Moment::seconds)
}
