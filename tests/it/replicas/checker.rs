//! A linearizability checker: whether a history of concurrent calls on one item could have happened
//! sequentially.
//!
//! It uses the search of Wing and Gong: of the remaining calls, any that began before the first of them
//! ended may be next; a state reached by the same calls is not searched twice.
//! It uses no clock but that of the test process, in which all clients run.

use std::collections::HashSet;
use std::time::Instant;

/// The call's request. An item is identified by its id; a slot holds one item at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallRequest {
    Create { word: String },
    Put { id: String, word: String },
    Delete { id: String },
    Get { id: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallResponse {
    Created {
        id: String,
    },
    /// The slot holds an item.
    Taken,
    /// After a PUT or a GET: the item as it is.
    Item {
        version: u64,
        word: String,
    },
    Deleted,
    Missing,
}

#[derive(Debug, Clone)]
pub struct RecordedCall {
    pub request: CallRequest,
    pub response: CallResponse,
    pub begun: Instant,
    pub ended: Instant,
}

/// The item in the slot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SlotItem {
    id: String,
    version: u64,
    word: String,
}

/// The state after a call, if the call can have had its response in this state.
fn state_after(state: Option<&SlotItem>, call: &RecordedCall) -> Option<Option<SlotItem>> {
    let held = |id: &str| state.filter(|item| item.id == id);
    match (&call.request, &call.response) {
        (CallRequest::Create { word }, CallResponse::Created { id }) if state.is_none() => {
            Some(Some(SlotItem { id: id.clone(), version: 1, word: word.clone() }))
        }
        (CallRequest::Create { .. }, CallResponse::Taken) => state.map(|item| Some(item.clone())),
        (CallRequest::Put { id, word }, CallResponse::Item { version, word: shown }) => {
            let item = held(id)?;
            // An update that changes nothing makes no new version.
            let next = item.version + u64::from(item.word != *word);
            let is_right = shown == word && *version == next;
            is_right.then(|| Some(SlotItem { version: next, word: word.clone(), ..item.clone() }))
        }
        (CallRequest::Get { id }, CallResponse::Item { version, word }) => {
            let item = held(id)?;
            (item.version == *version && item.word == *word).then(|| Some(item.clone()))
        }
        (CallRequest::Delete { id }, CallResponse::Deleted) => held(id).map(|_| None),
        (
            CallRequest::Put { id, .. } | CallRequest::Get { id } | CallRequest::Delete { id },
            CallResponse::Missing,
        ) => held(id).is_none().then(|| state.cloned()),
        _ => None,
    }
}

/// Whether the calls on an initially empty slot have an order that explains every response.
pub fn is_linearizable(calls: &[RecordedCall]) -> bool {
    assert!(calls.len() < 32, "a history of {} calls is too long to be searched", calls.len());
    search(calls, 0, None, &mut HashSet::new())
}

