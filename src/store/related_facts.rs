//! Lookup of the facts that row filters need about other items (`permit::related_facts`).

use crate::intent::LoggedChange;
use crate::model::ResourceIndex;
use crate::permit::{
    AccessScope, FactReader, FactTime, ItemState, LoadedFacts, MemberQuestion, RelatedFact,
};
use crate::plan::FactAnswer;
use crate::store::change_log::read_change;
use crate::store::context::StoreContext;
use crate::store::driver::Driver;
use crate::store::error::{InternalError, StatementError};
use crate::store::sql::changes::{next_item_entry, next_item_entry_by_time};
use crate::store::sql::condition::row_conditions::member_statement;
use crate::store::statement::{Bind, Columns, Statement};
use crate::value::{Id, Item, Moment};

/// An evaluation needs a round for each step of a path, and may have several parts one after the other. It evaluates all
/// items of a request in each round, so their number does not matter.
const ROUNDS_MAX: usize = 64;

/// The moment at which items are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactMoment {
    Now,
    /// Directly after the entry of the change log with this number.
    After(i64),
    Time(Moment),
}

/// Runs an evaluation until all facts that it needs are known.
pub async fn evaluate_with_facts<D: Driver, T>(
    driver: &mut D,
    context: &StoreContext,
    moment: FactMoment,
    evaluate: impl Fn(&FactReader<'_>) -> T,
) -> Result<T, StatementError> {
    let time = if moment == FactMoment::Now { FactTime::Now } else { FactTime::Past };
    let mut loaded = LoadedFacts::default();
    for _ in 0..ROUNDS_MAX {
        let facts = FactReader::new(&context.model, &loaded, time);
        let result = evaluate(&facts);
        let needed = facts.into_needed();
        if needed.is_empty() {
            return Ok(result);
        }
        for fact in needed {
            match (look_up(driver, context, &fact, moment).await?, fact) {
                (FactAnswer::Item(state), RelatedFact::Item(resource, id)) => {
                    loaded.add_item((resource, id), state.item);
                }
                (FactAnswer::Member(is_member), RelatedFact::Member(question)) => {
                    loaded.add_member(question, is_member);
                }
                (FactAnswer::Item(_) | FactAnswer::Member(_), _) => {
                    return Err(internal("a fact has an answer of another kind"));
                }
            }
        }
    }
    Err(internal("a row filter needs more facts than it can"))
}

fn internal(cause: &str) -> StatementError {
    StatementError::Internal(InternalError(cause.into()))
}

pub async fn look_up<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    fact: &RelatedFact,
    moment: FactMoment,
) -> Result<FactAnswer, StatementError> {
    match fact {
        RelatedFact::Item(resource, id) => {
            item_state(driver, context, (*resource, *id), moment).await.map(FactAnswer::Item)
        }
        RelatedFact::Member(question) => {
            is_member(driver, context, question).await.map(FactAnswer::Member)
        }
    }
}

/// The state of an item that decides whether another one is visible. One that is damaged is counted, and shows nothing.
/// The row is read before the log: a change between the two is in the log, with the former values.
async fn item_state<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    (resource, id): (ResourceIndex, Id),
    moment: FactMoment,
) -> Result<ItemState, StatementError> {
    let row = match read_row(driver, context, resource, id).await {
        Err(StatementError::Internal(_)) => None,
        row => row?,
    };
    let (sql, place) = match moment {
        FactMoment::Now => return Ok(ItemState { item: row, until: None }),
        FactMoment::After(sequence) => (next_item_entry(D::DIALECT), Bind::Integer(sequence)),
        FactMoment::Time(time) => (next_item_entry_by_time(D::DIALECT), Bind::Moment(time)),
    };
    let (label, id) = (&context.model.resource(resource).label, id.text());
    let binds = [Bind::Text(label), Bind::Text(&id), place];
    let Some(change) = driver.query_one(&sql, &binds, read_change).await? else {
        return Ok(ItemState { item: row, until: None });
    };
    let until = Some(change.sequence);
    let logged = LoggedChange::new(&context.model, change);
    Ok(ItemState { item: logged.before(&context.model).cloned(), until })
}

/// The stored item, under any parent and for any caller. Its lists and objects are not checked: a row filter that
/// reads a damaged one does not hold.
async fn read_row<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    resource: ResourceIndex,
    id: Id,
) -> Result<Option<Item>, StatementError> {
    let scope = AccessScope::default();
    let reached = context.scoped_statements(resource, &scope);
    let read = |row: &dyn Columns| context.read_item(resource, row);
    Ok(driver.query_statement(&reached.item_anywhere(id), read).await?.pop())
}

async fn is_member<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    question: &MemberQuestion,
) -> Result<bool, StatementError> {
    let (sql, parameters) = member_statement(&context.model, D::DIALECT, question);
    let user = question.user.values();
    let binds = parameters.iter().map(|parameter| parameter.bind(user)).collect();
    let found = driver.have_rows(&[Statement::new(&sql, binds)]).await?;
    Ok(found.first() == Some(&true))
}
