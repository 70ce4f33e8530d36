//! The checked form of a configuration file, as one line in the environment variable [`VARIABLE`].
//!
//! Items are separated by `;`, words of an item by blanks, elements of a list by `,`; anything that could be taken
//! for these, and anything that is not plain ASCII, is written as `%` and two digits. `bypath run` and `bypath config
//! export` write it; the library and `bypath why` read it. It stands on the far side of an exec that anybody could
//! have prepared, so everything is checked again.

use super::{Action, Network, Pattern, Ports, Protocol, Rule};
use crate::config::{Config, SETTINGS};
use std::fmt::{Display, Write};

/// The environment variable.
pub const VARIABLE: &str = "BYPATH_RULES";
/// First item: the version of this form.
const VERSION: &str = "1";
/// Longest text in bytes: the kernel takes 128 KiB for one variable.
pub const LONGEST: usize = 64 * 1024;

/// What the text says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Path of the configuration file, may be empty.
    pub file: String,
    /// Settings by name and value: those of the file that no flag and no variable replaced.
    pub settings: Vec<(String, String)>,
    /// The rules in order.
    pub rules: Vec<Rule>,
}

/// A text that cannot be read: the item that was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError(pub String);

impl Document {
    /// Writes the text.
    pub fn encode(&self) -> String {
        let mut out = VERSION.to_owned();
        if !self.file.is_empty() {
            out += ";file ";
            escape(&mut out, &self.file);
        }
        for (flag, value) in &self.settings {
            let _ = write!(out, ";set {flag}=");
            escape(&mut out, value);
        }
        for rule in &self.rules {
            let _ = write!(out, ";rule {} {}", rule.number, rule.action);
            if rule.line != 0 {
                let _ = write!(out, " line={}", rule.line);
            }
            if !rule.name.is_empty() {
                list(&mut out, "name", &[&rule.name]);
            }
            list(&mut out, "protocol", rule.protocol.as_slice());
            list(&mut out, "program", &rule.programs);
            list(&mut out, "user", &rule.users);
            list(&mut out, "local", &rule.local);
            list(&mut out, "local-port", &rule.local_ports);
            list(&mut out, "remote", &rule.remote);
            list(&mut out, "remote-port", &rule.remote_ports);
        }
        out
    }

    /// Reads the text.
    ///
    /// # Errors
    /// Anything that [`Document::encode`] does not write.
    pub fn decode(text: &str) -> Result<Document, TextError> {
        let mut items = text.split(';');
        let version = items.next().unwrap_or_default();
        if version != VERSION || text.len() > LONGEST {
            return Err(TextError(version.chars().take(40).collect()));
        }
        let mut document = Document::default();
        for item in items {
            document.take(item).ok_or_else(|| TextError(item.chars().take(200).collect()))?;
        }
        Ok(document)
    }

    fn take(&mut self, item: &str) -> Option<()> {
        let mut words = item.split(' ');
        match words.next()? {
            "file" => self.file = unescape(words.next()?)?,
            "set" => {
                let (flag, value) = words.next()?.split_once('=')?;
                self.settings.push((flag.to_owned(), unescape(value)?));
            }
            "rule" => {
                let number = words.next()?.parse().ok().filter(|n| *n > 0)?;
                let mut rule = Rule::new(number, Action::from_word(words.next()?)?);
                for word in words.by_ref() {
                    let (key, values) = word.split_once('=')?;
                    let values: Vec<String> = values.split(',').map(unescape).collect::<Option<_>>()?;
                    match key {
                        "line" => rule.line = values.first()?.parse().ok()?,
                        "name" => rule.name = values.into_iter().next()?,
                        "protocol" => rule.protocol = Some(Protocol::from_word(values.first()?)?),
                        "program" => rule.programs = each(&values, |v| Pattern::parse(v).ok())?,
                        "user" => rule.users = each(&values, |v| v.parse().ok())?,
                        "local" => rule.local = each(&values, |v| v.parse::<Network>().ok())?,
                        "local-port" => rule.local_ports = each(&values, |v| v.parse::<Ports>().ok())?,
                        "remote" => rule.remote = each(&values, |v| v.parse::<Network>().ok())?,
                        "remote-port" => rule.remote_ports = each(&values, |v| v.parse::<Ports>().ok())?,
                        _ => return None,
                    }
                }
                self.rules.push(rule);
            }
            _ => return None,
        }
        words.next().is_none().then_some(())
    }

