//! The state machine of a state field (`initial`, `next`): every state is a key of `next` and reachable.

use super::toml_tree::{TomlEntry, TomlTable, check_name};
use crate::model::StateMachine;
use crate::model::report::Mistakes;

const STATES_MAX: usize = 100;

pub fn read(table: &TomlTable<'_>, mistakes: &mut Mistakes) -> Option<StateMachine> {
    let initial = table.text("initial", mistakes);
    let entry = table.find("next")?;
    let next = entry.table(mistakes)?;
    if next.entries().len() > STATES_MAX {
        mistakes.add(
            entry.key_span.clone(),
            format!("expected at most {STATES_MAX} states, got {}", next.entries().len()),
        );
        return None;
    }
    let states: Vec<&str> = next.entries().iter().map(|entry| entry.key).collect();
    let next = read_transitions(&next, &states, mistakes);
    let initial = initial?;
    if !states.contains(&initial.value) {
        mistakes.add_unknown(
            initial.span,
            format!("there is no state `{}` in `next`", initial.value),
            initial.value,
            states,
        );
        return None;
    }
    let states = StateMachine { initial: initial.value.into(), next };
    check_reachable(&states, entry, mistakes);
    Some(states)
}

fn read_transitions(
    next: &TomlTable<'_>,
    states: &[&str],
    mistakes: &mut Mistakes,
) -> Vec<(Box<str>, Vec<Box<str>>)> {
    let mut transitions = Vec::new();
    for entry in next.entries() {
        check_name("state", entry.key, entry.key_span.clone(), mistakes);
        let mut following: Vec<Box<str>> = Vec::new();
        for text in entry.texts(mistakes).unwrap_or_default() {
            let value = text.value;
            if !states.contains(&value) {
                let message =
                    format!("there is no state `{value}`: every state is a key of `next`");
                mistakes.add_unknown(text.span, message, value, states.iter().copied());
            } else if value == entry.key {
                mistakes.add_with_help(
                    text.span,
                    format!("`{value}` is followed by itself"),
                    "leave it out: staying is always allowed",
                );
            } else if following.iter().any(|state| &**state == value) {
                mistakes.add(text.span, format!("`{value}` stands here twice"));
            } else {
                following.push(value.into());
            }
        }
        transitions.push((entry.key.into(), following));
    }
    transitions
}

fn check_reachable(states: &StateMachine, next: &TomlEntry<'_>, mistakes: &mut Mistakes) {
    let mut reached: Vec<&str> = vec![&states.initial];
    let mut at = 0;
    while let Some(state) = reached.get(at).copied() {
        for following in states.successors(state) {
            if !reached.contains(&&**following) {
                reached.push(following);
            }
        }
        at += 1;
    }
    let Some(table) = next.table(mistakes) else { return };
    for entry in table.entries() {
        if !reached.contains(&entry.key) {
            let message = format!(
                "no item can ever be `{}`: it cannot be reached from `{}`",
                entry.key, states.initial
            );
            mistakes.add_with_help(
                entry.key_span.clone(),
                message,
                "let another state lead to it, or take it out",
            );
        }
    }
}
