//! The random generator of requests.
//!
//! It learns from the responses of one side alone: as long as the sides agree, that is enough.
//! Two in five of its requests are invalid, because backends differ most in how they refuse requests.

use super::queries::query;
use super::request_template::{LearnedValues, Placeholder, RequestTemplate};
use super::values::draft;
use super::world::{KnownItem, KnownWorld};
use crate::durability::seeded_random::SeededRandom;
use crate::harness::Answer;

/// One value in this many is wrong: a book has about fifteen of them.
const WRONG_EVERY: usize = 60;

/// The purpose of a request, as far as it is to be remembered.
#[derive(Debug)]
enum RequestPurpose {
    Create { noun: String, collection: String, is_integer: bool },
    Remove(String),
    Get(String),
    List(String),
    Nothing,
}

#[derive(Debug)]
pub struct RequestGenerator {
    random: SeededRandom,
    world: KnownWorld,
    purpose: RequestPurpose,
    /// Requests with a key, which may be sent again.
    keyed: Vec<RequestTemplate>,
}

impl RequestGenerator {
    pub fn new(seed: u64, model: &str) -> Self {
        Self {
            random: SeededRandom::new(seed),
            world: KnownWorld::new(model),
            purpose: RequestPurpose::Nothing,
            keyed: Vec::new(),
        }
    }

    pub fn next_request(&mut self, number: usize) -> RequestTemplate {
        self.purpose = RequestPurpose::Nothing;
        if self.random.below(12) == 0
            && let Some(again) = self.random.one_of(&self.keyed)
        {
            return RequestTemplate { number, ..again.clone() };
        }
        let (line, body) = match self.random.below(100) {
            0..32 => self.create(),
            32..40 => self.create_many(),
            40..52 => self.replace(),
            52..60 => self.patch(),
            60..65 => self.put_back(),
            65..72 => self.remove(),
            72..78 => self.get_item(),
            78..89 => self.list(),
            89..92 => return self.revalidate(number),
            _ => self.broken(),
        };
        let mut headers = self.headers();
        if line.starts_with("PATCH") && body.starts_with('[') && self.random.below(20) > 0 {
            headers.push(("Content-Type", "application/json-patch+json".to_owned()));
        }
        let is_keyed = ["POST", "PATCH"].iter().any(|method| line.starts_with(method))
            && self.random.below(3) == 0;
        if is_keyed {
            // Sometimes one that another request has.
            headers.push(("Idempotency-Key", format!("k{}", self.random.below(60))));
        }
        let ask = RequestTemplate { number, line, headers, body };
        self.keyed.extend(is_keyed.then(|| ask.clone()));
        ask
    }

    /// Records the contents of the response.
    pub fn learn(&mut self, ask: &RequestTemplate, answer: &Answer, learned: &LearnedValues) {
        if answer.status == 200 && ask.line.starts_with("GET ") {
            self.world.seen.push((ask.number, ask.line.clone()));
        }
        match std::mem::replace(&mut self.purpose, RequestPurpose::Nothing) {
            RequestPurpose::Create { noun, collection, is_integer } if answer.status == 201 => {
                for index in 0..learned.count(ask.number) {
                    let (noun, request) = (noun.clone(), ask.number);
                    let mut known =
                        KnownItem { noun, path: String::new(), request, index, is_integer };
                    known.path = format!("{collection}/{}", known.id());
                    self.world.known.push(known);
                }
            }
            RequestPurpose::Remove(path) if matches!(answer.status, 204 | 404) => {
                self.world.remove(&path);
            }
            RequestPurpose::Get(path) if answer.status == 404 => self.world.remove(&path),
            RequestPurpose::List(list) if learned.has_next(ask.number) => {
                self.world.pages.push((ask.number, list));
            }
            _ => {}
        }
    }

    /// The last requests: everything that is stored, page by page as far as it is known.
    pub fn final_lists(&self, first_number: usize) -> Vec<RequestTemplate> {
        let mut lines = Vec::new();
        for noun in &self.world.nouns {
            let plural = &noun.plural;
            match &noun.parent {
                None => lines.push(format!("GET /{plural}?limit=500")),
                Some(parent) => {
                    let parents = self.world.known.iter().filter(|known| known.noun == *parent);
                    lines.extend(
                        parents.map(|known| format!("GET {}/{plural}?limit=500", known.path)),
                    );
                }
            }
        }
        let ask = |(number, line)| RequestTemplate {
            number,
            line,
            headers: Vec::new(),
            body: String::new(),
        };
        (first_number..).zip(lines).map(ask).collect()
    }

    fn draft_of(&mut self, noun: &str, wrong_every: usize) -> String {
        let fields = self.world.noun(noun).fields.clone();
        draft(&fields, &mut self.random, &self.world, wrong_every)
    }

