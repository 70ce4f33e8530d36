//! What the libraries export is what the header declares.

use crate::common::{crate_root, libraries, pass};
use object::read::elf::{ElfFile64, FileHeader, Sym};
use object::{Endianness, elf};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

type Names = BTreeSet<String>;

/// Names of the functions that a header declares.
fn declared(header: &str) -> Names {
    let code = header.lines().filter(|l| !l.trim_start().starts_with("//"));
    let text: String = code.collect::<Vec<_>>().join("\n");
    let mut names = Names::new();
    for (at, _) in text.match_indices('(') {
        let word = text[..at].rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or("");
        if word.starts_with("bypath_") {
            names.insert(word.to_owned());
        }
    }
    names
}

fn of_header() -> Names {
    let names = declared(&fs::read_to_string(crate_root().join("include/bypath.h")).expect("bypath.h"));
    assert!(names.contains("bypath_l2_open") && names.contains("bypath_version"), "{names:?}");
    names
}

#[test]
fn the_shared_library_exports_the_header_and_nothing_else() {
    let data = fs::read(libraries().join("libbypath.so")).expect("the library");
    let file = ElfFile64::<Endianness>::parse(&*data).expect("an ELF file");
    assert!(file.elf_header().e_type(file.endian()) == elf::ET_DYN);
    let table = file.elf_dynamic_symbol_table();
    let mut exported = Names::new();
    for symbol in table.iter() {
        if symbol.st_bind() != elf::STB_LOCAL && !symbol.is_undefined(file.endian()) {
            let name = symbol.name(file.endian(), table.strings()).expect("a name");
            exported.insert(String::from_utf8_lossy(name).into_owned());
        }
    }
    assert_eq!(exported, of_header());
}

#[test]
fn the_archive_has_them_and_no_other_name_that_a_program_might_use() {
    let text = pass(
        Command::new("nm")
            .args(["--defined-only", "--extern-only", "--format=posix"])
            .arg(libraries().join("libbypath.a")),
    );
    let names: Names = text
        .lines()
        // What nm says of the compiler's own format in there.
        .filter(|l| !l.starts_with("bfd plugin: "))
        .filter_map(|l| l.split_once(' '))
        .map(|(n, _)| n.to_owned())
        .collect();
    let ours: Names = names.iter().filter(|n| n.starts_with("bypath_")).cloned().collect();
    assert_eq!(ours, of_header());
    // What a Rust archive brings: mangled names, those of the run-time, and helpers of the compiler (two underscores).
    let others: Vec<_> = names
        .difference(&ours)
        .filter(|n| !n.starts_with("_") && !n.starts_with("rust_") && !n.starts_with("DW.ref."))
        .filter(|n| !n.starts_with("anon.") && !n.contains(".llvm."))
        .collect();
    assert_eq!(others, Vec::<&String>::new());
}

/// Where a panic ends the process, nothing calls this.
#[test]
fn the_libraries_are_built_to_unwind() {
    let unwinds = |names: String| names.lines().any(|n| n.contains("_Unwind_RaiseException"));
    let undefined = |file: &str, more: &[&str]| {
        let mut nm = Command::new("nm");
        pass(nm.args(["--undefined-only", "--format=posix"]).args(more).arg(libraries().join(file)))
    };
    assert!(unwinds(undefined("libbypath.so", &["--dynamic"])) && unwinds(undefined("libbypath.a", &[])));
}

#[test]
fn the_shared_library_has_its_soname_and_stays_loaded() {
    let text = pass(Command::new("readelf").arg("-dW").arg(libraries().join("libbypath.so")));
    assert!(text.contains("Library soname: [libbypath.so.0]"), "{text}");
    assert!(text.contains("NODELETE"), "{text}");
}

#[test]
fn declarations_are_read_as_meant() {
    let text = "// bypath_no(\nint32_t bypath_a(int x);\nconst char *bypath_b(void);\n#define BYPATH_C (1)\n";
    assert_eq!(declared(text).into_iter().collect::<Vec<_>>(), ["bypath_a", "bypath_b"]);
}
