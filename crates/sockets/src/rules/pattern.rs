//! Names of programs and the patterns that match them.

use std::fmt;

/// A shell pattern. Without a `/` it is compared with the last part of a path, else with the whole path.
///
/// `*` stands for any characters but `/`, `**` for any at all, `?` for one but `/`, `[a-z]` and `[!a-z]` for one of
/// a set (never `/`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    One(char),
    AnyOne,
    OneOf { ranges: Vec<(char, char)>, negated: bool },
    Many,
    ManyAndSlashes,
}

/// Longest pattern, in characters.
pub const LONGEST: usize = 256;

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// What is wrong with it, as the end of the sentence "expected ...".
    pub fn parse(text: &str) -> Result<Pattern, &'static str> {
        if text.is_empty() {
            return Err("the name of a program, a path, or a pattern");
        }
        if text.chars().count() > LONGEST {
            return Err("at most 256 characters");
        }
        if text.contains('/') && !text.starts_with('/') && !text.starts_with("**/") {
            return Err("a name without '/', or a path that begins with '/' or '**/'");
        }
        if text.ends_with('/') {
            return Err("a program, not a directory ('/*' stands for every program in it)");
        }
        let mut parts = Vec::new();
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            parts.push(match c {
                '*' if rest.peek() == Some(&'*') => {
                    rest.next();
                    Part::ManyAndSlashes
                }
                '*' => Part::Many,
                '?' => Part::AnyOne,
                '[' => set(&mut rest)?,
                c => Part::One(c),
            });
        }
        Ok(Pattern { text: text.to_owned(), parts })
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the program at `path` is meant.
    pub fn matches(&self, path: &str) -> bool {
        let name = if self.text.contains('/') { path } else { path.rsplit('/').next().unwrap_or(path) };
        // Whether the parts before `i` match all that was read so far, for each i.
        let mut reached = vec![false; self.parts.len() + 1];
        reached[0] = true;
        self.skip_empty(&mut reached);
        for c in name.chars() {
            let mut next = vec![false; reached.len()];
            for (i, part) in self.parts.iter().enumerate().filter(|(i, _)| reached[*i]) {
                if part.takes(c) {
                    next[if part.repeats() { i } else { i + 1 }] = true;
                }
            }
            self.skip_empty(&mut next);
            reached = next;
        }
        reached[self.parts.len()]
    }

    /// A part that stands for any number of characters may stand for none.
    fn skip_empty(&self, reached: &mut [bool]) {
        for (i, part) in self.parts.iter().enumerate() {
            if reached[i] && part.repeats() {
                reached[i + 1] = true;
            }
        }
    }
}

/// What follows `[`.
fn set(rest: &mut std::iter::Peekable<std::str::Chars>) -> Result<Part, &'static str> {
    const UNCLOSED: &str = "a ']' after '['";
    let negated = rest.next_if(|c| *c == '!').is_some();
    let mut ranges = Vec::new();
    loop {
        match rest.next().ok_or(UNCLOSED)? {
            ']' if !ranges.is_empty() => return Ok(Part::OneOf { ranges, negated }),
            first => {
                let mut ahead = rest.clone();
                if ahead.next() == Some('-') && ahead.next().is_some_and(|c| c != ']') {
                    rest.next();
                    let last = rest.next().ok_or(UNCLOSED)?;
                    if last < first {
                        return Err("a range such as [a-z], the lower character first");
                    }
                    ranges.push((first, last));
                } else {
                    ranges.push((first, first));
                }
            }
        }
    }
}

impl Part {
    fn repeats(&self) -> bool {
        matches!(self, Part::Many | Part::ManyAndSlashes)
    }

    fn takes(&self, c: char) -> bool {
        match self {
            Part::One(own) => *own == c,
            Part::AnyOne | Part::Many => c != '/',
            Part::ManyAndSlashes => true,
            Part::OneOf { ranges, negated } => {
                c != '/' && ranges.iter().any(|(a, b)| (*a..=*b).contains(&c)) != *negated
            }
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What a process is called: the file that it executes (the interpreter, for a script), and the path by which it was
/// started (the script; a link such as those of busybox).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramNames {
    /// Path of the executed file.
    pub file: String,
    /// Path as given to execve; empty if not known.
    pub invoked: String,
}

impl ProgramNames {
    /// Whether one of the names matches.
    pub fn fit(&self, pattern: &Pattern) -> bool {
        [&self.file, &self.invoked].iter().any(|name| !name.is_empty() && pattern.matches(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, path: &str) -> bool {
        Pattern::parse(pattern).unwrap().matches(path)
    }

    #[test]
    fn names_are_compared_with_the_last_part() {
        assert!(fits("redis-server", "/usr/bin/redis-server"));
        assert!(fits("redis-server", "redis-server") && fits("redis-*", "./redis-cli"));
        assert!(!fits("redis", "/usr/bin/redis-server") && !fits("redis-server", "/redis-server/x"));
        assert!(fits("*", "/bin/x") && fits("python3*", "/usr/bin/python3.11"));
    }

    #[test]
    fn paths_are_compared_as_a_whole() {
        assert!(fits("/usr/bin/redis-server", "/usr/bin/redis-server"));
        assert!(fits("/usr/*/nginx", "/usr/sbin/nginx") && !fits("/usr/*/nginx", "/usr/local/sbin/nginx"));
        assert!(fits("/usr/**/nginx", "/usr/local/sbin/nginx") && fits("**/nginx", "/usr/sbin/nginx"));
        assert!(fits("/opt/**", "/opt/a/b") && !fits("/opt/*", "/opt/a/b"));
        assert!(!fits("/usr/bin/x", "x"));
    }

    #[test]
    fn one_character_and_sets() {
        assert!(fits("nod?", "node") && !fits("nod?", "nod") && !fits("nod?", "nodes"));
        assert!(fits("p[0-9]", "p7") && !fits("p[0-9]", "px") && fits("p[!0-9]", "px"));
        assert!(fits("[]a]x", "]x") && fits("[a-]x", "-x") && fits("[*]", "*") && !fits("[*]", "a"));
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = "*a".repeat(100);
        assert!(!fits(&pattern, &"a".repeat(4000).replace("aaaa", "aaab")));
    }

    #[test]
    fn bad_patterns_say_what_is_expected() {
        for bad in ["", "[", "a[b", "[z-a]", "bin/x", "/usr/bin/", &"x".repeat(257)] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn either_name_of_a_process_counts() {
        let names = ProgramNames { file: "/usr/bin/busybox".into(), invoked: "/usr/bin/nc".into() };
        assert!(names.fit(&Pattern::parse("nc").unwrap()) && names.fit(&Pattern::parse("busybox").unwrap()));
        assert!(!names.fit(&Pattern::parse("wget").unwrap()));
        assert!(!ProgramNames::default().fit(&Pattern::parse("*").unwrap()));
    }
}
