//! Every function that the installed C library exports is classified: interposed, passed on for a reason, or without
//! a descriptor. A new C library brings new functions: then this test fails and names them.

use object::read::elf::{ElfFile64, Sym};
use object::{Endianness, elf};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Names = BTreeSet<String>;

fn preload_crate() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../preload")
}

/// The classes of classified.txt.
#[derive(Debug, Default)]
struct Classes {
    /// Class (first word of its heading) of every name that is written out.
    names: BTreeMap<String, String>,
    /// Families of functions without a descriptor.
    families: Vec<String>,
}

impl Classes {
    fn parse(text: &str) -> Result<Classes, String> {
        let mut classes = Classes::default();
        let mut class = None;
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            if let Some(heading) = line.strip_prefix("== ") {
                let (name, why) = heading.split_once(": ").unwrap_or((heading, ""));
                match name {
                    "interposed" | "no-descriptor" if why.is_empty() => {}
                    "passes" | "refused" if !why.is_empty() => {}
                    _ => return Err(format!("heading '{heading}'")),
                }
                class = Some(name.to_owned());
                continue;
            }
            for word in line.split_whitespace() {
                let class = class.clone().ok_or("a name before the first heading")?;
                if word.contains('*') {
                    if class != "no-descriptor" {
                        return Err(format!(
                            "{word}: only functions without a descriptor may be named by family"
                        ));
                    }
                    classes.families.push(word.to_owned());
                } else if classes.names.insert(word.to_owned(), class).is_some() {
                    return Err(format!("{word} stands twice"));
                }
            }
        }
        Ok(classes)
    }

    fn class_of(&self, name: &str) -> Option<&str> {
        let family = || self.families.iter().any(|f| matches(f, name)).then_some("no-descriptor");
        self.names.get(name).map(String::as_str).or_else(family)
    }

    fn of_class(&self, class: &str) -> Names {
        self.names.iter().filter(|(_, c)| *c == class).map(|(n, _)| n.clone()).collect()
    }
}

/// Whether `name` belongs to a family: `*` stands for any text, `[abc]` for one of the letters.
fn matches(family: &str, name: &str) -> bool {
    let mut letters = family.chars();
    match letters.next() {
        None => name.is_empty(),
        Some('*') => {
            let rest = letters.as_str();
            name.char_indices().any(|(i, _)| matches(rest, &name[i..])) || rest.is_empty()
        }
        Some('[') => {
            let (set, rest) = letters.as_str().split_once(']').expect("a closed set");
            name.chars().next().is_some_and(|c| set.contains(c) && matches(rest, &name[c.len_utf8()..]))
        }
        Some(c) => name.strip_prefix(c).is_some_and(|name| matches(letters.as_str(), name)),
    }
}

/// The string literals of the table of interposed symbols; the marker of the library is no function.
fn table() -> Names {
    let source = fs::read_to_string(preload_crate().join("src/symbols.rs")).expect("the table");
    let list = &source[source.find("pub const SYMBOLS").expect("the table")..];
    list.split('"').skip(1).step_by(2).filter(|n| !n.starts_with("bypath_")).map(str::to_owned).collect()
}

/// Functions that a C library exports to programs: not those of its private version, which only its own parts use.
fn exported_functions(path: &Path) -> Names {
    let data = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file = ElfFile64::<Endianness>::parse(&*data).expect("an ELF file");
    let endian = file.endian();
    let table = file.elf_dynamic_symbol_table();
    let versions = file
        .elf_section_table()
        .versions(endian, &*data)
        .expect("readable versions")
        .expect("symbol versions");
    let mut names = Names::new();
    for (index, symbol) in table.enumerate() {
        let is_function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
        if symbol.is_undefined(endian) || !is_function {
            continue;
        }
        let version = versions.version(versions.version_index(endian, index)).expect("a known version");
        if version.is_some_and(|v| v.name() == b"GLIBC_PRIVATE") {
            continue;
        }
        let name = symbol.name(endian, table.strings()).expect("a name");
        names.insert(String::from_utf8_lossy(name).into_owned());
    }
    names
}

