//! What queries mean, and what is said of those that mean nothing.

use expect_test::{Expect, expect};

use super::*;
use crate::intent::Ids;
use crate::model::{self, ResourceIndex};

const MODEL: &str = r#"
title = "Lists"
[server.limits]
filter_terms_max = 3
filter_values_max = 3
sort_keys_max = 2

[resources.shelf]
plural = "shelves"
id = "integer"
[resources.shelf.fields]
label = { type = "text" }

[resources.book]
parent = "shelf"
[resources.book.fields]
title = { type = "text", filter = true }
contact = { type = "email", filter = true }
pages = { type = "integer", filter = true }
price = { type = "decimal", filter = true }
weight = { type = "number", filter = true }
is_new = { type = "boolean", filter = true }
printed = { type = "date", filter = true }
sold_at = { type = "timestamp", filter = true }
isbn = { type = "uuid", filter = true }
sequel_to = { type = "ref", to = "book", filter = true }
count = { type = "integer", filter = true }
note = { type = "text" }
secret_note = { type = "text", filter = true }
tags = { type = "list", of = { type = "text" } }
maker = { type = "object", fields = { city = { type = "text", filter = true }, zip = { type = "text" }, at = { type = "object", fields = { street = { type = "text", filter = true } } } } }
status = { type = "state", initial = "new", next = { new = ["sold"], sold = [] } }
"#;

/// The index of `secret_note`.
const HIDDEN: &[usize] = &[12];

fn asked(model: &Model, query: &str) -> Result<List, Problem> {
    let ids = Some(Ids { ancestors: vec![Id::Integer(1)], item: None });
    let address = Address { resource: ResourceIndex(1), ids };
    read(model, &address, (Some(query), HIDDEN))
}

fn check(queries: &[&str], expected: &Expect) {
    let model = model::read("lists.toml", MODEL).unwrap();
    let shown = queries.iter().map(|query| {
        let read = asked(&model, query);
        let shown = match &read {
            Ok(list) => show(&model, list),
            Err(problem) => {
                let detail = problem.parts().detail.clone();
                format!("{} {}", problem.kind().slug, detail.unwrap_or_default())
            }
        };
        format!("{query}\n    {shown}\n")
    });
    expected.assert_eq(&shown.collect::<String>());
}

fn show(model: &Model, list: &List) -> String {
    let book = &model.resources[1];
    let mut words = Vec::new();
    for term in &list.terms {
        words.push(format!("{} {:?}", term.aspect.name(book), term.test));
    }
    for key in &list.sort {
        let way = if key.is_descending { "down" } else { "up" };
        words.push(format!("by {} {way}", key.aspect.name(book)));
    }
    words.push(format!("id {}", if list.is_id_descending { "down" } else { "up" }));
    words.extend(list.chosen.as_ref().map(|chosen| format!("{chosen:?}")));
    words.extend(list.is_counted.then(|| "counted".to_owned()));
    words.push(list.link.address("", list.limit, "…"));
    words.join("; ")
}

