//! Rows that a service tells, within bounds: it may be anybody's, and says itself how many they are and what is in them.

use bypath_netstack::service::QueryError;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use std::path::Path;

/// A row.
pub type Object = Map<String, Value>;

/// What rows take beside their text (octets): each value, each list or object, and the blanks before a value when it is printed as JSON, for
/// each that it is in.
const VALUE: usize = 64;
const LIST: usize = 256;
const BLANKS: usize = 4;

/// Memory for rows.
#[derive(Debug, Default)]
pub struct Room {
    /// Octets.
    left: usize,
}

/// Why a row is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is none.
    Malformed,
    /// There is no room for more.
    Full,
}

impl Refused {
    /// The same, of the service at this path.
    pub fn of(self, path: &Path) -> QueryError {
        let path = path.to_owned();
        match self {
            Refused::Malformed => QueryError::Malformed { path },
            Refused::Full => QueryError::Endless { path },
        }
    }
}

impl Room {
    /// For lists that are short: of links, addresses, counters.
    pub const fn few() -> Room {
        Room { left: 16 << 20 }
    }

    /// For the list that a user asks for: more than 100000 sockets.
    pub const fn many() -> Room {
        Room { left: 256 << 20 }
    }

    /// Reads a row for which there is room.
    ///
    /// # Errors
    /// There is none, or it is no row.
    pub fn read(&mut self, text: &str) -> Result<Object, Refused> {
        let row: Value = serde_json::from_str(text).map_err(|_| Refused::Malformed)?;
        self.left = self.left.checked_sub(text.len() + cost(&row, 1)).ok_or(Refused::Full)?;
        match row {
            Value::Object(row) => Ok(row),
            _ => Err(Refused::Malformed),
        }
    }
}

fn cost(value: &Value, depth: usize) -> usize {
    let each = |value| cost(value, depth + 1);
    let in_it = match value {
        Value::Array(all) => LIST + all.iter().map(each).sum::<usize>(),
        Value::Object(all) => LIST + all.values().map(each).sum::<usize>(),
        _ => 0,
    };
    VALUE + BLANKS * depth + in_it
}

/// Keeps the rows that `query` hands to its argument, which says whether more are wanted.
///
/// # Errors
/// Those of `query`; rows that are none, or too many.
pub fn kept(
    room: &mut Room,
    path: &Path,
    query: impl FnOnce(&mut dyn FnMut(&str) -> bool) -> Result<(), QueryError>,
) -> Result<Vec<Object>, QueryError> {
    let (mut all, mut refused) = (Vec::new(), None);
    query(&mut |text| {
        match room.read(text) {
            Ok(row) => all.push(row),
            Err(why) => refused = Some(why),
        }
        refused.is_none()
    })?;
    refused.map_or(Ok(all), |why| Err(why.of(path)))
}

/// A row as it came, which takes a small part of what it does once it is read.
#[derive(Debug)]
pub struct Unread(Box<str>);

impl Unread {
    /// Of a text that [`Room::read`] has taken.
    pub fn new(text: &str) -> Unread {
        Unread(text.into())
    }

    /// What it says.
    pub fn object(&self) -> Object {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl Serialize for Unread {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.object().serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_cost_what_is_in_them_however_short_they_are() {
        let kept = |row: &str| {
            let mut room = Room::few();
            (0..).take_while(|_| room.read(row).is_ok()).count()
        };
        let most = 16 << 20;
        // What a map of one value takes.
        assert!(kept(r#"{"":0}"#) * 300 < most, "{}", kept(r#"{"":0}"#));
        let deep = format!("{{\"\":{}0{}}}", "[".repeat(100), "]".repeat(100));
        assert!(kept(&deep) * 100 * 300 < most, "{}", kept(&deep));
        let wide = format!("{{\"\":[0{}]}}", ",0".repeat(2000));
        assert!(kept(&wide) * 2000 * 64 < most, "{}", kept(&wide));
        assert_eq!(Room::few().read("[]"), Err(Refused::Malformed));
        assert_eq!(Room::few().read("{"), Err(Refused::Malformed));
    }

    #[test]
    fn a_list_of_very_many_sockets_is_kept_whole() {
        let socket = r#"{"backlog":0,"cookie":"0000000000012345","cwnd":14480,"domain":"ipv6","dropped":0,"from_program":"ring","local":"[fd00:9::2]:8080","mss":1460,"protocol":"tcp","remote":"[fd00:9::77]:40000","retransmitted":0,"srtt_us":100,"state":"Established","to_program":"ring","uid":1000,"unacknowledged":0,"unread":0,"unsent":0}"#;
        let mut room = Room::many();
        let (whole, one) = (room.left, {
            room.read(socket).expect("room");
            room.left
        });
        assert!(whole / (whole - one) >= 100_000, "{}", whole - one);
    }
}
