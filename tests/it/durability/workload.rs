//! The workload of one connection: the choice of its next request.
//!
//! It sends nothing: it knows the connection's items, and chooses.
//! Its caller does not report unknown outcomes to it, because it has to know what is stored to choose a
//! request that must be refused.

use serde_json::{Value, json};

use super::ledger::{ExpectedResponse, LedgerEntry, LedgerRequest};
use super::seeded_random::SeededRandom;

#[derive(Debug, Clone)]
pub struct Item {
    pub path: String,
    pub body: Value,
}

#[derive(Debug, Clone)]
pub struct Customer {
    pub item: Item,
    pub orders: Vec<Item>,
}

/// One connection's page of the ledger.
#[derive(Debug, Clone)]
pub struct LedgerPage {
    pub number: usize,
    random: SeededRandom,
    pub customers: Vec<Customer>,
    /// The last item it removed.
    pub last_removed: Option<String>,
    pub entries: Vec<LedgerEntry>,
}

impl LedgerPage {
    pub fn new(number: usize, seed: u64) -> Self {
        let chance = SeededRandom::new(seed);
        Self {
            number,
            random: chance,
            customers: Vec::new(),
            last_removed: None,
            entries: Vec::new(),
        }
    }

    /// The next request; where it needs a missing item, the creation of a customer.
    pub fn choose(&mut self, shared: &[Item]) -> (LedgerRequest, ExpectedResponse) {
        let chosen = match self.random.below(100) {
            0..20 => None,
            20..38 => self.new_orders(1),
            38..46 => {
                let count = 2 + self.random.below(5);
                Some(self.new_customers(count))
            }
            46..52 => {
                let count = 2 + self.random.below(3);
                self.new_orders(count)
            }
            52..66 => self.replace_customer(),
            66..76 => self.replace_order(),
            76..82 => self.replace_shared(shared),
            82..86 => self.some_order().map(|order| LedgerRequest::Remove { path: order.path }),
            86..90 => {
                self.some_customer().map(|known| LedgerRequest::Remove { path: known.item.path })
            }
            _ => match self.choose_refused() {
                Some(chosen) => return chosen,
                None => None,
            },
        };
        (chosen.unwrap_or_else(|| self.new_customers(1)), ExpectedResponse::Change)
    }

    /// A request that must not change anything.
    fn choose_refused(&mut self) -> Option<(LedgerRequest, ExpectedResponse)> {
        const TAKEN: ExpectedResponse = ExpectedResponse::Refusal(409, "taken");
        Some(match self.random.below(7) {
            0 => {
                let draft = json!({"name": self.token(0), "email": "no address"});
                let asked = LedgerRequest::Create {
                    collection: "/customers".to_owned(),
                    drafts: vec![draft],
                };
                (asked, ExpectedResponse::Refusal(422, "invalid-fields"))
            }
            // All but the last of them are valid.
            1 | 2 => {
                let email = self.some_customer()?.item.body["email"].clone();
                let count = 1 + self.random.below(4);
                let mut asked = self.new_customers(count);
                if let LedgerRequest::Create { drafts, .. } = &mut asked {
                    drafts.last_mut().unwrap()["email"] = email;
                }
                (asked, TAKEN)
            }
            3 => {
                let (one, other) = (self.some_customer()?, self.some_customer()?);
                let draft = json!({"name": self.token(0), "email": other.item.body["email"]});
                let is_own = one.item.path == other.item.path;
                let expected = if is_own { ExpectedResponse::Change } else { TAKEN };
                (LedgerRequest::Replace { path: one.item.path, draft }, expected)
            }
            4 => {
                let order = self.some_order()?;
                let mut draft = self.order(0);
                draft["status"] = json!("delivered");
                let expected = ExpectedResponse::Refusal(409, "transition-not-allowed");
                (LedgerRequest::Replace { path: order.path, draft }, expected)
            }
            5 => {
                let path = self.last_removed.clone()?;
                (LedgerRequest::Remove { path }, ExpectedResponse::Refusal(404, "not-found"))
            }
            _ => {
                let Item { path, body } = self.some_customer()?.item;
                let draft = json!({"name": body["name"], "email": body["email"]});
                (LedgerRequest::Replace { path, draft }, ExpectedResponse::NoChange)
            }
        })
    }

    /// A text that occurs once.
    fn token(&self, index: usize) -> String {
        format!("{}-{}-{index}", self.number, self.entries.len())
    }

    pub fn some_customer(&mut self) -> Option<Customer> {
        self.random.one_of(&self.customers).cloned()
    }

    fn some_order(&mut self) -> Option<Item> {
        let orders = self.some_customer()?.orders;
        self.random.one_of(&orders).cloned()
    }

    pub fn new_customers(&mut self, count: usize) -> LedgerRequest {
        let draft = |index| {
            let token = self.token(index);
            json!({"name": token, "email": format!("{token}@example.com")})
        };
        let drafts = (0..count).map(draft).collect();
        LedgerRequest::Create { collection: "/customers".to_owned(), drafts }
    }

    fn new_orders(&mut self, count: usize) -> Option<LedgerRequest> {
        let collection = format!("{}/orders", self.some_customer()?.item.path);
        let drafts = (0..count).map(|index| self.order(index)).collect();
        Some(LedgerRequest::Create { collection, drafts })
    }

    /// An order: most fit into a database page many times, some fill several.
    fn order(&mut self, index: usize) -> Value {
        let count = if self.random.below(40) == 0 { 100 } else { 1 + self.random.below(4) };
        let items: Vec<_> = (0..count)
            .map(|_| json!({"product": "x".repeat(1 + self.random.below(40)), "unit_price": self.random.below(1_000)}))
            .collect();
        json!({"items": items, "note": self.token(index)})
    }

    fn replace_customer(&mut self) -> Option<LedgerRequest> {
        let Item { path, body } = self.some_customer()?.item;
        let draft = json!({"name": self.token(0), "email": body["email"]});
        Some(LedgerRequest::Replace { path, draft })
    }

    fn replace_order(&mut self) -> Option<LedgerRequest> {
        let Item { path, body } = self.some_order()?;
        let mut draft = self.order(0);
        if body["status"] == "placed" && self.random.below(2) == 0 {
            draft["status"] = json!("paid");
        }
        Some(LedgerRequest::Replace { path, draft })
    }

    fn replace_shared(&mut self, shared: &[Item]) -> Option<LedgerRequest> {
        let Item { path, body } = self.random.one_of(shared)?.clone();
        let draft = json!({"name": self.token(0), "email": body["email"]});
        Some(LedgerRequest::Replace { path, draft })
    }
}
