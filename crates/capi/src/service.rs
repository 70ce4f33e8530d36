//! Questions to a netstack service, the one that unmodified programs use.

use crate::boundary::{guarded, slice_mut, text, writable, write};
use crate::status::{
    BYPATH_E_BUSY, BYPATH_E_FORMAT, BYPATH_E_IN_USE, BYPATH_E_INVALID, BYPATH_E_NOT_ALLOWED,
    BYPATH_E_REFUSED, BYPATH_E_RESET, BYPATH_E_SYSTEM, BYPATH_E_TIMED_OUT, BYPATH_E_UNKNOWN, Failure,
    bypath_error, bypath_status, put_text,
};
use ::bypath_netstack::service::{Client, QueryError, query};
use std::ffi::{c_char, c_int};
use std::path::Path;

// asm-generic/errno-base.h, errno.h
const EPERM: c_int = 1;
const EIO: c_int = 5;
const EBUSY: c_int = 16;
const EEXIST: c_int = 17;
const ENODEV: c_int = 19;
const ECONNRESET: c_int = 104;
const ETIMEDOUT: c_int = 110;
const ECONNREFUSED: c_int = 111;

impl From<QueryError> for Failure {
    fn from(e: QueryError) -> Failure {
        let (status, system) = match e {
            QueryError::NotThere { .. } | QueryError::Nowhere { .. } => (BYPATH_E_REFUSED, ECONNREFUSED),
            QueryError::OfAnother { .. } => (BYPATH_E_NOT_ALLOWED, EPERM),
            QueryError::Closed { .. } => (BYPATH_E_RESET, ECONNRESET),
            QueryError::Silent { .. } => (BYPATH_E_TIMED_OUT, ETIMEDOUT),
            QueryError::Malformed { .. } | QueryError::Endless { .. } => (BYPATH_E_FORMAT, EIO),
            QueryError::Refused { errno, .. } => {
                let status = match errno {
                    EPERM => BYPATH_E_NOT_ALLOWED,
                    EEXIST => BYPATH_E_IN_USE,
                    ENODEV => BYPATH_E_UNKNOWN,
                    EBUSY => BYPATH_E_BUSY,
                    _ => BYPATH_E_INVALID,
                };
                (status, errno)
            }
            QueryError::Failed { errno, .. } => (BYPATH_E_SYSTEM, errno),
            _ => (BYPATH_E_SYSTEM, EIO),
        };
        Failure { status, system, text: e.to_string().into() }
    }
}

/// Asks a netstack service, and waits for its answer: at most ten seconds for each row of it.
///
/// `service`: its name, or the path of its socket, which has a slash; NULL: `default`. `question`: `service`, `sockets`, `stats`, `addresses`,
/// `routes`, `neighbors` or `links`; or an object of JSON that asks for a change or for echo requests, such as
/// `{"what":"change","change":"add-address","address":"10.9.0.3/24"}`. docs/netstack-service.md has all of them, and what the fields
/// of answers mean.
///
/// The answer is an array of JSON objects, with a zero behind it. Writes as much of it as `capacity` octets have room for, the zero included, and
/// into `length` how many octets it has without: if those are no fewer than `capacity`, it was cut. Of a change 256 octets are enough:
/// asked again, it is made again. With a capacity of 0 `answer` may be NULL.
///
/// Fails with `BYPATH_E_REFUSED` where no service answers, `BYPATH_E_RESET` where it does not know the question or does not admit this user,
/// `BYPATH_E_NOT_ALLOWED` for changes by others than root and the service's user, `BYPATH_E_IN_USE` for what is there already,
/// `BYPATH_E_UNKNOWN` for an interface that it does not have, `BYPATH_E_TIMED_OUT`, `BYPATH_E_BUSY`, `BYPATH_E_FORMAT`,
/// `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_service_ask(
    service: *const c_char,
    question: *const c_char,
    answer: *mut c_char,
    capacity: usize,
    length: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(length, "length")?;
        let place = slice_mut(answer, capacity, "answer")?;
        let service = if service.is_null() { "default" } else { text(service, "service")? };
        let client = match service.contains('/') {
            true => Client::at(Path::new(service)),
            false => Client::find(service)?,
        };
        let question = text(question, "question")?;
        let asked = match question.starts_with('{') {
            true => question.to_owned(),
            false if question.bytes().all(|b| b.is_ascii_lowercase()) => {
                format!("{{\"what\":\"{question}\"}}")
            }
            false => {
                return Err(Failure::invalid(format!(
                    "`{question}` is neither a word nor an object of JSON"
                )));
            }
        };
        let mut rows = Vec::new();
        query(client.path(), &asked, |row| rows.push(row.to_owned()))?;
        let all = format!("[{}]", rows.join(","));
        put_text(place, &all);
        write(length, "length", all.len())
    })
}
