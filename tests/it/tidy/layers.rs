//! Import cycles inside modules, and files that nothing refers to, as tests.
//!
//! A file depends on every file that it names by a path, in `use` and in code. A name that a parent re-exports
//! counts as the file that defines it, so a parent that only declares and re-exports its children is in no
//! cycle. Method calls name no path: [`inherent_impls_stand_with_their_type`] keeps a type's methods in its file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::LazyLock;

use regex::Regex;

use super::{assert_no_faults, files, root};

/// The modules whose files import one another in one direction only. The list only grows.
const LAYERED: &[&str] = &[
    "admission",
    "auth",
    "cli",
    "events",
    "formats",
    "intent",
    "json",
    "log",
    "metrics",
    "model",
    "openapi",
    "pages",
    "permit",
    "pipeline",
    "plan",
    "reply",
    "server",
    "store",
    "value",
    "wire",
];

/// Types with inherent `impl`s in other files than their own. The list only shrinks.
const SCATTERED_TYPES: &[&str] = &["ConnectionWatchdog", "ListStatements", "PostgresUrl"];

/// A module as its path from the root of the crate: `["model", "file", "keys"]`.
type Module = Vec<String>;

/// The product code of each module, without comments and strings.
#[derive(Default)]
struct Sources {
    code: BTreeMap<Module, String>,
    /// Modules that are declared for tests only; those below them are not listed.
    tests: BTreeSet<Module>,
}

impl Sources {
    fn read() -> Self {
        let mut sources = Self::default();
        for (path, text) in files("src", ".rs") {
            sources.add(&path, &text);
        }
        sources
    }

    fn add(&mut self, path: &str, text: &str) {
        static TEST_MODULE: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(r"#\[cfg\((?:test|any\(fuzzing, test\)|any\(test, fuzzing\))\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))? )?mod (\w+);").unwrap()
        });
        static TEST_USE: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))? )?use [^;]+;").unwrap()
        });
        let module = module(path);
        let product = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
        let code = without_texts(product);
        for found in TEST_MODULE.captures_iter(&code) {
            self.tests.insert(child(&module, &found[1]));
        }
        let code = TEST_USE.replace_all(&TEST_MODULE.replace_all(&code, ""), "").into_owned();
        self.code.insert(module, code);
    }

    fn is_test(&self, module: &[String]) -> bool {
        (1..=module.len()).any(|length| self.tests.contains(&module[..length]))
    }

    /// The file of a path that the code of `module` names; none if it is outside of the crate or a test's.
    fn target(&self, module: &[String], path: &str) -> Option<Module> {
        let mut names = path.split("::").peekable();
        let mut at = module.to_vec();
        if names.next_if_eq(&"crate").is_some() {
            at.clear();
        }
        while let Some(name) = names.next_if(|name| ["self", "super"].contains(name)) {
            at.truncate(at.len() - usize::from(name == "super"));
        }
        for name in names {
            let below = child(&at, name);
            if self.is_test(&below) {
                return None;
            }
            if !self.code.contains_key(&below) {
                return self.reexport(&at, name).or(Some(at)).filter(|at| !at.is_empty());
            }
            at = below;
        }
        Some(at)
    }

    /// The file that defines a name which `module` re-exports.
    fn reexport(&self, module: &Module, name: &str) -> Option<Module> {
        static REEXPORT: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"\bpub(?:\([^)]*\))? use ([^;]+);").unwrap());
        let code = self.code.get(module)?;
        let paths = REEXPORT.captures_iter(code).flat_map(|found| expand(&found[1]));
        let (path, _) = paths.into_iter().find(|(_, exported)| exported == name)?;
        self.target(module, &path).filter(|target| target != module)
    }

    /// The files that each file of a top-level module depends on, in the same top-level module.
    fn dependencies(&self, top: &str) -> BTreeMap<&Module, BTreeSet<Module>> {
        let is_inside = |module: &Module| module[0] == top && !self.is_test(module);
        let inside = self.code.iter().filter(|(module, _)| is_inside(module));
        inside
            .map(|(module, code)| {
                let targets = paths(code).into_iter().filter_map(|path| self.target(module, &path));
                (module, targets.filter(|to| to != module && to[0] == top).collect())
            })
            .collect()
    }
}

/// The module that a source file is.
fn module(path: &str) -> Module {
    let name = path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    name.split('/').map(str::to_owned).collect()
}

fn child(module: &[String], name: &str) -> Module {
    [module, &[name.to_owned()]].concat()
}

/// A source text without characters, strings and comments. A string may hold `//`, and a comment a quote.
fn without_texts(text: &str) -> String {
    static TEXTS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r###"'(?:[^'\\\n]|\\.)'|\br##"(?s:.*?)"##|\br#"(?s:.*?)"#|\br"[^"]*"|"(?:[^"\\]|\\.|\\\n)*"|//[^\n]*"###,
        )
        .unwrap()
    });
    TEXTS.replace_all(text, "").into_owned()
}

