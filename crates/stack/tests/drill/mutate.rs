//! Scripts with one thing broken: each has to be noticed.

use super::script::*;

/// What was broken, and the script.
pub fn broken(script: &Script) -> Vec<(String, Script)> {
    let mut all = Vec::new();
    for at in 0..script.lines.len() {
        let number = script.lines[at].number;
        let mut add = |what: &str, change: &dyn Fn(&mut Script)| {
            let mut other = script.clone();
            change(&mut other);
            all.push((format!("{what} in line {number}"), other));
        };
        match &script.lines[at].what {
            What::Segment(segment) if !segment.inbound => {
                // The first segment of a connection says where its numbers begin.
                if !segment.flags.contains('S') {
                    add("another sequence number", &|s| in_segment(s, at, |segment| segment.seq += 1));
                }
                if segment.ack.is_some() {
                    add("another acknowledgement", &|s| {
                        in_segment(s, at, |segment| segment.ack = segment.ack.map(|ack| ack + 1));
                    });
                }
                add("another flag", &|s| in_segment(s, at, |segment| segment.flags.push('U')));
                add("a segment that is not expected", &|s| skip(s, at));
                add("another time", &|s| later(&mut s.lines[at].when));
                if segment.options.as_ref().is_some_and(|options| !options.is_empty()) {
                    add("without options", &|s| {
                        in_segment(s, at, |segment| segment.options = Some(Vec::new()));
                    });
                }
                if segment.window.is_some() {
                    add("another window", &|s| {
                        in_segment(s, at, |segment| segment.window = segment.window.map(|w| w ^ 1));
                    });
                }
            }
            What::Call(call) if call.answer != Value::Dots => {
                add("another answer", &|s| {
                    if let What::Call(call) = &mut s.lines[at].what {
                        call.errno = Some("EXDEV".to_string());
                    }
                });
            }
            What::Check(check) => {
                for nth in 0..check.all.len() {
                    add("another value", &|s| {
                        if let What::Check(check) = &mut s.lines[at].what {
                            let (_, relation, _) = &mut check.all[nth];
                            *relation = opposite(*relation);
                        }
                    });
                }
            }
            _ => {}
        }
    }
    all
}

fn in_segment(script: &mut Script, at: usize, change: impl Fn(&mut Segment)) {
    if let What::Segment(segment) = &mut script.lines[at].what {
        change(segment);
    }
}

/// Leaves a line out; its time passes all the same.
fn skip(script: &mut Script, at: usize) {
    script.lines[at].what = What::Check(Check { fd: None, all: Vec::new() });
}

fn later(when: &mut When) {
    let much = 10_000_000;
    match when {
        When::At(at) | When::After(at) => *at += much,
        When::Between(from, to) | When::AfterBetween(from, to) => {
            let width = *to - *from + much;
            (*from, *to) = (*from + width, *to + width);
        }
        When::Any => *when = When::At(LATE),
    }
}

/// Later than any script.
const LATE: Nanos = 99_999 * 1_000_000_000;

const fn opposite(relation: Relation) -> Relation {
    match relation {
        Relation::Equal => Relation::Differs,
        Relation::Differs => Relation::Equal,
        Relation::Less => Relation::AtLeast,
        Relation::AtMost => Relation::More,
        Relation::More => Relation::AtMost,
        Relation::AtLeast => Relation::Less,
    }
}
