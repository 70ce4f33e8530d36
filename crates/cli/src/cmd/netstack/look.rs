//! One look at all services. In a folder that was named, or is for all users, anybody may have some: those of root and the own user are asked
//! first, then those of others, each of whom has a share of the look's time.

use super::rows::{self, Object, Room};
use crate::connections::is_trusted;
use crate::effort::Effort;
use bypath_netstack::service::{Patience, QueryError, Reached};
use bypath_sockets::service::place::{self, Named};
use serde_json::json;
use std::time::Duration;

/// How long services of another user are asked in a look, and those of all of them (ms).
const OF_USER: u64 = 1000;
const OF_USERS: u64 = 3000;

/// What services have answered so far.
#[derive(Debug)]
pub struct Look {
    effort: Effort<OF_USER, OF_USERS>,
    /// For all rows that are kept.
    room: Room,
    names_left_out: usize,
    not_asked: usize,
    is_of_trusted: bool,
}

impl Look {
    /// The services that there are, in the order in which they are to be asked.
    pub fn new() -> (Look, Vec<Named>) {
        let all = place::all();
        let look = Look {
            effort: Effort::default(),
            room: Room::few(),
            names_left_out: all.left_out,
            not_asked: 0,
            is_of_trusted: false,
        };
        (look, all.services)
    }

    /// The same, in which services of other users are not asked.
    pub fn of_trusted(self) -> Look {
        Look { is_of_trusted: true, ..self }
    }

    /// Asks one; `each` gets the rows of JSON until it says that it wants no more. Whose service it is; `None`: there is no time left for its user.
    ///
    /// # Errors
    /// It does not answer, or not to the end.
    pub fn ask(
        &mut self,
        service: &Named,
        what: &str,
        patience: Patience,
        each: impl FnMut(&str) -> bool,
    ) -> Option<Result<u32, QueryError>> {
        let reach = if is_trusted(service.owner) { Reached::at } else { Reached::at_once };
        let reached = match reach(&service.path) {
            Ok(reached) => reached,
            Err(e) => return Some(Err(e)),
        };
        let whose = reached.whose();
        // Whoever makes a name can have it lead to a service of root's that does not answer.
        let payer = if is_trusted(service.owner) { whose } else { service.owner };
        if self.effort.is_over(payer) || self.is_of_trusted && !is_trusted(payer) {
            self.not_asked += 1;
            return None;
        }
        let left = self.effort.left(payer).unwrap_or(patience.whole);
        let patience = Patience { whole: patience.whole.min(left), ..patience };
        let question = json!({ "what": what }).to_string();
        Some(self.effort.on(payer, || reached.query(&question, patience, each)).map(|()| whose))
    }

    /// All that one answers within this time, where those are few rows.
    ///
    /// # Errors
    /// Those of [`Look::ask`]; the rows are none, or too many.
    pub fn rows(
        &mut self,
        service: &Named,
        what: &str,
        longest: Duration,
    ) -> Option<Result<Vec<Object>, QueryError>> {
        let mut room = std::mem::take(&mut self.room);
        let (patience, mut is_asked) = (Patience { row: longest, whole: longest }, true);
        let rows = rows::kept(&mut room, &service.path, |each| {
            let answered = self.ask(service, what, patience, each);
            is_asked = answered.is_some();
            answered.map_or(Ok(()), |answered| answered.map(drop))
        });
        self.room = room;
        is_asked.then_some(rows)
    }

    /// What was left out, for people.
    pub fn notes(&self) -> Vec<String> {
        let names = (self.names_left_out > 0).then(|| {
            format!("services of other users are too many: {} names are left out", self.names_left_out)
        });
        let services = (self.not_asked > 0).then(|| {
            format!(
                "there is no time for {} services of other users: those of one user are given {} s, and of all of them {} s; \
                 to ask one alone: bypath netstack sockets --name NAME",
                self.not_asked,
                OF_USER / 1000,
                OF_USERS / 1000
            )
        });
        names.into_iter().chain(services).collect()
    }
}
