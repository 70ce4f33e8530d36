//! Conditions of a request (RFC 9110, 13): whether it is done at all, and whether a range of it is.

use super::Status;
use std::time::{Duration, SystemTime};

/// How long ago a file has to have changed for its tag to be of this content alone: the clock of a file system may stand still for some
/// milliseconds, and so may a tag while octets change.
const SETTLED: Duration = Duration::from_secs(1);

/// An entity tag (RFC 9110, 8.8.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    weak: bool,
    /// Without its quotation marks.
    value: Vec<u8>,
}

impl Tag {
    /// Of a file with this number and length that changed last at `changed`, seen `now`.
    pub fn of(number: u64, len: u64, changed: Duration, now: SystemTime) -> Tag {
        let settled = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .is_ok_and(|now| changed.saturating_add(SETTLED) <= now);
        Tag { weak: !settled, value: format!("{number:x}-{len:x}-{:x}", changed.as_nanos()).into_bytes() }
    }

    /// The one that octets begin with, and what follows it.
    fn parse(octets: &[u8]) -> Option<(Tag, &[u8])> {
        let (weak, rest) = match octets.strip_prefix(b"W/") {
            Some(rest) => (true, rest),
            None => (false, octets),
        };
        let rest = rest.strip_prefix(b"\"")?;
        let end = rest.iter().position(|c| *c == b'"')?;
        let value = rest[..end].to_vec();
        let good = value.iter().all(|c| matches!(c, 0x21 | 0x23..=0x7e | 0x80..));
        good.then_some((Tag { weak, value }, &rest[end + 1..]))
    }

    fn is_same(&self, other: &Tag, strongly: bool) -> bool {
        self.value == other.value && !(strongly && (self.weak || other.weak))
    }
}

impl std::fmt::Display for Tag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let weak = if self.weak { "W/" } else { "" };
        write!(f, "{weak}\"{}\"", String::from_utf8_lossy(&self.value))
    }
}

/// What is known of the content that would be sent. A list of a folder has neither.
#[derive(Clone, Debug, Default)]
pub struct Validators {
    pub tag: Option<Tag>,
    pub modified: Option<SystemTime>,
}

/// Tags that a field names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tags {
    /// `*`
    Any,
    These(Vec<Tag>),
}

impl Tags {
    /// What is no tag, and what follows it, names nothing.
    fn add(tags: &mut Option<Tags>, field: &[u8]) {
        let mut rest = field.trim_ascii();
        if rest == b"*" {
            *tags = Some(Tags::Any);
            return;
        }
        let Tags::These(these) = tags.get_or_insert(Tags::These(Vec::new())) else { return };
        loop {
            rest = rest.trim_ascii_start();
            if let Some(next) = rest.strip_prefix(b",") {
                rest = next;
                continue;
            }
            let Some((tag, next)) = Tag::parse(rest) else { return };
            these.push(tag);
            rest = next.trim_ascii_start();
            if !rest.is_empty() && rest[0] != b',' {
                return;
            }
        }
    }

    fn names(&self, own: Option<&Tag>, strongly: bool) -> bool {
        match self {
            Tags::Any => true,
            Tags::These(these) => own.is_some_and(|own| these.iter().any(|tag| tag.is_same(own, strongly))),
        }
    }
}

/// What If-Range asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Same {
    Tag(Tag),
    Date(SystemTime),
    /// It cannot be read: it is of nothing that is here.
    Nothing,
}

/// All conditions of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    matches: Option<Tags>,
    none_match: Option<Tags>,
    /// Dates that cannot be read are as if they were not there.
    modified_since: Option<SystemTime>,
    unmodified_since: Option<SystemTime>,
    same: Option<Same>,
}

fn date(field: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(std::str::from_utf8(field).ok()?.trim()).ok()
}

/// Dates have whole seconds.
fn is_later(modified: SystemTime, than: SystemTime) -> bool {
    than.checked_add(Duration::from_secs(1)).is_some_and(|than| modified >= than)
}

