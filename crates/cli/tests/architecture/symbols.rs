//! What the preload library exports is its table, and nothing of it is in the command.

use crate::common::{BYPATH, preload_library, workspace};
use object::read::elf::{ElfFile64, FileHeader, Sym};
use object::{Endianness, elf};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

type Names = BTreeSet<String>;

/// The string literals of `pub const SYMBOLS: &[&str] = [ ... ];`.
fn table(source: &str) -> Names {
    let from = source.find("pub const SYMBOLS").expect("the table `pub const SYMBOLS`");
    let list = &source[from..];
    let list = &list[..list.find("];").expect("the end of the table")];
    // Outside of comments every second piece between quotes is a name.
    let names: Vec<_> = list
        .lines()
        .map(|l| l.split("//").next().unwrap_or(""))
        .flat_map(|l| l.split('"').skip(1).step_by(2))
        .collect();
    let set: Names = names.iter().map(|n| (*n).to_owned()).collect();
    assert_eq!(set.len(), names.len(), "a name stands twice in the table");
    set
}

/// Names that an ELF file defines for others: of its dynamic symbols, or of all its global ones.
fn defined(path: &Path, dynamic_only: bool) -> Names {
    let data = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file = ElfFile64::<Endianness>::parse(&*data).expect("an ELF file");
    let mut names = Names::new();
    let tables = [Some(file.elf_dynamic_symbol_table()), (!dynamic_only).then(|| file.elf_symbol_table())];
    for table in tables.into_iter().flatten() {
        for symbol in table.iter() {
            let name = symbol.name(file.endian(), table.strings()).expect("a name");
            let visible = matches!(symbol.st_visibility(), elf::STV_DEFAULT | elf::STV_PROTECTED);
            if symbol.st_bind() != elf::STB_LOCAL && visible && !symbol.is_undefined(file.endian()) {
                names.insert(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    // The file was what it was taken for.
    assert!(file.elf_header().e_type(file.endian()) == elf::ET_DYN);
    names
}

/// Symbols that are on one side only.
fn differences(table: &Names, exported: &Names) -> Vec<String> {
    let missing = table.difference(exported).map(|n| format!("{n}: in the table, not exported"));
    let surplus = exported.difference(table).map(|n| format!("{n}: exported, not in the table"));
    missing.chain(surplus).collect()
}

fn symbols_of_the_table() -> Names {
    let path = workspace().join("crates/preload/src/symbols.rs");
    table(&fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

#[test]
fn the_library_exports_its_table() {
    let table = symbols_of_the_table();
    assert!(table.contains("send") && table.contains("epoll_wait"), "{table:?}");
    assert_eq!(differences(&table, &defined(preload_library(), true)), Vec::<String>::new());
}

#[test]
fn the_command_defines_none_of_them() {
    let defined = defined(Path::new(BYPATH), false);
    // Proof that the symbols were read: a test build is not stripped.
    assert!(defined.contains("main"), "no symbols in {BYPATH}");
    let leaked: Vec<_> = symbols_of_the_table().intersection(&defined).cloned().collect();
    assert_eq!(leaked, Vec::<String>::new());
}

#[test]
fn exported_symbols_can_be_seen() {
    // The C library that this test is linked with exports what the preload library interposes.
    let maps = fs::read_to_string("/proc/self/maps").expect("maps");
    let libc = maps
        .lines()
        .find_map(|l| l.split_whitespace().last().filter(|p| p.contains("libc.so")))
        .expect("libc");
    let names = defined(Path::new(libc), true);
    assert!(names.contains("send") && names.contains("epoll_wait") && !names.contains("no_such_function"));
}

#[test]
fn differences_are_found_both_ways() {
    let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<Names>();
    assert_eq!(
        differences(&names(&["send", "recv"]), &names(&["recv", "listen"])),
        ["send: in the table, not exported", "listen: exported, not in the table"]
    );
}

#[test]
fn the_table_is_read_from_its_source() {
    let source = "/// \"no\"\npub const SYMBOLS: &[&str] = &[\n  \"send\", // \"not this\"\n  \"recv\",\"poll\",\n];\nx(\"y\")";
    assert_eq!(table(source).into_iter().collect::<Vec<_>>(), ["poll", "recv", "send"]);
}

#[test]
#[should_panic(expected = "stands twice")]
fn a_name_that_stands_twice_is_found() {
    table("pub const SYMBOLS: &[&str] = &[\"send\", \"send\"];");
}
