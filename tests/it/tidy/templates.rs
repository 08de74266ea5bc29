//! The markup of pages is in template files, where askama escapes every value.

use regex::Regex;

use super::{assert_no_faults, files, without_comments};

/// The code of a file without its tests.
fn product(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod tests {").next().unwrap()
}

#[test]
fn sources_of_pages_contain_no_markup() {
    let literal = Regex::new(r#""(?:[^"\\]|\\.)*""#).unwrap();
    let tag = Regex::new("<[/!a-z]").unwrap();
    let mut faults = Vec::new();
    for (path, text) in files("src/pages", ".rs") {
        let code = product(&text).replace("'\"'", "' '");
        let texts = literal.find_iter(&code).map(|found| found.as_str());
        let markup = texts.filter(|text| tag.is_match(text));
        faults.extend(markup.map(|text| format!("{path}: markup in {text}")));
    }
    assert_no_faults(&faults);
}

/// A type whose value is put into a page as it is must be a template itself.
#[test]
fn values_that_are_not_escaped_are_templates() {
    let safe = Regex::new(r"impl(?:<[^>]*>)?\s+HtmlSafe for (\w+)").unwrap();
    let setting = Regex::new(r"#\[template\(([^\]]*)\)\]").unwrap();
    let path_only = Regex::new(r#"^path = "[a-z_]+\.html"$"#).unwrap();
    let (mut faults, mut count) = (Vec::new(), 0);
    for (path, text) in files("src/pages", ".rs") {
        let code = without_comments(product(&text));
        for found in safe.captures_iter(&code) {
            let name = &found[1];
            let template = format!(
                r#"#\[template\(path = "[a-z_]+\.html"\)\]\s+(?:pub )?(?:struct|enum) {name}\b"#
            );
            count += 1;
            if !Regex::new(&template).unwrap().is_match(&code) {
                faults.push(format!("{path}: `{name}` is not escaped and no template"));
            }
        }
        let wrappers = code.lines().filter(|line| line.contains("askama::filters"));
        let wrappers = wrappers.filter(|line| *line != "use askama::filters::HtmlSafe;");
        faults.extend(wrappers.map(|line| format!("{path}: {line}")));
        let settings = setting.captures_iter(&code).map(|found| found[1].to_owned());
        let others = settings.filter(|setting| !path_only.is_match(setting));
        faults.extend(others.map(|setting| format!("{path}: #[template({setting})]")));
    }
    assert!(count > 5, "{count} types are put into pages as they are");
    assert_no_faults(&faults);
}

#[test]
fn templates_escape_every_value() {
    // An attribute value without double quotes would end at the first space.
    let unsafe_value = Regex::new(r"\|\s*(?:safe|escape|e)\b|[a-z-]=(?:\{|')").unwrap();
    let mut faults = Vec::new();
    for (path, text) in files("src/pages/templates", ".html") {
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(found) = unsafe_value.find(line) {
                faults.push(format!("{path}:{number}: {}", found.as_str()));
            }
        }
    }
    assert_no_faults(&faults);
}