    fn create(&mut self) -> (String, String) {
        let (collection, noun) = self.world.some_collection(&mut self.random);
        let (name, plural) = (noun.name.clone(), noun.plural.clone());
        let is_integer = noun.is_integer;
        let draft = self.draft_of(&name, WRONG_EVERY);
        let wrapper = if self.random.below(8) == 0 { plural } else { name.clone() };
        let line = format!("POST {collection}");
        self.purpose = RequestPurpose::Create { noun: name, collection, is_integer };
        (line, format!("{{\"{wrapper}\":{draft}}}"))
    }

    fn create_many(&mut self) -> (String, String) {
        let (collection, noun) = self.world.some_collection(&mut self.random);
        let (name, plural, is_integer) = (noun.name.clone(), noun.plural.clone(), noun.is_integer);
        let count = self.random.below(6);
        let drafts: Vec<_> = (0..count).map(|_| self.draft_of(&name, WRONG_EVERY * 4)).collect();
        let line = format!("POST {collection}");
        self.purpose = RequestPurpose::Create { noun: name, collection, is_integer };
        (line, format!("{{\"{plural}\":[{}]}}", drafts.join(",")))
    }

    /// An item that exists, or one that did.
    fn target(&mut self) -> KnownItem {
        let gone = self.random.one_of(&self.world.gone).cloned();
        match (self.world.some_known(&mut self.random).cloned(), gone) {
            (_, Some(gone)) if self.random.below(20) == 0 => gone,
            (Some(known), _) => known,
            (None, _) => KnownItem {
                noun: self.world.nouns[0].name.clone(),
                path: format!("/{}/1", self.world.nouns[0].plural),
                request: 0,
                index: 0,
                is_integer: false,
            },
        }
    }

    fn replace(&mut self) -> (String, String) {
        let known = self.target();
        let draft = self.draft_of(&known.noun, WRONG_EVERY);
        self.purpose = RequestPurpose::Get(known.path.clone());
        (format!("PUT {}", known.path), format!("{{\"{}\":{draft}}}", known.noun))
    }