impl Conditions {
    /// A field of a request, if it is a condition.
    pub fn add(&mut self, name: &str, field: &[u8]) {
        let is = |condition: &str| name.eq_ignore_ascii_case(condition);
        if is("if-match") {
            Tags::add(&mut self.matches, field);
        } else if is("if-none-match") {
            Tags::add(&mut self.none_match, field);
        } else if is("if-modified-since") {
            self.modified_since = date(field);
        } else if is("if-unmodified-since") {
            self.unmodified_since = date(field);
        } else if is("if-range") {
            let tag = Tag::parse(field.trim_ascii()).filter(|(_, rest)| rest.is_empty());
            let same = match (tag, date(field), &self.same) {
                // Several are none.
                (_, _, Some(_)) => Same::Nothing,
                (Some((tag, _)), ..) => Same::Tag(tag),
                (None, Some(date), _) => Same::Date(date),
                (None, None, _) => Same::Nothing,
            };
            self.same = Some(same);
        }
    }

    /// What is answered in place of the content, in the order of RFC 9110, 13.2.2.
    pub fn refuse(&self, own: &Validators) -> Option<Status> {
        let tag = own.tag.as_ref();
        let fails = match (&self.matches, self.unmodified_since, own.modified) {
            // RFC 9110, 13.1.1: "An origin server MUST use the strong comparison function when comparing entity tags for If-Match".
            (Some(tags), ..) => !tags.names(tag, true),
            (None, Some(since), Some(modified)) => is_later(modified, since),
            _ => false,
        };
        if fails {
            return Some(Status::FAILED_CONDITION);
        }
        let known = match (&self.none_match, self.modified_since, own.modified) {
            (Some(tags), ..) => tags.names(tag, false),
            (None, Some(since), Some(modified)) => !is_later(modified, since),
            _ => false,
        };
        known.then_some(Status::UNCHANGED)
    }

