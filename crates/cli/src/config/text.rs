//! The file's text: where things stand, what is wrong there.

use std::cell::RefCell;
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1; 0 = the file as a whole.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What is wrong.
    pub message: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
    /// It is no error, but probably not what was meant.
    pub warning: bool,
}

/// The problems of a file, one line each.
pub fn report(path: &Path, problems: &[Problem]) -> String {
    let mut out = String::new();
    for p in problems {
        let _ = write!(out, "{}:", path.display());
        if p.line > 0 {
            let _ = write!(out, "{}:{}:", p.line, p.column);
        }
        let _ = write!(out, " {}{}", if p.warning { "warning: " } else { "" }, p.message);
        if let Some(suggestion) = &p.suggestion {
            let _ = write!(out, " (did you mean '{suggestion}'?)");
        }
        out.push('\n');
    }
    out
}

/// The text and the problems found in it so far.
pub struct Text<'a> {
    text: &'a str,
    problems: RefCell<Vec<Problem>>,
}

impl<'a> Text<'a> {
    pub fn new(text: &'a str) -> Text<'a> {
        Text { text, problems: RefCell::default() }
    }

    /// Line and column of a byte of the text.
    pub fn position(&self, at: usize) -> (u32, u32) {
        let before = self.text.get(..at.min(self.text.len())).unwrap_or(self.text);
        let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        (line as u32, column as u32)
    }

    /// The line on which a piece of the text begins.
    pub fn line(&self, span: &Range<usize>) -> u32 {
        self.position(span.start).0
    }

    /// Notes an error.
    pub fn error(&self, span: &Range<usize>, message: String, suggestion: Option<String>) {
        self.note(span, message, suggestion, false);
    }

    /// Notes something that is allowed and odd.
    pub fn warning(&self, span: &Range<usize>, message: String) {
        self.note(span, message, None, true);
    }

    fn note(&self, span: &Range<usize>, message: String, suggestion: Option<String>, warning: bool) {
        let (line, column) = self.position(span.start);
        self.problems.borrow_mut().push(Problem { line, column, message, suggestion, warning });
    }

    /// Notes a value of the wrong type.
    pub fn wrong_type(&self, span: &Range<usize>, key: &str, expected: &str, found: &DeValue) {
        let article = if matches!(found, DeValue::Integer(_) | DeValue::Array(_)) { "an" } else { "a" };
        let message =
            format!("wrong type for '{key}': expected {expected}, found {article} {}", found.type_str());
        self.error(span, message, None);
    }

    /// Notes the errors of the parser, and forgets what else was found on their lines: what the parser made of such
    /// a line is its guess.
    pub fn syntax(&self, errors: &[toml::de::Error]) {
        let mut problems = self.problems.borrow_mut();
        let lines: Vec<u32> = errors.iter().filter_map(|e| e.span()).map(|s| self.line(&s)).collect();
        problems.retain(|p| !lines.contains(&p.line));
        for e in errors {
            let (line, column) = e.span().map_or((0, 0), |s| self.position(s.start));
            let unquoted = line.checked_sub(1).and_then(|n| unquoted(self.text.lines().nth(n as usize)?));
            let message = match unquoted {
                Some(_) if problems.iter().any(|p| p.line == line) => continue,
                Some(right) => right,
                None => e.message().replace('\n', ", "),
            };
            problems.push(Problem { line, column, message, suggestion: None, warning: false });
        }
    }

    /// Everything found, in the order of the file.
    pub fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|p| (p.line, p.column));
        problems.dedup();
        problems
    }
}

/// What is right for a line whose value is text without quotes; `None`: it is none, or something else is wrong with it.
fn unquoted(line: &str) -> Option<String> {
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim(), value.split(" #").next()?.trim());
    let is_read = |value: &str| DeTable::parse(&format!("x = {value}")).is_ok();
    if is_read(value) {
        return None;
    }
    // Who writes these may mean a switch.
    for (is, words) in [("true", ["yes", "on", "true"]), ("false", ["no", "off", "false"])] {
        if words.iter().any(|word| word.eq_ignore_ascii_case(value)) {
            return Some(format!(
                "a switch is true or false, and text must be quoted: {key} = {is}, or {key} = \"{value}\""
            ));
        }
    }
    let quote = |value: &str| {
        let plain = !value.is_empty() && !value.contains(['"', '\'', '\\', '[', ']', '{', '}']);
        plain.then(|| format!("\"{value}\""))
    };
    let fixed = match value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        None => quote(value)?,
        Some(list) => {
            let all = list.split(',').map(str::trim).filter(|one| !one.is_empty());
            let all = all.map(|one| if is_read(one) { Some(one.to_owned()) } else { quote(one) });
            format!("[{}]", all.collect::<Option<Vec<_>>>()?.join(", "))
        }
    };
    is_read(&fixed).then(|| format!("text must be quoted: {key} = {fixed}"))
}

/// A string or integer as text; integers in decimal.
pub fn scalar(value: &DeValue) -> Option<String> {
    match value {
        DeValue::String(s) => Some(s.to_string()),
        DeValue::Integer(i) => i64::from_str_radix(i.as_str(), i.radix()).ok().map(|n| n.to_string()),
        _ => None,
    }
}

/// The nearest of the candidates, if one is near.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    bypath_sockets::config::closest(word, candidates).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_quotes_is_shown_with_them() {
        for (line, quoted) in [
            ("link = tap:bp0", Some("text must be quoted: link = \"tap:bp0\"")),
            (
                "  addr = [10.9.0.2/24, \"fd09::2/64\"] # two",
                Some("text must be quoted: addr = [\"10.9.0.2/24\", \"fd09::2/64\"]"),
            ),
            ("net = 10.9.0.1/24 # the kernel's", Some("text must be quoted: net = \"10.9.0.1/24\"")),
            ("mtu = 9000", None),
            (
                "attach = Yes",
                Some(
                    "a switch is true or false, and text must be quoted: attach = true, or attach = \"Yes\"",
                ),
            ),
            ("attach = true", None),
            ("name = \"lab", None),
            ("name =", None),
            ("[limits]", None),
        ] {
            assert_eq!(unquoted(line).as_deref(), quoted, "{line}");
        }
    }
}
