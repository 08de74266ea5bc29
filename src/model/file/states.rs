//! The state machine of a state field (`initial`, `next`): every state is a key of `next` and reachable. Transitions may
//! be limited to roles: `review = ["draft", { to = ["published"], roles = ["editor"] }]`.

use super::keys::{self, KeyForm};
use super::toml_tree::{TomlEntry, TomlTable, TomlText, type_name};
use crate::model::builtin::{ADMIN, ANYONE};
use crate::model::field::{StateMachine, TransitionLimit};

const STATES_MAX: usize = 100;

/// `roles`: the names of all declared roles.
pub fn read(table: &TomlTable<'_>, roles: &[&str]) -> Option<StateMachine> {
    let initial = table.text("initial");
    let entry = table.find("next")?;
    let next = entry.table()?;
    if next.entries.len() > STATES_MAX {
        let message = format!("expected at most {STATES_MAX} states, got {}", next.entries.len());
        entry.key.refuse(message);
        return None;
    }
    let states: Vec<&str> = next.entries.iter().map(|entry| entry.key.value).collect();
    let mut reader = TransitionReader { states: &states, roles, limits: Vec::new() };
    let transitions = next.entries.iter().map(|entry| reader.read(entry)).collect();
    let limits = reader.limits;
    let initial = initial?;
    if !states.contains(&initial.value) {
        let message = format!("there is no state `{}` in `next`", initial.value);
        initial.refuse_unknown(message, states);
        return None;
    }
    let moved_to = read_moves(table, &states);
    let initial = initial.value.into();
    let machine = StateMachine { initial, next: transitions, limits, moved_to };
    check_reachable(&machine, &next);
    Some(machine)
}

/// Reads the transitions of all states.
struct TransitionReader<'a> {
    states: &'a [&'a str],
    roles: &'a [&'a str],
    limits: Vec<TransitionLimit>,
}

impl TransitionReader<'_> {
    /// A state, and those that may follow it.
    fn read(&mut self, entry: &TomlEntry<'_>) -> (Box<str>, Vec<Box<str>>) {
        entry.key.check_name("state");
        let from = entry.key.value;
        let mut following: Vec<Box<str>> = Vec::new();
        let parts: Vec<TomlEntry<'_>> = match entry.elements() {
            Some(elements) => elements.collect(),
            None if entry.node.get_ref().is_table() => vec![entry.clone()],
            None => {
                entry.refuse_type("a list of texts");
                Vec::new()
            }
        };
        for part in parts {
            if let Some(text) = part.text() {
                self.add(&mut following, from, &text);
            } else if part.node.get_ref().is_table() {
                self.read_limited(&mut following, from, &part);
            } else {
                let got = type_name(part.node);
                part.refuse(format!("`{from}` expected a list of texts, got {got} in it"));
            }
        }
        (from.into(), following)
    }

    fn add(&self, following: &mut Vec<Box<str>>, from: &str, text: &TomlText<'_>) -> bool {
        let value = text.value;
        if !self.states.contains(&value) {
            let message = format!("there is no state `{value}`: every state is a key of `next`");
            text.refuse_unknown(message, self.states.iter().copied());
        } else if value == from {
            let help = "leave it out: staying is always allowed";
            text.refuse_with_help(format!("`{value}` is followed by itself"), help);
        } else if following.iter().any(|state| &**state == value) {
            text.refuse(format!("`{value}` stands here twice"));
        } else {
            following.push(value.into());
            return true;
        }
        false
    }

    /// Reads `{ to = ["published"], roles = ["editor"] }`.
    fn read_limited(&mut self, following: &mut Vec<Box<str>>, from: &str, entry: &TomlEntry<'_>) {
        let Some(table) = entry.table() else { return };
        table.check(&keys::TRANSITION);
        for key in ["to", "roles"] {
            match table.find(key) {
                None => entry.refuse_with_help(
                    format!("a limited transition has no `{key}`"),
                    "such as { to = [\"published\"], roles = [\"editor\"] }",
                ),
                Some(list) if list.is_empty_list() => list.refuse(format!("`{key}` is empty")),
                Some(_) => {}
            }
        }
        let texts = |key: &str| table.find(key).map(TomlEntry::texts).unwrap_or_default();
        let roles = texts("roles");
        roles.iter().for_each(|role| self.check_role(role));
        let roles: Vec<Box<str>> = roles.iter().map(|role| role.value.into()).collect();
        for to in texts("to") {
            if self.add(following, from, &to) {
                let (from, to) = (from.into(), to.value.into());
                self.limits.push(TransitionLimit { from, to, roles: roles.clone() });
            }
        }
    }

    fn check_role(&self, role: &TomlText<'_>) {
        match role.value {
            ADMIN => role.refuse_with_help("admins may make every transition", "leave it out"),
            ANYONE => role.refuse_with_help(
                "every caller has the role `anyone`, so this limits nothing",
                "name the state in the list itself",
            ),
            _ => _ = role.find("role", self.roles.iter().copied()),
        }
    }
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
