//! The oracles of the fuzz targets: one function each, which panics when a property is violated.
//!
//! The library includes this folder as its module `fuzz` for the targets and for its unit tests only, because
//! the oracles call its private modules. `../fuzz_targets` has the executables, `../corpus` the corpora.
//! The corpora also run as an ordinary test, so that they cannot go stale.

mod accept;
mod authorization;
mod body;
mod forwarded;
mod items;
mod json_comparison;
mod model;
mod target;

pub use self::accept::accept;
pub use self::authorization::authorization;
pub use self::body::body;
pub use self::forwarded::forwarded;
pub use self::items::items;
pub use self::model::model;
pub use self::target::target;

use std::sync::LazyLock;

use crate::model::{Model, read};

/// Models that together have every field type, both kinds of id, three levels and references.
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

    type FuzzTarget = (&'static str, fn(&[u8]));

    const TARGETS: &[FuzzTarget] = &[
        ("accept", accept),
        ("authorization", authorization),
        ("body", body),
        ("forwarded", forwarded),
        ("items", items),
        ("model", model),
        ("target", target),
    ];

    fn files(folder: &str) -> Vec<PathBuf> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }

    /// The inputs that violate a property.
    fn failing_inputs(function: fn(&[u8]), paths: &[PathBuf]) -> Vec<PathBuf> {
        let is_broken = |path: &&PathBuf| {
            let input = fs::read(path).unwrap();
            catch_unwind(|| function(&input)).is_err()
        };
        paths.iter().filter(is_broken).cloned().collect()
    }

    #[test]
    fn fuzz_corpora_violate_no_property() {
        assert_eq!(MODELS.len(), 3);
        let names: Vec<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
        let folders = files("fuzz/corpus");
        let folders: Vec<_> =
            folders.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(folders, names, "a corpus for each target");
        let (mut bytes, mut found) = (0, Vec::new());
        for (name, function) in TARGETS {
            let paths = files(&format!("fuzz/corpus/{name}"));
            assert!(paths.len() >= 10, "{name}: {} files", paths.len());
            bytes += paths.iter().map(|path| fs::metadata(path).unwrap().len()).sum::<u64>();
            found.extend(failing_inputs(*function, &paths));
        }
        assert!(found.is_empty(), "{found:#?}");
        assert!(bytes <= 200_000, "the corpora have {bytes} bytes");
    }

    /// A deterministic random number generator.
    struct SplitMix(u64);

    impl SplitMix {
        fn below(&mut self, limit: usize) -> usize {
            // SplitMix64.
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            usize::try_from((mixed ^ (mixed >> 31)) >> 1).unwrap() % limit.max(1)
        }
    }

    /// One input with a few mutations: bytes flipped, removed, duplicated, or spliced from another input.
    fn mutate(inputs: &[Vec<u8>], numbers: &mut SplitMix) -> Vec<u8> {
        let mut bytes = inputs[numbers.below(inputs.len())].clone();
        for _ in 0..=numbers.below(4) {
            let start = numbers.below(bytes.len() + 1);
            let end = (start + numbers.below(12)).min(bytes.len());
            match numbers.below(5) {
                0 if start < bytes.len() => bytes[start] ^= 1 << numbers.below(8),
                1 => drop(bytes.drain(start..end)),
                2 => bytes.extend_from_within(start..end),
                3 => bytes.insert(start, u8::try_from(numbers.below(256)).unwrap()),
                _ => {
                    let other = &inputs[numbers.below(inputs.len())];
                    let from = numbers.below(other.len() + 1);
                    let to = (from + numbers.below(24)).min(other.len());
                    bytes.splice(start..end, other[from..to].iter().copied());
                }
            }
        }
        bytes
    }

    /// The first mutations that a fuzzer would try, so that a violation is found without one.
    #[test]
    fn fuzz_mutations_of_the_corpora_violate_no_property() {
        #[expect(clippy::disallowed_methods, reason = "a test may be told to take longer")]
        let is_soak = std::env::var_os("NOUNS_SOAK").is_some();
        let count = if is_soak { 100_000 } else { 1_000 };
        for (name, function) in TARGETS {
            let paths = files(&format!("fuzz/corpus/{name}"));
            let inputs: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
            let mut numbers = SplitMix(1);
            for number in 0..count {
                let input = mutate(&inputs, &mut numbers);
                let kept = catch_unwind(|| function(&input)).is_ok();
                assert!(kept, "{name}, mutation {number}: {:?}", String::from_utf8_lossy(&input));
            }
        }
    }

    #[test]
    fn fuzz_models_of_the_tests_violate_no_property() {
        for folder in ["tests/models/broken", "tests/it/models"] {
            assert_eq!(failing_inputs(model, &files(folder)), Vec::<PathBuf>::new());
        }
        for text in MODELS.iter().map(|model| &model.shape) {
            for other in MODELS.iter().map(|model| &model.shape) {
                model(format!("title = \"a\"\n{text}#---\ntitle = \"b\"\n{other}").as_bytes());
            }
        }
    }
}