/// The paths of a `use` tree, each with the name that it introduces.
fn expand(tree: &str) -> Vec<(String, String)> {
    let tree = tree.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((prefix, group)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").unwrap_or((&tree, &tree));
        let path = path.trim_end_matches("::self");
        return vec![(path.to_owned(), alias.rsplit("::").next().unwrap().to_owned())];
    };
    let group = group.strip_suffix('}').unwrap_or(group);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in group.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            c => parts.last_mut().unwrap().push(c),
        }
    }
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| expand(&format!("{prefix}{}", part.trim()))).collect()
}

/// Every path that begins with `crate`, `super`, `self` or a child module, in `use` and in code.
fn paths(code: &str) -> Vec<String> {
    static USE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\buse ([^;]+);").unwrap());
    static PATH: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\b(?:crate|super|self)(?:::\w+)+").unwrap());
    static CHILD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bmod (\w+);").unwrap());
    static VISIBILITY: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\bpub\(in [^)]*\)").unwrap());
    let uses = USE.captures_iter(code).flat_map(|found| expand(&found[1]));
    let mut found: Vec<String> = uses.map(|(path, _)| path).collect();
    let rest = USE.replace_all(code, "");
    let rest = VISIBILITY.replace_all(&rest, "");
    found.extend(PATH.find_iter(&rest).map(|path| path.as_str().to_owned()));
    for child in CHILD.captures_iter(code) {
        let call = Regex::new(&format!(r"(?:^|[^\w:])({}(?:::\w+)+)", &child[1])).unwrap();
        found.extend(call.captures_iter(&rest).map(|path| path[1].to_owned()));
    }
    found
}

/// The dependencies that are part of a cycle.
fn cycles(dependencies: &BTreeMap<&Module, BTreeSet<Module>>) -> Vec<String> {
    let reaches = |from: &Module, to: &Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            if seen.insert(module) {
                next.extend(dependencies.get(module).into_iter().flatten());
            }
        }
        seen.contains(to)
    };
    let edges = dependencies.iter().flat_map(|(from, to)| to.iter().map(move |to| (*from, to)));
    let circular = edges.filter(|(from, to)| reaches(to, from));
    circular.map(|(from, to)| format!("{} imports {}", from.join("::"), to.join("::"))).collect()
}

#[test]
fn import_cycles_are_found_by_use_by_path_and_by_child() {
    let mut sources = Sources::default();
    sources.add(
        "src/a/mod.rs",
        "mod b;\nmod c;\n#[cfg(test)]\nmod t;\npub use b::{B, Other as O};\nfn f() {\n    c::g();\n}\n",
    );
    sources.add("src/a/b.rs", "use super::c::C;\n// use super::f;\nlet s = \"super::f\";\n");
    sources.add(
        "src/a/c.rs",
        "pub fn g() {\n    super::f();\n}\n#[cfg(test)]\nmod tests {\n    use crate::a::b::X;\n}\n",
    );
    sources.add("src/a/d.rs", "use crate::a::{O, c::{self, C}};\nuse super::t::T;\n");
    sources.add("src/a/t.rs", "use super::f;\n");
    let found = cycles(&sources.dependencies("a"));
    let expected = ["a imports a::b", "a imports a::c", "a::b imports a::c", "a::c imports a"];
    assert_eq!(found, expected);
    let dependencies = sources.dependencies("a");
    let of_d: Vec<String> =
        dependencies[&module("src/a/d.rs")].iter().map(|to| to.join("::")).collect();
    assert_eq!(of_d, ["a::b", "a::c"]);
}

#[test]
fn files_of_layered_modules_have_no_import_cycles() {
    let sources = Sources::read();
    let faults: Vec<String> =
        LAYERED.iter().flat_map(|top| cycles(&sources.dependencies(top))).collect();
    assert_no_faults(&faults);
}

/// Methods in another file than their type's would be dependencies that no path shows.
#[test]
fn inherent_impls_stand_with_their_type() {
    let inherent = Regex::new(r"(?m)^impl(?:<[^{]*?>)? (\w+)(?:<[^{]*?>)? (?:\{|where)").unwrap();
    let mut scattered = BTreeSet::new();
    let mut faults = Vec::new();
    let sources = Sources::read();
    for (module, code) in sources.code.iter().filter(|(module, _)| !sources.is_test(module)) {
        for found in inherent.captures_iter(code) {
            let name = &found[1];
            let own = Regex::new(&format!(r"\b(?:struct|enum|union|trait) {name}\b")).unwrap();
            if own.is_match(code) || found[0].contains(" for ") {
                continue;
            }
            scattered.insert(name.to_owned());
            if !SCATTERED_TYPES.contains(&name) {
                faults
                    .push(format!("{}: an impl of `{name}`, defined elsewhere", module.join("::")));
            }
        }
    }
    let stale = SCATTERED_TYPES.iter().filter(|name| !scattered.contains(**name));
    faults.extend(stale.map(|name| format!("remove `{name}` from SCATTERED_TYPES")));
    assert_no_faults(&faults);
}

