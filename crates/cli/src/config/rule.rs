//! One `[[rules]]` table.

use super::text::{Text, nearest, scalar};
use bypath_sockets::rules::{Action, Network, NetworkError, Pattern, Ports, Protocol, Rule};
use std::fmt::{Display, Write};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Its keys.
const KEYS: &[&str] =
    &["action", "name", "program", "user", "local", "local-port", "remote", "remote-port", "protocol"];

/// Reads a rule; `None` if it has no valid action. What else is wrong with it is noted.
pub fn parse(text: &Text, number: usize, at: &Range<usize>, table: &DeTable) -> Option<Rule> {
    let mut rule = Rule::new(u16::try_from(number).ok()?, Action::Ring);
    rule.line = text.line(at);
    let mut action = None;
    for (key, value) in table {
        let name: &str = key.get_ref();
        match name {
            "action" => {
                let named = value.get_ref().as_str().filter(|word| word.contains(':'));
                action = named
                    .and_then(Action::from_word)
                    .or_else(|| word(text, name, value, Action::WORDS).and_then(|w| Action::from_word(&w)));
            }
            "protocol" => {
                rule.protocol =
                    word(text, name, value, Protocol::WORDS).and_then(|w| Protocol::from_word(&w));
            }
            "name" => match value.get_ref() {
                DeValue::String(s) if s.chars().count() <= 100 && !s.contains(char::is_control) => {
                    rule.name = s.to_string();
                }
                DeValue::String(_) => {
                    let message = "a name has at most 100 characters, none of them for control".to_owned();
                    text.error(&value.span(), message, None);
                }
                other => text.wrong_type(&value.span(), name, "a string", other),
            },
            "program" => {
                rule.programs = list(text, name, value, "a string", |v| {
                    let DeValue::String(s) = v else { return Ok(None) };
                    Pattern::parse(s).map(Some).map_err(|e| (format!("expected {e}"), None))
                });
            }
            "user" => rule.users = list(text, name, value, "a string or a number", user),
            "local" => rule.local = list(text, name, value, "a string", network),
            "remote" => rule.remote = list(text, name, value, "a string", network),
            "local-port" => rule.local_ports = list(text, name, value, "a number or a string", ports),
            "remote-port" => rule.remote_ports = list(text, name, value, "a number or a string", ports),
            _ => {
                let meant = nearest(name, KEYS.iter().copied());
                let message =
                    if meant.is_none() && bypath_sockets::config::SETTINGS.iter().any(|s| s.flag == name) {
                        format!("'{name}' is a setting: it must stand under [settings]")
                    } else {
                        format!("unknown key '{name}' in a rule")
                    };
                text.error(&key.span(), message, meant);
            }
        }
    }
    if !table.contains_key("action") {
        text.error(
            at,
            format!("rule {number} has no action: expected action = \"ring\", \"kernel\" or \"netstack\""),
            None,
        );
    }
    rule.action = action?;
    Some(rule)
}

/// A string that must be one of `words`.
fn word(text: &Text, key: &str, value: &Spanned<DeValue>, words: &[&str]) -> Option<String> {
    match value.get_ref() {
        DeValue::String(s) if words.contains(&s.as_ref()) => return Some(s.to_string()),
        DeValue::String(s) => {
            let message = format!("invalid value '{s}' for {key}: expected {}", words.join(", "));
            text.error(&value.span(), message, nearest(s, words.iter().copied()));
        }
        other => text.wrong_type(&value.span(), key, "a string", other),
    }
    None
}

/// What is wrong with a value, and what was probably meant.
type Wrong = (String, Option<String>);

