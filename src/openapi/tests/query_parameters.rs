//! The query parameters of the document, compared with those that the parsers accept.

use super::*;

/// What the parser says about a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParameterFit {
    Accepted,
    /// It is known, and has none of the values.
    Refused,
    Unknown,
}

/// Values of all types, those that fit most parameters first.
fn values(model: &Model, (caller, route): (&Caller, &Route)) -> Vec<String> {
    let values = "1 true 2026-11-15T02:28:14Z 2026-11-15 1.5 ann@example.com https://example.com/ placed id -id exact 0 \
        sequence ordered new created customer person house customers /customers/ /people/ /api/v1/houses/1 plain \
        pending (id:exists=true) 1,2 2026-11-15,2026-11-16 2026-11-15T02:28:14Z,2026-11-15T02:28:15Z \
        01890a5d-ac96-774b-bcce-b302099a8057,01890a5d-ac96-774b-bcce-b302099a8058";
    let values = [UUID].into_iter().chain(values.split_whitespace()).map(str::to_owned);
    let subjects = ["/customers/", "/people/"].map(|path| format!("{path}{UUID}"));
    let names = route.resource().into_iter().flat_map(|resource| {
        let resource = model.resource(resource);
        let relations = intent::relations(model, resource, caller).into_iter();
        relations.map(|one| one.name(model, resource).to_owned())
    });
    values.chain(subjects).chain(names).collect()
}

/// Whether the parser takes a parameter with one of the values.
fn parameter_fit(
    model: &Model,
    (caller, route): (&Caller, &Route),
    (name, values): (&str, &[String]),
) -> ParameterFit {
    let base = name.rsplit_once(':').map_or(name, |(base, _)| base);
    let unknown = format!("{base}: no such");
    // Two values have a comma between them.
    let is_pair = name.ends_with(":between");
    for value in values.iter().filter(|value| value.contains(',') == is_pair) {
        let query = format!("{name}={value}");
        let Err(problem) = intent::read(model, route.clone(), (Some(&query), caller), b"") else {
            return ParameterFit::Accepted;
        };
        // No cursor is known here, but it is read.
        if problem.kind() == &problem::BAD_CURSOR {
            return ParameterFit::Accepted;
        }
        let detail = problem.parts().detail.as_deref().unwrap_or("");
        if detail.contains("no such parameter") || detail.starts_with(&unknown) {
            return ParameterFit::Unknown;
        }
        // Only where a value does not fit, another one may.
        if !detail.contains("expected") && !detail.contains("no such") {
            return ParameterFit::Refused;
        }
    }
    ParameterFit::Refused
}

/// The parameters that the parser takes. Operators are tried on names that it knows, or knows with `exists`.
fn accepted_parameters(
    model: &Model,
    context: (&Caller, &Route),
    (candidates, operators): (&BTreeSet<String>, &[&str]),
) -> BTreeSet<String> {
    let values = values(model, context);
    let mut accepted = BTreeSet::new();
    for name in candidates {
        let fit = |parameter: &str| parameter_fit(model, context, (parameter, &values));
        let exists = format!("{name}:exists");
        let [plain, exists] = [name, &exists].map(|parameter| (parameter, fit(parameter)));
        let is_known = [plain, exists].iter().any(|(_, fit)| *fit != ParameterFit::Unknown);
        let others = operators.iter().filter(|_| is_known);
        let others = others.map(|operator| format!("{name}:{operator}"));
        let others: Vec<(String, ParameterFit)> =
            others.map(|parameter| (parameter.clone(), fit(&parameter))).collect();
        let all = [plain, exists].into_iter();
        let all = all.chain(others.iter().map(|(parameter, fit)| (parameter, *fit)));
        accepted.extend(
            all.filter(|(_, fit)| *fit == ParameterFit::Accepted).map(|(one, _)| one.clone()),
        );
    }
    accepted
}

/// All operators but `exists`. Which of them fit a field does not depend on the caller.
const OPERATORS: [&str; 12] =
    ["eq", "ne", "gt", "gte", "lt", "lte", "between", "in", "has", "prefix", "contains", "match"];

/// The names that the message about an unknown parameter lists.
fn listed_names(model: &Model, (caller, route): (&Caller, &Route)) -> Vec<String> {
    let refused = intent::read(model, route.clone(), (Some("zzzz=1"), caller), b"");
    let Err(refused) = refused else { panic!("an unknown parameter was accepted") };
    let detail = refused.parts().detail.clone().unwrap();
    let Some((_, listed)) = detail.split_once("(there are ") else { return Vec::new() };
    let listed = listed.split_once(')').unwrap().0;
    let listed = listed.split_once(" and ").map_or(listed, |(names, _)| names);
    listed.split(", ").map(str::to_owned).collect()
}