#[test]
fn what_a_query_means() {
    check(
        &[
            "",
            "title=Emma",
            "title:prefix=Em&title:contains=%20%26",
            "pages:gte=100&pages:lt=2e2",
            "price=1.5&price:ne=-0.050",
            "weight:lte=0.25&is_new=true",
            "printed:gt=2026-11-15&sold_at:gt=2026-11-15T03:28:14%2B01:00",
            "isbn=01890A5D-AC96-774B-BCCE-B302099A8057",
            "id:in=01890a5d-ac96-774b-bcce-b302099a8057&sequel_to:exists=false",
            r"title:in=a\,b,c\\,",
            "count:eq=3&count=exact",
            "maker.city=Bonn&maker.at.street:exists=true",
            "status=sold&created_at:lt=2026-11-15T00:00:00Z",
            "contact=ann@example.com",
            "contact:gte=b",
            "sort=-title,pages",
            "sort=title,-id,",
            "sort=-id",
            "sort=title,id",
            "sort=-maker.city",
            "fields=title,shelf_id,version,id",
            "fields=id&limit=7",
            "title=a%2Bb+c&limit=2",
        ],
        &expect![[r#"

                id up; ?limit=50&cursor=…
            title=Emma
                title Compare(Equal, Text("Emma")); id up; ?title=Emma&limit=50&cursor=…
            title:prefix=Em&title:contains=%20%26
                title Prefix("Em", Some("En")); title Contains(" &"); id up; ?title:prefix=Em&title:contains=%20%26&limit=50&cursor=…
            pages:gte=100&pages:lt=2e2
                pages Compare(GreaterOrEqual, Integer(100)); pages Compare(Less, Integer(200)); id up; ?pages:gte=100&pages:lt=2e2&limit=50&cursor=…
            price=1.5&price:ne=-0.050
                price Compare(Equal, Decimal(Decimal { units: 150, scale: 2 })); price Compare(NotEqual, Decimal(Decimal { units: -5, scale: 2 })); id up; ?price=1.5&price:ne=-0.050&limit=50&cursor=…
            weight:lte=0.25&is_new=true
                weight Compare(LessOrEqual, Number(0.25)); is_new Compare(Equal, Boolean(true)); id up; ?weight:lte=0.25&is_new=true&limit=50&cursor=…
            printed:gt=2026-11-15&sold_at:gt=2026-11-15T03:28:14%2B01:00
                printed Compare(Greater, Text("2026-11-15")); sold_at Compare(Greater, Moment(Moment(1794709694000000))); id up; ?printed:gt=2026-11-15&sold_at:gt=2026-11-15T03:28:14%2B01:00&limit=50&cursor=…
            isbn=01890A5D-AC96-774B-BCCE-B302099A8057
                isbn Compare(Equal, Text("01890a5d-ac96-774b-bcce-b302099a8057")); id up; ?isbn=01890A5D-AC96-774B-BCCE-B302099A8057&limit=50&cursor=…
            id:in=01890a5d-ac96-774b-bcce-b302099a8057&sequel_to:exists=false
                id In([Text("01890a5d-ac96-774b-bcce-b302099a8057")]); sequel_to Exists(false); id up; ?id:in=01890a5d-ac96-774b-bcce-b302099a8057&sequel_to:exists=false&limit=50&cursor=…
            title:in=a\,b,c\\,
                title In([Text("a,b"), Text("c\\"), Text("")]); id up; ?title:in=a%5C%2Cb%2Cc%5C%5C%2C&limit=50&cursor=…
            count:eq=3&count=exact
                count Compare(Equal, Integer(3)); id up; counted; ?count:eq=3&count=exact&limit=50&cursor=…
            maker.city=Bonn&maker.at.street:exists=true
                maker.city Compare(Equal, Text("Bonn")); maker.at.street Exists(true); id up; ?maker.city=Bonn&maker.at.street:exists=true&limit=50&cursor=…
            status=sold&created_at:lt=2026-11-15T00:00:00Z
                status Compare(Equal, Text("sold")); created_at Compare(Less, Moment(Moment(1794700800000000))); id up; ?status=sold&created_at:lt=2026-11-15T00:00:00Z&limit=50&cursor=…
            contact=ann@example.com
                contact Compare(Equal, Text("ann@example.com")); id up; ?contact=ann@example.com&limit=50&cursor=…
            contact:gte=b
                contact Compare(GreaterOrEqual, Text("b")); id up; ?contact:gte=b&limit=50&cursor=…
            sort=-title,pages
                by title down; by pages up; id up; ?sort=-title%2Cpages&limit=50&cursor=…
            sort=title,-id,
                bad-query sort: expected names with commas between them, got an empty one
            sort=-id
                id down; ?sort=-id&limit=50&cursor=…
            sort=title,id
                by title up; id up; ?sort=title%2Cid&limit=50&cursor=…
            sort=-maker.city
                by maker.city down; id down; ?sort=-maker.city&limit=50&cursor=…
            fields=title,shelf_id,version,id
                id up; [Field(0), Parent, Version]; ?fields=title%2Cshelf_id%2Cversion%2Cid&limit=50&cursor=…
            fields=id&limit=7
                id up; []; ?fields=id&limit=7&cursor=…
            title=a%2Bb+c&limit=2
                title Compare(Equal, Text("a+b c")); id up; ?title=a%2Bb%20c&limit=2&cursor=…
        "#]],
    );
}

#[test]
fn what_no_query_can_mean() {
    check(
        &[
            "titel=x",
            "titel:eq=x",
            "sortt=title",
            "q=x",
            "expand=shelf",
            "note=x",
            "note:contains=x",
            "tags=x",
            "tags.x=1",
            "maker=x",
            "maker.zip=x",
            "maker.citty=x",
            "maker.at.city=x",
            "title.x=1",
            "version=1",
            "shelf_id=1",
            "title:like=x",
            "title:prefx=x",
            "title:=x",
            "pages:prefix=1",
            "is_new:gt=true",
            "status:contains=s",
            "id:prefix=0",
            "pages=x",
            "pages=1.5",
            "price=1.555",
            "price=x",
            "weight=x",
            "is_new=1",
            "printed=2026-02-30",
            "sold_at=2026-11-15T03:28:14+01:00",
            "isbn=1",
            "sequel_to=1",
            "id=1",
            "created_at=today",
            "contact=ann",
            "status=lost",
            "title=a%00b",
            "title:contains=%00",
            "title:exists=yes",
            "title:in=a,b,c,d",
            r"title:in=a\n",
            "pages:in=1,x",
            "pages=1&pages=2&pages=3&pages=4",
            "sort=",
            "sort=title,",
            "sort=titel",
            "sort=-note",
            "sort=title,-title",
            "sort=title,pages,price",
            "sort=title&sort=title",
            "fields=",
            "fields=titel",
            "fields=title,title",
            "fields=maker.city",
            "count=all",
            "count=exact&count=exact",
            "limit=0",
            "cursor=AAAA",
            "=x",
            ":eq=x",
            "title:eq:eq=x",
        ],
        &expect![[r#"
            titel=x
                bad-query titel: no such parameter here; did you mean "title"?
            titel:eq=x
                bad-query titel: no such field here; did you mean "title"?
            sortt=title
                bad-query sortt: no such parameter here; did you mean "sort"?
            q=x
                bad-query q: no such parameter here
            expand=shelf
                bad-query expand: no such parameter here
            note=x
                bad-query note: the field is not declared filter = true, so it cannot be filtered or sorted by
            note:contains=x
                bad-query note: the field is not declared filter = true, so it cannot be filtered or sorted by
            tags=x
                bad-query tags: a field of type list cannot be filtered or sorted by
            tags.x=1
                bad-query tags.x: cannot reach into a list
            maker=x
                bad-query maker: an object cannot be filtered or sorted by, but a field in it can, such as maker.city
            maker.zip=x
                bad-query maker.zip: the field is not declared filter = true, so it cannot be filtered or sorted by
            maker.citty=x
                bad-query maker.citty: no such parameter here; did you mean "maker.city"?
            maker.at.city=x
                bad-query maker.at.city: no such parameter here; did you mean "maker.city"?
            title.x=1
                bad-query title.x: no such parameter here; did you mean "title"?
            version=1
                bad-query version: cannot be filtered or sorted by
            shelf_id=1
                bad-query shelf_id: cannot be filtered or sorted by
            title:like=x
                bad-query title:like: no such operator; did you mean "lte"?
            title:prefx=x
                bad-query title:prefx: no such operator; did you mean "prefix"?
            title:=x
                bad-query title:: no such operator
            pages:prefix=1
                bad-query pages:prefix: the operator does not fit; those that do: eq, ne, gt, gte, lt, lte, in, exists
            is_new:gt=true
                bad-query is_new:gt: the operator does not fit; those that do: eq, ne, in, exists
            status:contains=s
                bad-query status:contains: the operator does not fit; those that do: eq, ne, in, exists
            id:prefix=0
                bad-query id:prefix: the operator does not fit; those that do: eq, ne, gt, gte, lt, lte, in, exists
            pages=x
                bad-query pages: expected an integer, got "x"
            pages=1.5
                bad-query pages: expected an integer within ±9007199254740991, got 1.5
            price=1.555
                bad-query price: expected at most 18 digits and 2 decimals, got 1.555
            price=x
                bad-query price: expected a decimal number such as "1.50", got "x"
            weight=x
                bad-query weight: expected a number, got "x"
            is_new=1
                bad-query is_new: expected true or false, got "1"
            printed=2026-02-30
                bad-query printed: expected a date such as "2026-11-15", got "2026-02-30"
            sold_at=2026-11-15T03:28:14+01:00
                bad-query sold_at: expected a timestamp such as "2026-11-15T02:28:14Z" with at most 6 decimals, got "2026-11-15T03:28:14 01:00"; in a query a + is written %2B
            isbn=1
                bad-query isbn: expected a UUID such as "01890a5d-ac96-774b-bcce-b302099a8057", got "1"
            sequel_to=1
                bad-query sequel_to: expected an id, which is a UUID, got "1"
            id=1
                bad-query id: expected an id, which is a UUID, got "1"
            created_at=today
                bad-query created_at: expected a timestamp such as "2026-11-15T02:28:14Z", got "today"
            contact=ann
                bad-query contact: expected an e-mail address, got "ann"
            status=lost
                bad-query status: expected one of "new", "sold", got "lost"
            title=a%00b
                bad-query title: expected a text without the NUL character
            title:contains=%00
                bad-query title:contains: expected a text without the NUL character
            title:exists=yes
                bad-query title:exists: expected true or false, got "yes"
            title:in=a,b,c,d
                bad-query title:in: expected at most 3 values, got more
            title:in=a\n
                bad-query title:in: expected \, or \\ for a comma or a backslash, got "\\n"
            pages:in=1,x
                bad-query pages:in: expected an integer, got "x"
            pages=1&pages=2&pages=3&pages=4
                bad-query expected at most 3 filters, got more
            sort=
                bad-query sort: expected names with commas between them, got an empty one
            sort=title,
                bad-query sort: expected names with commas between them, got an empty one
            sort=titel
                bad-query sort: titel: no such field here; did you mean "title"?
            sort=-note
                bad-query sort: note: the field is not declared filter = true, so it cannot be filtered or sorted by
            sort=title,-title
                bad-query sort: title: given twice
            sort=title,pages,price
                bad-query sort: expected at most 2 keys, got more
            sort=title&sort=title
                bad-query sort: given twice
            fields=
                bad-query fields: expected names with commas between them, got an empty one
            fields=titel
                bad-query fields: titel: no such field here; did you mean "title"?
            fields=title,title
                bad-query fields: title: given twice
            fields=maker.city
                bad-query fields: maker.city: no such field here
            count=all
                bad-query count: expected exact, got "all"
            count=exact&count=exact
                bad-query count: given twice
            limit=0
                bad-query limit: expected a whole number from 1 to 500, got "0"
            cursor=AAAA
                bad-cursor 
            =x
                bad-query : no such parameter here
            :eq=x
                bad-query : no such field here
            title:eq:eq=x
                bad-query title:eq: no such field here; did you mean "title"?
        "#]],
    );
}

/// What is said of a hidden field is what is said of a name that nobody declared.
#[test]
fn a_hidden_field_is_unknown() {
    let model = model::read("lists.toml", MODEL).unwrap();
    let said = |query: &str, name: &str| {
        let problem = asked(&model, query).unwrap_err();
        problem.parts().detail.clone().unwrap().replace(name, "NAME")
    };
    for query in [
        "NAME=x",
        "NAME:eq=x",
        "NAME:nonsense=x",
        "sort=NAME",
        "sort=-NAME",
        "fields=NAME",
        "NAME.x=1",
    ] {
        let [hidden, unknown] =
            ["secret_note", "sacred_mote"].map(|name| said(&query.replace("NAME", name), name));
        assert_eq!(hidden, unknown, "{query}");
    }
    // Nor is it ever what may be meant.
    assert!(!said("secret_not=x", "secret_not=").contains("secret_note"));
    assert!(!said("sort=secret_not", "-").contains("secret_note"));
    assert!(!said("fields=secret_not", "-").contains("secret_note"));
}

#[test]
fn a_cursor_is_bound_to_which_items_come_in_which_order() {
    let model = model::read("lists.toml", MODEL).unwrap();
    let bound = |query: &str| asked(&model, query).unwrap().bound("/shelves/1/books");
    let same = [
        "pages=1&title:eq=x&sort=-title",
        "sort=-title&title=x&pages:eq=1&limit=3",
        "title=x&fields=title&pages=1&count=exact&sort=-title",
        "ti%74le=%78&pages=1&sort=-title",
    ];
    let other = [
        "",
        "pages=1&title=x",
        "pages=1&sort=-title",
        "pages=1&title=x&sort=title",
        "pages=1&title=y&sort=-title",
        "pages:gte=1&title=x&sort=-title",
        "pages=1&title=x&sort=-title,pages",
        "pages=1&title=x&title=x&sort=-title",
    ];
    for query in same {
        assert_eq!(bound(query), bound(same[0]), "{query}");
    }
    for (at, query) in other.iter().enumerate() {
        assert_ne!(bound(query), bound(same[0]), "{query}");
        assert!(other[at + 1..].iter().all(|next| bound(next) != bound(query)), "{query}");
    }
    assert_eq!(bound("limit=3&fields=title"), bound(""));
    assert_ne!(bound(""), asked(&model, "").unwrap().bound("/shelves/2/books"));
}
