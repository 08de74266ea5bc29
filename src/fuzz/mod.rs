//! What the fuzzers call: one function a target, each of which panics when a promise is broken.
//!
//! `fuzz/` has the executables and the corpora; this is only here when they or the unit tests are
//! built. The one surprising thing: the corpora also run as an ordinary test, so they cannot rot.

mod accept;
mod body;
mod model;
mod target;

pub use self::accept::accept;
pub use self::body::body;
pub use self::model::model;
pub use self::target::target;

use std::sync::LazyLock;

use crate::model::{Model, read};

/// Models that together have every type of field, both kinds of id, three levels and references.
static MODELS: LazyLock<Vec<Model>> = LazyLock::new(|| {
    let texts = [
        include_str!("../../examples/store/nouns.toml"),
        include_str!("../../examples/library/nouns.toml"),
        include_str!("../../tests/it/models/school.toml"),
    ];
    texts.iter().filter_map(|text| read("nouns.toml", text).ok()).collect()
});

#[cfg(test)]
mod tests {
    use std::fs;
    use std::panic::catch_unwind;
    use std::path::{Path, PathBuf};

    use super::*;

    type Target = (&'static str, fn(&[u8]));

    const TARGETS: &[Target] =
        &[("accept", accept), ("body", body), ("model", model), ("target", target)];

    fn files(folder: &str) -> Vec<PathBuf> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }

    fn run(function: fn(&[u8]), paths: &[PathBuf]) {
        let broken: Vec<_> = paths
            .iter()
            .filter(|path| catch_unwind(|| function(&fs::read(path).unwrap())).is_err())
            .collect();
        assert!(broken.is_empty(), "{broken:#?}");
    }

    #[test]
    fn the_corpora_break_no_promise() {
        assert_eq!(MODELS.len(), 3);
        let names: Vec<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
        let folders = files("fuzz/corpus");
        let folders: Vec<_> =
            folders.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(folders, names, "a corpus for each target");
        let mut bytes = 0;
        for (name, function) in TARGETS {
            let paths = files(&format!("fuzz/corpus/{name}"));
            assert!(paths.len() >= 10, "{name}: {} files", paths.len());
            bytes += paths.iter().map(|path| fs::metadata(path).unwrap().len()).sum::<u64>();
            run(*function, &paths);
        }
        assert!(bytes <= 200_000, "the corpora have {bytes} bytes");
    }

    #[test]
    fn the_models_of_the_tests_break_no_promise() {
        run(model, &files("tests/models/broken"));
        run(model, &files("tests/it/models"));
        for text in MODELS.iter().map(|model| &model.shape) {
            for other in MODELS.iter().map(|model| &model.shape) {
                model(format!("title = \"a\"\n{text}#---\ntitle = \"b\"\n{other}").as_bytes());
            }
        }
    }
}
