//! The state machine of a state field (`initial`, `next`): every state is a key of `next` and reachable.

use super::keys::KeyForm;
use super::toml_tree::{TomlEntry, TomlTable};
use crate::model::field::StateMachine;

const STATES_MAX: usize = 100;

pub fn read(table: &TomlTable<'_>) -> Option<StateMachine> {
    let initial = table.text("initial");
    let entry = table.find("next")?;
    let next = entry.table()?;
    if next.entries.len() > STATES_MAX {
        let message = format!("expected at most {STATES_MAX} states, got {}", next.entries.len());
        entry.key.refuse(message);
        return None;
    }
    let states: Vec<&str> = next.entries.iter().map(|entry| entry.key.value).collect();
    let transitions = next.entries.iter().map(|entry| read_transitions(entry, &states)).collect();
    let initial = initial?;
    if !states.contains(&initial.value) {
        let message = format!("there is no state `{}` in `next`", initial.value);
        initial.refuse_unknown(message, states);
        return None;
    }
    let moved_to = read_moves(table, &states);
    let machine = StateMachine { initial: initial.value.into(), next: transitions, moved_to };
    check_reachable(&machine, &next);
    Some(machine)
}

/// A state, and those that may follow it.
fn read_transitions(entry: &TomlEntry<'_>, states: &[&str]) -> (Box<str>, Vec<Box<str>>) {
    entry.key.check_name("state");
    entry.check_list_of_texts();
    let mut following: Vec<Box<str>> = Vec::new();
    for text in entry.texts() {
        let value = text.value;
        if !states.contains(&value) {
            let message = format!("there is no state `{value}`: every state is a key of `next`");
            text.refuse_unknown(message, states.iter().copied());
        } else if value == entry.key.value {
            let help = "leave it out: staying is always allowed";
            text.refuse_with_help(format!("`{value}` is followed by itself"), help);
        } else if following.iter().any(|state| &**state == value) {
            text.refuse(format!("`{value}` stands here twice"));
        } else {
            following.push(value.into());
        }
    }
    (entry.key.value.into(), following)
}

/// Removed states, each with the state that its items move to.
fn read_moves(table: &TomlTable<'_>, states: &[&str]) -> Vec<(Box<str>, Box<str>)> {
    let entries = table.table("moved_to").unwrap_or_default().entries;
    let mut moves = Vec::new();
    for entry in &entries {
        entry.key.check_name("state");
        entry.check(&KeyForm::Name);
        let Some(to) = entry.text() else { continue };
        if states.contains(&entry.key.value) {
            let message = format!("`{}` is a state of `next`, so nothing moves", entry.key.value);
            entry.key.refuse_with_help(message, "only the items of a removed state are moved");
        } else if !states.contains(&to.value) {
            let message = format!("there is no state `{}` in `next`", to.value);
            to.refuse_unknown(message, states.iter().copied());
        } else {
            moves.push((entry.key.value.into(), to.value.into()));
        }
    }
    moves
}

fn check_reachable(machine: &StateMachine, next: &TomlTable<'_>) {
    let mut reached: Vec<&str> = vec![&machine.initial];
    let mut at = 0;
    while let Some(state) = reached.get(at).copied() {
        let fresh = machine.successors(state).iter().map(|state| &**state);
        let fresh: Vec<&str> = fresh.filter(|state| !reached.contains(state)).collect();
        reached.extend(fresh);
        at += 1;
    }
    for TomlEntry { key, .. } in
        next.entries.iter().filter(|entry| !reached.contains(&entry.key.value))
    {
        let (state, initial) = (key.value, &machine.initial);
        let message =
            format!("no item can ever be `{state}`: it cannot be reached from `{initial}`");
        key.refuse_with_help(message, "let another state lead to it, or take it out");
    }
}