/// Modules in which a default needs its place in `DEFAULTS`.
const WITHOUT_DEFAULTS: &[&str] =
    &["admission", "auth", "intent", "pipeline", "plan", "server", "wire"];

/// Files in which a missing value is a normal case, with the number of their defaults. What cannot happen is
/// a bug (`fault::OrBug`), not a default.
const DEFAULTS: &[(&str, usize)] = &[
    ("admission::stream_limit", 1),
    ("intent::attribute", 1),
    ("intent::filter", 1),
    ("intent::filter_value", 1),
    ("server::http1_framing", 1),
    ("server::refusal", 1),
    ("wire::host", 2),
];

#[test]
fn impossible_cases_do_not_end_in_defaults() {
    let sources = Sources::read();
    let mut faults = Vec::new();
    for (module, code) in sources.code.iter().filter(|(module, _)| !sources.is_test(module)) {
        if !module.first().is_some_and(|top| WITHOUT_DEFAULTS.contains(&top.as_str())) {
            continue;
        }
        let name = module.join("::");
        let known = DEFAULTS.iter().find(|(file, _)| *file == name).map_or(0, |(_, count)| *count);
        let count = code.matches("unwrap_or_default()").count();
        if count != known {
            faults.push(format!("{name}: expected {known} unwrap_or_default(), got {count}"));
        }
    }
    assert_no_faults(&faults);
}

/// Every file of `src` that is not Rust is named by a macro of a Rust file, or as a template by a Rust file or another
/// template, and every Rust file is declared.
#[test]
fn source_files_are_all_used() {
    let named =
        Regex::new(r#"(?:include_str|include_bytes|expect_file)!\s*[\[(]\s*"([^"]+)""#).unwrap();
    let template = Regex::new(r#"(?:path =|extends|import|include) "([a-z_]+\.html)""#).unwrap();
    let declaration = Regex::new(r"\bmod (\w+);").unwrap();
    let mut used = BTreeSet::from(["src/lib.rs", "src/main.rs"].map(str::to_owned));
    for (path, text) in files("src", ".rs") {
        let (folder, _) = path.rsplit_once('/').unwrap();
        used.extend(named.captures_iter(&text).map(|found| format!("{folder}/{}", &found[1])));
        let stem = path.trim_end_matches(".rs");
        let own = ["/mod", "/lib", "/main"].iter().find_map(|end| stem.strip_suffix(end));
        for found in declaration.captures_iter(&without_texts(&text)) {
            let child = format!("{}/{}", own.unwrap_or(stem), &found[1]);
            used.extend([format!("{child}.rs"), format!("{child}/mod.rs")]);
        }
    }
    for (_, text) in [files("src/pages", ".rs"), files("src/pages/templates", ".html")].concat() {
        let names = template.captures_iter(&text);
        used.extend(names.map(|found| format!("src/pages/templates/{}", &found[1])));
    }
    let faults: Vec<_> = files("src", "")
        .into_iter()
        .filter(|(path, _)| !used.contains(path))
        .map(|(path, _)| format!("{path}: no source names it"))
        .collect();
    assert_no_faults(&faults);
}

/// Every file of `tests` that is not Rust is named by another file of the tests, or by the one that runs them.
/// The broken models are found by their folder; each expected output belongs to a model.
#[test]
fn test_files_are_all_used() {
    let mut texts = [files("tests", ""), files("src", ".rs")].concat();
    for name in ["test", "CONTRIBUTING.md"] {
        texts.push((name.to_owned(), fs::read_to_string(root().join(name)).unwrap()));
    }
    let is_named = |path: &str| {
        let (_, name) = path.rsplit_once('/').unwrap();
        let import = name.strip_suffix(".py").map(|name| format!("import {name}\n"));
        let names = |text: &str| {
            text.contains(name) || import.as_ref().is_some_and(|import| text.contains(import))
        };
        texts.iter().any(|(other, text)| other != path && names(text))
    };
    let is_used = |path: &str| match path.strip_prefix("tests/models/broken/") {
        Some(_) if path.ends_with(".toml") => true,
        Some(_) => root().join(path.replace(".txt", ".toml")).exists(),
        None => is_named(path),
    };
    let faults: Vec<_> = files("tests", "")
        .into_iter()
        .filter(|(path, _)| !path.ends_with(".rs") && !is_used(path))
        .map(|(path, _)| format!("{path}: no other file names it"))
        .collect();
    assert_no_faults(&faults);
}
