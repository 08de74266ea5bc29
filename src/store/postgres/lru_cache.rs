//! LRU cache of values by text, for prepared statements.
//!
//! Nothing is hashed. Statements are long and few, two of the same length are rare, and those in use come
//! first: a lookup compares few of them, whereas hashing would read the whole text.

/// A bounded cache that evicts the least recently used value.
#[derive(Debug)]
pub struct LruCache<T> {
    /// Most recently used first.
    entries: Vec<(Box<str>, T)>,
    entries_max: usize,
}

impl<T: Clone> LruCache<T> {
    pub fn new(kept_max: usize) -> Self {
        Self { entries: Vec::new(), entries_max: kept_max }
    }

    pub fn get(&mut self, text: &str) -> Option<T> {
        let at = self.entries.iter().position(|(known, _)| **known == *text)?;
        let used = self.entries.get_mut(..=at)?;
        used.rotate_right(1);
        used.first().map(|(_, value)| value.clone())
    }

    /// Adds a value unless the text has one by now, and returns the cached one.
    pub fn insert_if_absent(&mut self, text: &str, value: T) -> T {
        if let Some(known) = self.get(text) {
            return known;
        }
        self.entries.truncate(self.entries_max.saturating_sub(1));
        self.entries.insert(0, (text.into(), value.clone()));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lru_cache_at_capacity_evicts_least_recently_used() {
        let mut recent = LruCache::new(3);
        for (text, value) in [("one", 1), ("two", 2), ("three", 3)] {
            assert_eq!(recent.get(text), None);
            assert_eq!(recent.insert_if_absent(text, value), value);
        }
        assert_eq!(recent.insert_if_absent("two", 4), 2);
        assert_eq!(
            (recent.get("one"), recent.get("three"), recent.get("one")),
            (Some(1), Some(3), Some(1))
        );
        recent.insert_if_absent("four", 4);
        assert_eq!(recent.get("two"), None);
        recent.insert_if_absent("five", 5);
        let left = ["one", "two", "three", "four", "five"].map(|text| recent.get(text));
        assert_eq!(left, [Some(1), None, None, Some(4), Some(5)]);
        assert_eq!(recent.entries.len(), 3);
    }
}