    /// Whether a range, if one is asked for, is of the content that its asker has the rest of (RFC 9110, 13.1.5).
    pub fn takes_range(&self, own: &Validators, now: SystemTime) -> bool {
        match (&self.same, &own.tag, own.modified) {
            (None, ..) => true,
            (Some(Same::Tag(tag)), Some(own), _) => tag.is_same(own, true),
            // The very date, and its second is over: it says no less than a tag (RFC 9110, 8.8.2.2).
            (Some(Same::Date(date)), _, Some(modified)) => {
                *date <= modified && !is_later(modified, *date) && is_later(now, *date)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 784_111_777;
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn conditions(fields: &[(&str, &str)]) -> Conditions {
        let mut conditions = Conditions::default();
        fields.iter().for_each(|(name, field)| conditions.add(name, field.as_bytes()));
        conditions
    }

    /// Of a file that changed at [`NOW`] and a half; seen so many seconds later.
    fn own(later: u64) -> Validators {
        let changed = Duration::from_millis(NOW * 1000 + 500);
        Validators {
            tag: Some(Tag::of(10, 11, changed, at(NOW + later))),
            modified: Some(SystemTime::UNIX_EPOCH + changed),
        }
    }

    fn own_tag() -> String {
        own(9).tag.expect("a tag").to_string()
    }

    #[test]
    fn a_tag_is_weak_until_its_file_has_settled() {
        let tag = own_tag();
        assert!(tag.starts_with("\"a-b-") && tag.ends_with('"'), "{tag}");
        assert_eq!(own(1).tag.expect("a tag").to_string(), format!("W/{tag}"));
        let (parsed, rest) = Tag::parse(tag.as_bytes()).expect("a tag");
        assert_eq!((Some(parsed), rest), (own(9).tag, &b""[..]));
    }

    #[test]
    fn what_has_to_be_there_and_is_not_is_refused() {
        let tag = own_tag();
        let refused = Some(Status::FAILED_CONDITION);
        for (fields, expected) in [
            (&[("If-Match", "*")][..], None),
            (&[("if-match", &tag)], None),
            (&[("If-Match", &format!("\"x,y\" , W/\"z\",, {tag}"))], None),
            (&[("If-Match", "\"x\""), ("If-Match", &tag)], None),
            (&[("If-Match", "\"x\"")], refused),
            (&[("If-Match", &format!("W/{tag}"))], refused),
            (&[("If-Match", &tag.replace('"', ""))], refused),
            (&[("If-Match", &format!("x, {tag}"))], refused),
            (&[("If-Match", "")], refused),
            (&[("If-Unmodified-Since", DATE)], None),
            (&[("If-Unmodified-Since", LATER)], None),
            (&[("If-Unmodified-Since", EARLIER)], refused),
            (&[("If-Unmodified-Since", "yesterday")], None),
            // The tag is asked for alone.
            (&[("If-Unmodified-Since", EARLIER), ("If-Match", &tag)], None),
            (&[("If-Unmodified-Since", LATER), ("If-Match", "\"x\"")], refused),
            // And first.
            (&[("If-None-Match", "*"), ("If-Match", "\"x\"")], refused),
        ] {
            assert_eq!(conditions(fields).refuse(&own(9)), expected, "{fields:?}");
        }
        // Of what just changed there is no strong tag.
        assert_eq!(conditions(&[("If-Match", &tag)]).refuse(&own(1)), refused);
        // A list has neither tag nor date.
        let list = Validators::default();
        assert_eq!(conditions(&[("If-Match", "*")]).refuse(&list), None);
        assert_eq!(conditions(&[("If-Match", &tag)]).refuse(&list), refused);
        assert_eq!(conditions(&[("If-Unmodified-Since", EARLIER)]).refuse(&list), None);
    }

    #[test]
    fn what_is_known_is_not_sent() {
        let tag = own_tag();
        let known = Some(Status::UNCHANGED);
        for (fields, expected) in [
            (&[("If-None-Match", &*tag)][..], known),
            (&[("If-None-Match", &format!("\"x\", W/{tag}"))], known),
            (&[("If-None-Match", "*")], known),
            (&[("If-None-Match", "\"x\"")], None),
            (&[("If-Modified-Since", DATE)], known),
            (&[("If-Modified-Since", LATER)], known),
            (&[("If-Modified-Since", EARLIER)], None),
            (&[("If-Modified-Since", "tomorrow")], None),
            (&[("If-Modified-Since", DATE), ("If-None-Match", "\"x\"")], None),
            (&[("If-Modified-Since", EARLIER), ("If-None-Match", &tag)], known),
        ] {
            assert_eq!(conditions(fields).refuse(&own(9)), expected, "{fields:?}");
        }
        assert_eq!(conditions(&[("If-Modified-Since", DATE)]).refuse(&Validators::default()), None);
    }

    #[test]
    fn a_range_is_of_the_content_that_its_asker_has() {
        let tag = own_tag();
        for (fields, expected) in [
            (&[][..], true),
            (&[("If-Range", &*tag)], true),
            (&[("If-Range", DATE)], true),
            (&[("If-Range", "\"x\"")], false),
            (&[("If-Range", &format!("W/{tag}"))], false),
            (&[("If-Range", &format!("{tag}, \"x\""))], false),
            (&[("If-Range", LATER)], false),
            (&[("If-Range", EARLIER)], false),
            (&[("If-Range", "x")], false),
            (&[("If-Range", &tag), ("If-Range", &tag)], false),
        ] {
            assert_eq!(conditions(fields).takes_range(&own(9), at(NOW + 9)), expected, "{fields:?}");
            assert_eq!(conditions(fields).refuse(&own(9)), None, "{fields:?}");
        }
        // Within the second of the change there may be another one.
        let date = conditions(&[("If-Range", DATE)]);
        assert!(!date.takes_range(&own(9), at(NOW)));
        assert!(date.takes_range(&own(9), at(NOW + 1)));
        assert!(!conditions(&[("If-Range", &tag)]).takes_range(&own(1), at(NOW + 1)));
        assert!(!date.takes_range(&Validators::default(), at(NOW + 9)));
    }
}
