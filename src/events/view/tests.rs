//! The ring of a view under every order of its operations, compared with the whole log.

use proptest::prelude::*;

use super::*;
use crate::clock;
use crate::intent::ListQuery;
use crate::model::{self, ResourceIndex};
use crate::permit::AccessScope;
use crate::permit::change_visibility::{ChangeScope, ChangeTarget};

const MODEL: &str = "title = \"Log\"\n[resources.entry.fields]\ntext = { type = \"text\" }\n";

fn view() -> Arc<View> {
    let list = Arc::new(ListQuery::by_id(1, None));
    let target = ChangeTarget::Collection(ResourceIndex(0), Vec::new(), list);
    let model = model::read("m.toml", MODEL).unwrap();
    View::new(Subscription::new(&model, ChangeScope { access: AccessScope::default(), target }))
}

/// The event of a number; some are large, so that the ring forgets others.
fn event(sequence: i64) -> Vec<u8> {
    let size = if sequence % 7 == 0 { 30_000 } else { 10 };
    format!("{sequence:0size$}\n").into_bytes()
}

fn numbers(bytes: &[u8]) -> Vec<i64> {
    let text = str::from_utf8(bytes).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[derive(Debug, Clone)]
enum Step {
    /// A batch of the log: for each number, whether it has an event.
    Publish(Vec<bool>),
    Trim,
    ForgetAll,
    /// A batch that cannot be evaluated from memory.
    Skip(Vec<bool>),
    Read(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let batch = || proptest::collection::vec(any::<bool>(), 0..6);
    prop_oneof![
        3 => batch().prop_map(Step::Publish),
        1 => Just(Step::Trim),
        1 => Just(Step::ForgetAll),
        1 => batch().prop_map(Step::Skip),
        4 => (0..4_usize).prop_map(Step::Read),
    ]
}

/// One reader of the view, which catches up from the log in pages of three entries.
#[derive(Debug, Clone, Default)]
struct Reader {
    position: i64,
    received: Vec<i64>,
}

impl Reader {
    /// Reads once. Returns whether it has everything.
    fn read(&mut self, view: &View, log: &[bool]) -> bool {
        match view.read_after(self.position) {
            ViewRead::Events { bytes, count, last } => {
                let new = numbers(&bytes);
                assert_eq!((new.len(), new.last()), (count, Some(&last)));
                self.received.extend(new);
                self.position = last;
                false
            }
            ViewRead::UpToDate(end) => {
                self.position = self.position.max(end);
                true
            }
            ViewRead::Behind => {
                let end = (self.position + 3).min(i64::try_from(log.len()).unwrap());
                let page = self.position + 1..=end;
                self.received.extend(page.filter(|at| log[usize::try_from(*at).unwrap() - 1]));
                self.position = end;
                false
            }
            other => panic!("{other:?}"),
        }
    }
}

proptest! {
    #[test]
    fn view_readers_get_every_event_once_and_in_order(steps in proptest::collection::vec(step(), 0..60)) {
        let (view, start) = (view(), clock::now());
        view.adopt(0);
        let (mut log, mut readers) = (Vec::new(), vec![Reader::default(); 4]);
        let mut age = Duration::ZERO;
        for step in steps {
            age += RING_KEEP / 3;
            match step {
                Step::Publish(batch) => {
                    let (mut bytes, mut events) = (Vec::new(), Vec::new());
                    for has_event in batch {
                        log.push(has_event);
                        let sequence = i64::try_from(log.len()).unwrap();
                        if has_event {
                            events.push((sequence, bytes.len()));
                            bytes.extend(event(sequence));
                        }
                    }
                    let end = i64::try_from(log.len()).unwrap();
                    let read_at = start + age;
                    let batch = (!events.is_empty())
                        .then(|| EventBatch { bytes: bytes.into(), events, is_last: false, read_at });
                    view.publish(batch, end);
                }
                Step::Trim => {
                    view.trim(start + age);
                }
                Step::ForgetAll => view.forget_all(),
                Step::Skip(batch) => {
                    log.extend(batch);
                    view.skip_to(i64::try_from(log.len()).unwrap());
                }
                Step::Read(reader) => {
                    readers[reader].read(&view, &log);
                }
            }
        }
        let all: Vec<i64> = (1..).zip(&log).filter(|(_, has)| **has).map(|(at, _)| at).collect();
        for reader in &mut readers {
            while !reader.read(&view, &log) {}
            prop_assert_eq!(&reader.received, &all);
        }
    }
}

#[test]
fn view_is_not_live_before_the_feed_adopts_it_and_ends_after_its_last_event() {
    let view = view();
    assert_eq!(view.read_after(0), ViewRead::NotLive);
    view.adopt(5);
    assert_eq!(view.read_after(4), ViewRead::Behind);
    assert_eq!(view.read_after(5), ViewRead::UpToDate(5));
    let (bytes, events) = (Bytes::from(event(6)), vec![(6, 0)]);
    let batch = EventBatch { bytes, events, is_last: true, read_at: clock::now() };
    view.publish(Some(batch), 8);
    assert!(matches!(view.read_after(5), ViewRead::Events { count: 1, last: 6, .. }));
    assert_eq!(view.read_after(6), ViewRead::Ended);
    assert!(view.has_ended());
}
