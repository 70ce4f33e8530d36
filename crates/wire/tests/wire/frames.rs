//! The frames of golden/frames.txt.

use std::collections::BTreeMap;

/// A frame, and what tshark reads in it: field names and values.
pub struct Golden {
    pub name: String,
    pub octets: Vec<u8>,
    pub fields: BTreeMap<String, String>,
}

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().map(|c| c.to_digit(16).expect("a digit") as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// All of them.
pub fn all() -> Vec<Golden> {
    let frames = listed(include_str!("golden/frames.txt"));
    assert!(frames.len() > 80, "{}", frames.len());
    frames
}

/// Those of a file.
pub fn listed(text: &str) -> Vec<Golden> {
    text.split("\n= ").skip(1).map(read).collect()
}

fn read(text: &str) -> Golden {
    let mut lines = text.lines();
    let mut line = || lines.next().expect("a line");
    let (name, octets) = (line().to_owned(), octets(line()));
    let field = |f: &str| {
        let (name, value) = f.split_once('=').expect("name and value");
        (name.to_owned(), value.to_owned())
    };
    Golden { name, octets, fields: line().split(' ').map(field).collect() }
}

/// The octets of one.
pub fn named(name: &str) -> Vec<u8> {
    let frame = all().into_iter().find(|f| f.name == name);
    frame.unwrap_or_else(|| panic!("there is no frame {name}")).octets
}
