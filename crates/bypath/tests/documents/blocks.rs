//! The blocks of code of a document: between fences, or indented by four spaces.

/// A block of code.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Number of its first line, from 1.
    pub line: usize,
    /// The heading that it stands under, without `#`.
    pub heading: String,
    /// The paragraph before it.
    pub lead: String,
    /// What stands behind its fence; empty without one.
    pub kind: String,
    /// Its lines, each with its end.
    pub text: String,
}

/// What a line stands in.
#[derive(PartialEq)]
enum Within {
    Text,
    /// Between fences like this one.
    Fences(String),
    Indented,
}

/// The three or more equal characters that open or close a block, and what follows.
fn fence(line: &str) -> Option<(String, &str)> {
    let line = line.trim();
    let mark = line.chars().next().filter(|c| ['`', '~'].contains(c))?;
    let rest = line.trim_start_matches(mark);
    let fence = &line[..line.len() - rest.len()];
    (fence.len() >= 3 && !rest.contains('`')).then(|| (fence.to_owned(), rest.trim()))
}

/// All blocks of a document, in order.
pub fn blocks(document: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut heading, mut lead) = (String::new(), String::new());
    let mut within = Within::Text;
    // A paragraph, and with it what stands before a block, ends with an empty line.
    let mut empty = true;
    for (line, number) in document.lines().zip(1..) {
        let begin = |kind: &str, line: usize| Block {
            line,
            heading: heading.clone(),
            lead: lead.clone(),
            kind: kind.to_owned(),
            text: String::new(),
        };
        match &within {
            Within::Fences(opened) => {
                match fence(line) {
                    Some((closes, "")) if closes.starts_with(opened) => within = Within::Text,
                    _ => blocks.last_mut().expect("it was opened").text += &format!("{line}\n"),
                }
                continue;
            }
            Within::Indented if line.is_empty() => {
                blocks.last_mut().expect("it was begun").text.push('\n');
                continue;
            }
            _ => {}
        }
        if let Some((opens, kind)) = fence(line) {
            blocks.push(begin(kind, number + 1));
            within = Within::Fences(opens);
        } else if let Some(code) = line.strip_prefix("    ").filter(|_| empty || within == Within::Indented) {
            if within != Within::Indented {
                blocks.push(begin("", number));
            }
            within = Within::Indented;
            blocks.last_mut().expect("it was begun").text += &format!("{code}\n");
        } else {
            within = Within::Text;
            if let Some(title) = line.strip_prefix('#') {
                title.trim_start_matches('#').trim().clone_into(&mut heading);
                lead.clear();
            } else if !line.is_empty() {
                if empty {
                    lead.clear();
                }
                lead += &format!("{line}\n");
            }
            empty = line.is_empty();
            continue;
        }
        empty = true;
    }
    assert!(!matches!(within, Within::Fences(_)), "a fence that is not closed");
    for block in &mut blocks {
        if block.kind.is_empty() {
            block.text.truncate(block.text.trim_end().len() + 1);
        }
    }
    blocks
}

#[test]
fn blocks_are_found_as_meant() {
    let document = "# a\n\n    no\n\n### b\n\nlong\ntext\n\n    one\n\n      two\n\ntext:\n\n    three\n## c\n\
                    text\n    of one paragraph\n\nnext:\n```rust\n#![x]\n\n    fn\n~~~\n```\n- point\n\n  ~~~~ sh -x\n```\n~~~~\n";
    let found = blocks(document);
    let seen: Vec<_> = found.iter().map(|b| (b.line, &*b.heading, &*b.lead, &*b.kind, &*b.text)).collect();
    let expected = [
        (3, "a", "", "", "no\n"),
        (10, "b", "long\ntext\n", "", "one\n\n  two\n"),
        (16, "b", "text:\n", "", "three\n"),
        (23, "c", "next:\n", "rust", "#![x]\n\n    fn\n~~~\n"),
        (31, "c", "- point\n", "sh -x", "```\n"),
    ];
    assert_eq!(seen, expected);
}