fn search(
    calls: &[RecordedCall],
    done: u32,
    state: Option<&SlotItem>,
    seen: &mut HashSet<(u32, Option<SlotItem>)>,
) -> bool {
    let left = || (0..calls.len()).filter(|index| done & (1 << index) == 0);
    let Some(first_end) = left().map(|index| calls[index].ended).min() else { return true };
    if !seen.insert((done, state.cloned())) {
        return false;
    }
    left().filter(|index| calls[*index].begun <= first_end).any(|index| {
        state_after(state, &calls[index])
            .is_some_and(|next| search(calls, done | 1 << index, next.as_ref(), seen))
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{CallRequest, CallResponse, RecordedCall, is_linearizable};

    /// Calls with their first and last moment.
    fn history(calls: &[(u64, u64, CallRequest, CallResponse)]) -> Vec<RecordedCall> {
        let zero = Instant::now();
        let call = |(begun, ended, asked, answered): &(u64, u64, CallRequest, CallResponse)| {
            RecordedCall {
                request: asked.clone(),
                response: answered.clone(),
                begun: zero + Duration::from_millis(*begun),
                ended: zero + Duration::from_millis(*ended),
            }
        };
        calls.iter().map(call).collect()
    }

    fn create(word: &str) -> CallRequest {
        CallRequest::Create { word: word.to_owned() }
    }

    fn created(id: &str) -> CallResponse {
        CallResponse::Created { id: id.to_owned() }
    }

    fn put(word: &str) -> CallRequest {
        CallRequest::Put { id: "1".to_owned(), word: word.to_owned() }
    }

    fn item(version: u64, word: &str) -> CallResponse {
        CallResponse::Item { version, word: word.to_owned() }
    }

    fn get() -> CallRequest {
        CallRequest::Get { id: "1".to_owned() }
    }

    fn delete() -> CallRequest {
        CallRequest::Delete { id: "1".to_owned() }
    }

    #[test]
    fn linearizability_possible_history_is_accepted() {
        // The GET and the second PUT overlap the first PUT, and take effect before and after it.
        let calls = history(&[
            (0, 1, create("a"), created("1")),
            (2, 9, put("b"), item(2, "b")),
            (3, 4, get(), item(1, "a")),
            (5, 8, put("c"), item(3, "c")),
            (5, 8, create("x"), CallResponse::Taken),
            (10, 20, delete(), CallResponse::Deleted),
            (10, 20, create("d"), created("2")),
            (10, 20, get(), CallResponse::Missing),
            (21, 22, put("e"), CallResponse::Missing),
        ]);
        assert!(is_linearizable(&calls));
        assert!(is_linearizable(&[]));
    }

    #[test]
    fn linearizability_unchanged_update_keeps_the_version() {
        let start = (0, 1, create("a"), created("1"));
        assert!(is_linearizable(&history(&[start.clone(), (2, 3, put("a"), item(1, "a"))])));
        assert!(!is_linearizable(&history(&[start, (2, 3, put("a"), item(2, "a"))])));
    }

    #[test]
    fn linearizability_stale_read_is_found() {
        let calls = history(&[
            (0, 1, create("a"), created("1")),
            (2, 3, put("b"), item(2, "b")),
            (4, 5, get(), item(1, "a")),
        ]);
        assert!(!is_linearizable(&calls));
    }

    #[test]
    fn linearizability_non_monotonic_reads_are_found() {
        // Both overlap the PUT, but one saw it before the other began.
        let calls = history(&[
            (0, 1, create("a"), created("1")),
            (2, 9, put("b"), item(2, "b")),
            (3, 4, get(), item(2, "b")),
            (5, 6, get(), item(1, "a")),
        ]);
        assert!(!is_linearizable(&calls));
    }

    #[test]
    fn linearizability_lost_update_is_found() {
        let calls = history(&[
            (0, 1, create("a"), created("1")),
            (2, 5, put("b"), item(2, "b")),
            (2, 5, put("c"), item(2, "c")),
        ]);
        assert!(!is_linearizable(&calls));
    }

    #[test]
    fn linearizability_two_items_in_one_slot_are_found() {
        let calls =
            history(&[(0, 5, create("a"), created("1")), (0, 5, create("b"), created("2"))]);
        assert!(!is_linearizable(&calls));
    }

    #[test]
    fn linearizability_read_after_delete_is_found() {
        let calls = history(&[
            (0, 1, create("a"), created("1")),
            (2, 3, delete(), CallResponse::Deleted),
            (4, 5, get(), item(1, "a")),
        ]);
        assert!(!is_linearizable(&calls));
    }

    #[test]
    fn linearizability_double_delete_is_found() {
        let calls = history(&[
            (0, 1, create("a"), created("1")),
            (2, 5, delete(), CallResponse::Deleted),
            (2, 5, delete(), CallResponse::Deleted),
        ]);
        assert!(!is_linearizable(&calls));
    }
}