/// The libraries of this very process that hold the C library's functions (before glibc 2.34 also libpthread).
fn c_libraries() -> Vec<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").expect("maps");
    let files: BTreeSet<_> = maps.lines().filter_map(|l| l.split_whitespace().nth(5)).collect();
    let found: Vec<_> = files
        .into_iter()
        .map(PathBuf::from)
        .filter(|p| {
            let name = p.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libc.so") || name.starts_with("libc-2") || name.starts_with("libpthread")
        })
        .collect();
    assert!(!found.is_empty(), "no C library among the mapped files");
    found
}

fn classes() -> Classes {
    let text = fs::read_to_string(preload_crate().join("classified.txt")).expect("classified.txt");
    Classes::parse(&text).expect("classified.txt is well formed")
}

#[test]
fn every_function_of_the_c_library_is_classified() {
    let classes = classes();
    let functions: Names = c_libraries().iter().flat_map(|l| exported_functions(l)).collect();
    assert!(functions.len() > 1500 && functions.contains("recvmmsg"), "the functions were not found");
    let unknown: Vec<_> = functions.iter().filter(|n| classes.class_of(n).is_none()).collect();
    assert!(
        unknown.is_empty(),
        "this C library has functions that crates/preload/classified.txt does not know: {unknown:?}\nDecide for each \
         whether it can touch a TCP socket's bytes, readiness, options or number. If so, interpose it; otherwise add \
         it with the reason (class passes) or to no-descriptor."
    );
}

#[test]
fn the_interposed_class_is_the_table() {
    let (classified, table) = (classes().of_class("interposed"), table());
    assert!(table.contains("recv"), "the table was not found");
    let surplus: Vec<_> = classified.difference(&table).collect();
    let missing: Vec<_> = table.difference(&classified).collect();
    assert!(surplus.is_empty(), "classified as interposed, but not in SYMBOLS: {surplus:?}");
    assert!(missing.is_empty(), "in SYMBOLS, but not classified as interposed: {missing:?}");
}

#[test]
fn every_interposed_symbol_is_documented() {
    let page = preload_crate().join("../../docs/preload.md");
    let page = fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
    let undocumented: Vec<_> = table().into_iter().filter(|n| !page.contains(&format!("`{n}`"))).collect();
    assert_eq!(undocumented, Vec::<String>::new());
}

#[test]
fn an_unclassified_function_is_noticed() {
    let classes = classes();
    for name in ["recv_twice", "sendmsg2", "accept5", "pollfd_wait", "epoll_pwait3", "close_all", "dup4"] {
        assert_eq!(classes.class_of(name), None, "{name} hides in a family");
    }
}

#[test]
fn a_descriptor_hides_in_no_family() {
    // These begin like families of functions without descriptors.
    let classes = classes();
    for name in
        ["memfd_create", "signalfd", "timerfd_create", "isfdtype", "fdopen", "dprintf", "pread", "tcgetattr"]
    {
        let class = classes.names.get(name).map(String::as_str);
        assert!(matches!(class, Some("interposed" | "passes")), "{name}: {class:?}");
    }
}

#[test]
fn families_match_as_meant() {
    for (family, name, yes) in [
        ("mem*", "memcpy", true),
        ("mem*", "mem", true),
        ("mem*", "amem", false),
        ("*printf", "vsnprintf", true),
        ("*printf", "printf_size", false),
        ("is[ab]*", "isalpha", true),
        ("is[ab]*", "isdigit", false),
        ("*r*n", "return", true),
    ] {
        assert_eq!(matches(family, name), yes, "{family} {name}");
    }
}

#[test]
fn mistakes_in_the_file_are_errors() {
    assert!(Classes::parse("== passes: why\nread\n== no-descriptor\nread").is_err());
    assert!(Classes::parse("== passes: why\nrea*").is_err());
    assert!(Classes::parse("== passes\nread").is_err());
    assert!(Classes::parse("read").is_err());
}