/// One value or an array of them. `read` answers nothing to a value of the wrong type.
fn list<T>(
    text: &Text,
    key: &str,
    value: &Spanned<DeValue>,
    kind: &str,
    read: impl Fn(&DeValue) -> Result<Option<T>, Wrong>,
) -> Vec<T> {
    let one = |v: &Spanned<DeValue>, expected: &str| match read(v.get_ref()) {
        Ok(Some(t)) => Some(t),
        Ok(None) => {
            text.wrong_type(&v.span(), key, expected, v.get_ref());
            None
        }
        Err((message, meant)) => {
            let shown = scalar(v.get_ref()).unwrap_or_default();
            text.error(&v.span(), format!("invalid value '{shown}' for {key}: {message}"), meant);
            None
        }
    };
    match value.get_ref() {
        DeValue::Array(array) if array.is_empty() => {
            // It could mean everything or nothing.
            text.error(&value.span(), format!("'{key}' is empty: leave it out to match everything"), None);
            Vec::new()
        }
        DeValue::Array(array) => array.iter().filter_map(|v| one(v, kind)).collect(),
        _ => one(value, &format!("{kind}, or an array")).into_iter().collect(),
    }
}

fn user(value: &DeValue) -> Result<Option<u32>, Wrong> {
    let Some(name) = scalar(value) else { return Ok(None) };
    if let Ok(uid) = name.parse::<u32>() {
        return Ok(Some(uid));
    }
    if !value.is_str() {
        return Err(("expected the name of a user, or a user id".to_owned(), None));
    }
    match nix::unistd::User::from_name(&name) {
        Ok(Some(user)) => Ok(Some(user.uid.as_raw())),
        Ok(None) => {
            let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
            let meant = nearest(&name, known.lines().filter_map(|l| l.split(':').next()));
            Err(("there is no such user here".to_owned(), meant))
        }
        Err(e) => Err((format!("users cannot be looked up ({e}); give the user id"), None)),
    }
}

fn network(value: &DeValue) -> Result<Option<Network>, Wrong> {
    let DeValue::String(s) = value else { return Ok(None) };
    s.parse().map(Some).map_err(|e| match e {
        NetworkError::Shape if s.as_ref() == "localhost" => {
            ("names are not looked up".to_owned(), Some("127.0.0.0/8".to_owned()))
        }
        NetworkError::Shape => {
            ("expected an address or network, such as 127.0.0.0/8 or ::1".to_owned(), None)
        }
        NetworkError::Prefix(most) => (format!("the prefix has at most {most} bits"), None),
        NetworkError::HostBits(meant) => {
            ("bits are set behind the prefix".to_owned(), Some(meant.to_string()))
        }
    })
}

fn ports(value: &DeValue) -> Result<Option<Ports>, Wrong> {
    let Some(s) = scalar(value) else { return Ok(None) };
    s.parse().map(Some).map_err(|e| (format!("expected {e}"), None))
}

/// A rule behind one that matches everything is never asked.
pub fn warn_about_unreachable(text: &Text, root: &DeTable, rules: &[Rule]) {
    let Some(all) = rules.iter().find(|r| conditions(r).is_empty()) else { return };
    let spans = root.get("rules").and_then(|v| v.get_ref().as_array());
    for rule in rules.iter().filter(|r| r.number > all.number) {
        if let Some(element) = spans.and_then(|a| a.get(usize::from(rule.number) - 1)) {
            let message = format!(
                "rule {} is never asked: rule {} on line {} matches everything",
                rule.number, all.number, all.line
            );
            text.warning(&element.span(), message);
        }
    }
}

/// The conditions of a rule, as in the file but on one line; empty if there are none.
pub fn conditions(rule: &Rule) -> String {
    let mut out = String::new();
    condition(&mut out, "protocol", rule.protocol.as_slice());
    condition(&mut out, "program", &rule.programs);
    condition(&mut out, "user", &rule.users);
    condition(&mut out, "local", &rule.local);
    condition(&mut out, "local-port", &rule.local_ports);
    condition(&mut out, "remote", &rule.remote);
    condition(&mut out, "remote-port", &rule.remote_ports);
    out
}

fn condition(out: &mut String, key: &str, values: &[impl Display]) {
    for (i, value) in values.iter().enumerate() {
        let before = match (i, out.is_empty()) {
            (0, true) => format!("{key}="),
            (0, false) => format!(" {key}="),
            _ => ",".to_owned(),
        };
        let _ = write!(out, "{before}{value}");
    }
}
