//! A client that creates, changes and deletes items, and records what was answered.

use super::{Battle, FailOnPanic};
use crate::durability::fallible_connection::FallibleConnection;
use crate::durability::seeded_random::SeededRandom;

/// A client that writes its own items.
pub struct Writer<'a> {
    battle: &'a Battle,
    number: usize,
    random: SeededRandom,
    connection: Option<FallibleConnection>,
    ids: Vec<String>,
    texts: usize,
}

impl<'a> Writer<'a> {
    pub fn new(battle: &'a Battle, number: usize, random: SeededRandom) -> Self {
        Self { battle, number, random, connection: None, ids: Vec::new(), texts: 0 }
    }

    pub fn run(&mut self) {
        let _fail = FailOnPanic(&self.battle.has_failed);
        while !self.battle.is_over() {
            match self.random.below(20) {
                0..8 => self.create(1),
                8 => self.create(5),
                9..17 => self.update(),
                17 | 18 => self.delete(),
                _ => self.be_refused(),
            }
        }
    }

    /// A value that no other item has.
    fn text(&mut self) -> String {
        self.texts += 1;
        format!(
            "note {} of writer {} {}",
            self.texts,
            self.number,
            "x".repeat(self.random.below(300))
        )
    }

    fn note(&mut self) -> serde_json::Value {
        let owner = self.random.one_of(&["ann", "bob"]);
        serde_json::json!({"text": self.text(), "rank": self.random.below(3), "owner": owner})
    }

    /// `None` if the server was lost, or has refused the request for a moment.
    fn request(
        &mut self,
        line: &str,
        media_type: &str,
        body: &str,
    ) -> Option<(u16, serde_json::Value)> {
        if self.connection.is_none() {
            let address = self.battle.some_address(&mut self.random);
            self.connection = FallibleConnection::connect(address);
        }
        let headers =
            format!("Authorization: {}\r\nContent-Type: {media_type}\r\n", self.battle.admin);
        let answer = self.connection.as_mut()?.request_with(line, &headers, body);
        let Some(answer) = answer else {
            self.connection = None;
            return None;
        };
        if answer.status == 503 {
            return None;
        }
        let json = if answer.body.is_empty() { serde_json::Value::Null } else { answer.json() };
        Some((answer.status, json))
    }

    pub fn create(&mut self, count: usize) {
        let notes: Vec<_> = (0..count).map(|_| self.note()).collect();
        let body = match notes.as_slice() {
            [note] => serde_json::json!({ "note": note }),
            notes => serde_json::json!({ "notes": notes }),
        };
        let answer = self.request("POST /notes", "application/json", &body.to_string());
        let Some((status, json)) = answer else { return };
        assert_eq!(status, 201, "{json}");
        let created = match json.get("notes") {
            Some(notes) => notes.as_array().unwrap().clone(),
            None => vec![json["note"].clone()],
        };
        assert_eq!(created.len(), count);
        for note in created {
            let id = note["id"].as_str().unwrap().to_owned();
            self.battle.record((id.clone(), "created".to_owned(), 1));
            self.ids.push(id);
        }
    }

    fn update(&mut self) {
        let Some(id) = self.random.one_of(&self.ids).cloned() else { return };
        let body = serde_json::json!({"note": self.note()}).to_string();
        let (method, media_type) = match self.random.below(2) {
            0 => ("PUT", "application/json"),
            _ => ("PATCH", "application/merge-patch+json"),
        };
        match self.request(&format!("{method} /notes/{id}"), media_type, &body) {
            None => {}
            // Its deletion was not answered.
            Some((404, _)) => self.ids.retain(|known| *known != id),
            Some((status, json)) => {
                assert_eq!(status, 200, "{json}");
                let version = json["note"]["version"].as_u64().unwrap();
                self.battle.record((id, "updated".to_owned(), version));
            }
        }
    }

    fn delete(&mut self) {
        let Some(id) = self.random.one_of(&self.ids).cloned() else { return };
        let answer = self.request(&format!("DELETE /notes/{id}"), "application/json", "");
        if let Some((status, json)) = answer {
            assert!([204, 404].contains(&status), "{json}");
            self.ids.retain(|known| *known != id);
            if status == 204 {
                self.battle.record((id, "deleted".to_owned(), 0));
            }
        }
    }

    /// Two items with one value: on PostgreSQL it uses up numbers of the log.
    fn be_refused(&mut self) {
        let text = self.text();
        let body = serde_json::json!({"notes": [{"text": text}, {"text": text}]}).to_string();
        if let Some((status, json)) = self.request("POST /notes", "application/json", &body) {
            assert_eq!(status, 409, "{json}");
        }
    }
}