fn add_fields(all: &mut BTreeSet<String>, before: &str, fields: &[model::Field]) {
    for field in fields {
        let name = format!("{before}{}", field.name);
        add_fields(all, &format!("{name}."), &field.rules.fields);
        all.insert(name);
    }
}

/// The names of the fields of related items, alone and with `has`: one of both is described.
fn related_candidates(model: &Model, resource: model::ResourceIndex) -> Vec<String> {
    let resource = model.resource(resource);
    let references = resource
        .fields
        .iter()
        .filter_map(|field| Some((&*field.name, model.resource(field.rules.reference?.resource))));
    let parent = resource.parent.map(|parent| model.resource(parent));
    let parent = parent.map(|parent| (&*parent.name, parent));
    let mut names = BTreeSet::new();
    for (name, target) in parent.into_iter().chain(references) {
        add_fields(&mut names, &format!("{name}."), &target.fields);
    }
    names.into_iter().flat_map(|name| [format!("{name}:has"), name]).collect()
}

/// All names that could be parameters, without operators.
fn candidates(model: &Model) -> BTreeSet<String> {
    let names = "id created_at updated_at version limit cursor sort fields count any not since snapshot \
        q expand as_of wait resource subject kind actor time page offset";
    let mut names: BTreeSet<String> = names.split_whitespace().map(str::to_owned).collect();
    for resource in &model.resources {
        add_fields(&mut names, "", &resource.fields);
        names.extend(resource.parent_key.iter().map(ToString::to_string));
    }
    names
}

/// The query parameters of the document are those that the parsers accept, for every caller.
#[test]
fn document_query_parameters_equal_the_parsers() {
    for model in models() {
        let candidates = candidates(&model);
        for (name, caller) in callers(&model) {
            let document = read_document(&model, &caller);
            let operators = if caller.is_open() { &OPERATORS[..] } else { &["eq", "has"] };
            let is_tried = |parameter: &String| {
                let operator = parameter.rsplit_once(':').map(|(_, operator)| operator);
                operator.is_none_or(|one| one == "exists" || operators.contains(&one))
            };
            for template in route_templates(&model) {
                let operation = &document["paths"][&template.path]["get"];
                if operation.is_null() || permit_ignores_queries(&template) {
                    continue;
                }
                let described = query_parameters(&document, operation);
                let path = concrete_path(&model, &template);
                let route = intent::route(&model, &Method::GET, &path, None).unwrap();
                let is_stream = matches!(
                    template.target,
                    RouteTarget::Collection(_) | RouteTarget::Item(_) | RouteTarget::Changes
                );
                let streamed =
                    Route { verb: RequestVerb::Watch { last_event_id: None }, ..route.clone() };
                let routes = if is_stream { vec![route, streamed] } else { vec![route] };
                let plain = |name: &str| name.strip_suffix(":eq").unwrap_or(name).to_owned();
                let described: BTreeSet<String> =
                    described.iter().map(|name| plain(name)).collect();
                let mut accepted = BTreeSet::new();
                for route in &routes {
                    let context = (&caller, route);
                    let found = accepted_parameters(&model, context, (&candidates, operators));
                    accepted.extend(found.iter().map(|name| plain(name)));
                    let related = route.resource().map(|one| related_candidates(&model, one));
                    let values = values(&model, context);
                    let is_accepted = |name: &String| {
                        parameter_fit(&model, context, (name, &values)) == ParameterFit::Accepted
                    };
                    accepted.extend(related.into_iter().flatten().filter(is_accepted));
                    for listed in listed_names(&model, context) {
                        let is_described = described.iter().any(|known| {
                            *known == listed || known.starts_with(&format!("{listed}:"))
                        });
                        assert!(is_described, "{path} as {name}: {listed} is not described");
                    }
                }
                let tried: BTreeSet<String> = described.into_iter().filter(is_tried).collect();
                assert_eq!(tried, accepted, "{path} as {name}");
            }
        }
    }
}

/// Public paths ignore their query.
fn permit_ignores_queries(template: &RouteTemplate<'_>) -> bool {
    let route = Route { verb: RequestVerb::Get, target: template.target.clone() };
    permit::is_public(&route)
}