    /// A merge patch or a JSON Patch, most of which do not fit.
    fn patch(&mut self) -> (String, String) {
        let known = self.target();
        let noun = known.noun.clone();
        let draft = self.draft_of(&noun, WRONG_EVERY);
        let names: Vec<String> = self.world.noun(&noun).fields.keys().cloned().collect();
        let mut name = || self.random.one_of(&names).unwrap().clone();
        let (one, other) = (name(), name());
        let place = |name: &str| format!("/{noun}/{name}");
        let moved = |op: &str| {
            // The id in `next`, as a score, would be a number that differs by backend.
            let from = if one == "next" { "shelf" } else { &one };
            let (from, path) = (place(from), place(&other));
            format!(r#"{{"op":"{op}","from":"{from}","path":"{path}"}}"#)
        };
        let steps = [
            format!(r#"{{"op":"replace","path":"/{noun}","value":{draft}}}"#),
            format!(r#"{{"op":"remove","path":"{}"}}"#, place(&one)),
            format!(r#"{{"op":"replace","path":"{}","value":null}}"#, place(&one)),
            format!(r#"{{"op":"test","path":"{}","value":1}}"#, place("version")),
            moved("copy"),
            moved("move"),
        ];
        let body = match self.random.below(8) {
            0..3 => format!("{{\"{noun}\":{draft}}}"),
            3 => format!("{{\"{noun}\":{{\"{one}\":null}}}}"),
            4 => format!("{{\"{noun}\":{{}}}}"),
            5 => format!(
                "[{},{}]",
                self.random.one_of(&steps).unwrap(),
                self.random.one_of(&steps).unwrap()
            ),
            _ => format!("[{}]", self.random.one_of(&steps).unwrap()),
        };
        self.purpose = RequestPurpose::Get(known.path.clone());
        (format!("PATCH {}", known.path), body)
    }

    /// Sends back an item as it was shown, to its own path or to another's of its resource.
    fn put_back(&mut self) -> (String, String) {
        let known = self.target();
        let other = self.world.some_of(&known.noun, &mut self.random).cloned();
        let shown = other.filter(|_| self.random.below(6) == 0).unwrap_or_else(|| known.clone());
        let item = Placeholder::Item.text(shown.request, shown.index);
        (format!("PUT {}", known.path), format!("{{\"{}\":{item}}}", known.noun))
    }

    fn remove(&mut self) -> (String, String) {
        let known = self.target();
        self.purpose = RequestPurpose::Remove(known.path.clone());
        (format!("DELETE {}", known.path), String::new())
    }

    fn get_item(&mut self) -> (String, String) {
        let known = self.target();
        self.purpose = RequestPurpose::Get(known.path.clone());
        let method = if self.random.below(8) == 0 { "HEAD" } else { "GET" };
        (format!("{method} {}", known.path), String::new())
    }

    fn list(&mut self) -> (String, String) {
        let page = self.random.one_of(&self.world.pages).cloned();
        let limit = 1 + self.random.below(4);
        match page {
            Some((request, list)) if self.random.below(2) == 0 => {
                let cursor = Placeholder::Cursor.text(request, 0);
                self.purpose = RequestPurpose::List(list.clone());
                let sign = if list.contains('?') { '&' } else { '?' };
                (format!("GET {list}{sign}limit={limit}&cursor={cursor}"), String::new())
            }
            _ => {
                let (list, noun) = self.world.some_collection(&mut self.random);
                let list = match self.random.below(3) {
                    0 => list,
                    _ => format!("{list}?{}", query(&noun.fields, &mut self.random)),
                };
                self.purpose = RequestPurpose::List(list.clone());
                let sign = if list.contains('?') { '&' } else { '?' };
                let size = match self.random.below(4) {
                    0 => String::new(),
                    1 => format!("{sign}limit=500"),
                    _ => format!("{sign}limit={limit}"),
                };
                (format!("GET {list}{size}"), String::new())
            }
        }
    }

    /// Repeats an earlier request with its ETag: mostly a recent one, which may be unchanged.
    fn revalidate(&mut self, number: usize) -> RequestTemplate {
        let from = self.world.seen.len().saturating_sub(4);
        let (request, line) =
            self.random.one_of(&self.world.seen[from..]).cloned().unwrap_or((0, "GET /".into()));
        let tag = Placeholder::Tag.text(request, 0);
        let name = if self.random.below(8) == 0 { "If-Match" } else { "If-None-Match" };
        RequestTemplate { number, line, headers: vec![(name, tag)], body: String::new() }
    }

    /// A request with a fault in its path, its query, its method or its body.
    fn broken(&mut self) -> (String, String) {
        let known = self.target();
        let (collection, noun) = self.world.some_collection(&mut self.random);
        let (name, plural) = (noun.name.clone(), noun.plural.clone());
        let (path, body) = (&known.path, self.draft_of(&name, WRONG_EVERY));
        let cursor = self.random.one_of(&self.world.pages).map_or(0, |(request, _)| *request);
        let cursor = Placeholder::Cursor.text(cursor, 0);
        let lines = [
            (format!("POST {path}"), format!("{{\"{name}\":{body}}}")),
            (format!("PUT {collection}"), format!("{{\"{name}\":{body}}}")),
            (format!("POST {collection}"), format!("{{\"{name}\":{body}")),
            (format!("POST {collection}"), format!("{{\"{name}\":{body}}}{{}}")),
            (format!("POST {collection}"), format!("{{\"{name}\":{body},\"{plural}\":[]}}")),
            (format!("POST {collection}"), body.clone()),
            (format!("POST {collection}"), format!("{{\"{name}\":null}}")),
            (format!("POST {collection}"), format!("{{\"{name}\":[{body}]}}")),
            (format!("POST {collection}"), String::new()),
            (format!("POST {collection}?limit=1"), format!("{{\"{name}\":{body}}}")),
            (format!("POST {path}/nothing"), format!("{{\"{name}\":{body}}}")),
            (format!("GET {path}/"), String::new()),
            (format!("GET {path}?x=1"), String::new()),
            (format!("GET {collection}/0"), String::new()),
            (format!("GET {collection}/abc"), String::new()),
            (format!("DELETE {collection}/99999999999999999999"), String::new()),
            (format!("GET {collection}/9223372036854775807"), String::new()),
            (format!("DELETE {collection}"), String::new()),
            (format!("GET {collection}?limit=0"), String::new()),
            (format!("GET {collection}?limit=501"), String::new()),
            (format!("GET {collection}?cursor={cursor}"), String::new()),
            (format!("GET {collection}?cursor=AAAA"), String::new()),
            (format!("PATCH {path}"), "{}".to_owned()),
            (format!("OPTIONS {path}"), String::new()),
            (
                format!("PUT {path}"),
                format!("{{\"{}\":{{\"id\":999999,\"version\":\"x\"}}}}", known.noun),
            ),
            ("GET /".to_owned(), String::new()),
            ("GET /-/ready".to_owned(), String::new()),
            (format!("GET /{name}"), String::new()),
        ];
        self.random.one_of(&lines).unwrap().clone()
    }

    fn headers(&mut self) -> Vec<(&'static str, String)> {
        let headers: &[(&str, &str)] = match self.random.below(120) {
            0 => &[("Accept", "text/plain")],
            1 => &[("Accept", "application/json;q=0.5, */*;q=0.1")],
            2 => &[("Content-Type", "text/plain")],
            3 => &[("Content-Type", "application/json; charset=utf-8")],
            4 => &[("Sec-Fetch-Site", "cross-site")],
            5 => &[("Content-Encoding", "gzip")],
            6 => &[("If-None-Match", "*")],
            7 => &[("If-Match", "\"0\"")],
            8 | 9 => &[("If-Match", "\"1\", \"3\"")],
            _ => &[],
        };
        headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
    }
}