    /// Applies the settings to `config`.
    ///
    /// # Errors
    /// A setting that is unknown or does not accept its value.
    pub fn configure(&self, config: &mut Config) -> Result<(), TextError> {
        // In the order of the table: a profile sets what later ones may set again.
        for setting in SETTINGS {
            for (flag, value) in self.settings.iter().filter(|(flag, _)| flag == setting.flag) {
                config.set(flag, value).map_err(|_| TextError(format!("set {flag}={value}")))?;
            }
        }
        match self.settings.iter().find(|(flag, _)| SETTINGS.iter().all(|s| s.flag != flag)) {
            Some((flag, _)) => Err(TextError(format!("set {flag}"))),
            None => Ok(()),
        }
    }
}

fn each<T>(values: &[String], parse: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    values.iter().map(|v| parse(v)).collect()
}

fn list(out: &mut String, key: &str, values: &[impl Display]) {
    for (i, value) in values.iter().enumerate() {
        let _ = if i == 0 { write!(out, " {key}=") } else { write!(out, ",") };
        escape(out, &value.to_string());
    }
}

fn escape(out: &mut String, text: &str) {
    for &b in text.as_bytes() {
        if b.is_ascii_alphanumeric() || b"-_./:*?[]!+@".contains(&b) {
            out.push(b.into());
        } else {
            let _ = write!(out, "%{b:02x}");
        }
    }
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(b) = rest.next() {
        bytes.push(match b {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            b => b,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Profile;

    fn sample() -> Document {
        let mut full = Rule::new(2, Action::Kernel);
        full.name = "data; bases, 100 % = é".into();
        full.line = 14;
        full.protocol = Some(Protocol::Udp);
        full.programs = vec![Pattern::parse("redis-*").unwrap(), Pattern::parse("/opt/a b/[x,y]").unwrap()];
        full.users = vec![0, 1000];
        full.local = vec!["127.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()];
        full.local_ports = vec!["80".parse().unwrap(), "8000-8999".parse().unwrap()];
        full.remote = vec!["fd00::/8".parse().unwrap()];
        full.remote_ports = vec!["1-65535".parse().unwrap()];
        Document {
            file: "/etc/by path;x".into(),
            settings: vec![("spin-budget".into(), "10us".into()), ("profile".into(), "latency".into())],
            rules: vec![
                Rule::new(1, Action::Ring),
                full,
                Rule::new(3, Action::from_word("netstack").unwrap()),
                Rule::new(4, Action::from_word("netstack:lab-1").unwrap()),
            ],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for document in [Document::default(), sample()] {
            let text = document.encode();
            assert!(text.bytes().all(|b| b == b' ' || b.is_ascii_graphic()), "{text}");
            assert_eq!(Document::decode(&text).unwrap(), document, "{text}");
        }
    }

    #[test]
    fn a_profile_is_applied_before_what_it_sets() {
        let mut config = Config::default();
        sample().configure(&mut config).unwrap();
        assert_eq!((config.profile, config.spin_budget_ns), (Profile::Latency, 10_000));
    }

    #[test]
    fn nonsense_is_an_error_that_names_the_item() {
        for bad in [
            "",
            "2",
            "1;",
            "1;x",
            "1;rule",
            "1;rule 0 ring",
            "1;rule 1 netstacks",
            "1;rule 1 netstack:",
            "1;rule 1 ring x=1",
            "1;rule 1 ring local=x",
            "1;rule 1 ring protocol=icmp",
            "1;rule 1 ring program=",
            "1;rule 70000 ring",
            "1;set x",
            "1;file a b",
            "1;rule 1 ring name=%zz",
            "1;rule 1 ring name=%ff",
            "1;rule 1 ring name=%",
            "1;rule 1 ring  ",
        ] {
            assert!(Document::decode(bad).is_err(), "{bad:?}");
        }
        let error = Document::decode("1;rule 1 ring;rule 2 ring remote=1.2.3.4/99").unwrap_err();
        assert_eq!(error, TextError("rule 2 ring remote=1.2.3.4/99".into()));
        assert!(Document::decode(&format!("1;file {}", "x".repeat(LONGEST))).is_err());
        for (flag, value) in [("ring-size", "3"), ("no-such", "1")] {
            let document = Document { settings: vec![(flag.into(), value.into())], ..Document::default() };
            assert!(document.configure(&mut Config::default()).is_err());
        }
    }
}
