use super::*;
use bypath_sockets::rules::Action;

/// Line and message of each problem, with the suggestion.
fn problems(text: &str) -> Vec<(u32, String)> {
    let (_, found) = parse(Path::new("f"), text);
    found
        .into_iter()
        .map(|p| (p.line, format!("{}|{}", p.message, p.suggestion.unwrap_or_default())))
        .collect()
}

fn only_problem(text: &str) -> (u32, String) {
    let found = problems(text);
    assert_eq!(found.len(), 1, "{text}: {found:?}");
    found.into_iter().next().unwrap()
}

#[track_caller]
fn assert_problem(text: &str, line: u32, pieces: &[&str]) {
    let (at, message) = only_problem(text);
    assert_eq!(at, line, "{message}");
    for piece in pieces {
        assert!(message.contains(piece), "{message} lacks {piece}");
    }
}

const GOOD: &str = r#"
[settings]
profile = "web"
ring-size = 65536
upgrade-bytes = "1M"
connection-limit = "none"
allow-uid = [1000, "1001"]
stats = "/tmp/x"

[profiles.web]
like = "latency"
spin-budget = "200us"
connection-limit = 7

[[rules]]
name = "one"
program = "redis-*"
user = [0, "1000", "root"]
local = ["127.0.0.0/8", "::1"]
local-port = [80, "8000-8999"]
remote = "10.0.0.0/8"
remote-port = 5432
protocol = "tcp"
action = "kernel"

[[rules]]
action = "ring"
"#;

#[test]
fn a_good_file_is_read_whole() {
    let (file, problems) = parse(Path::new("f"), GOOD);
    assert_eq!(problems, []);
    let given: Vec<_> = file.settings.iter().map(|g| (g.setting.flag, g.value.as_str(), g.line)).collect();
    assert_eq!(
        given,
        [
            ("profile", "web", 3),
            ("ring-size", "65536", 4),
            ("upgrade-bytes", "1M", 5),
            ("connection-limit", "none", 6),
            ("allow-uid", "1000,1001", 7),
            ("stats", "/tmp/x", 8)
        ]
    );
    let [web] = &file.profiles[..] else { panic!() };
    assert_eq!((web.name.as_str(), web.like, web.line, web.settings.len()), ("web", "latency", 10, 2));
    let [one, two] = &file.rules[..] else { panic!() };
    assert_eq!((one.number, one.name.as_str(), one.line, one.action), (1, "one", 15, Action::Kernel));
    assert_eq!(
        super::rule::conditions(one),
        "protocol=tcp program=redis-* user=0,1000,0 local=127.0.0.0/8,::1 local-port=80,8000-8999 remote=10.0.0.0/8 \
         remote-port=5432"
    );
    assert_eq!((two.number, two.action, super::rule::conditions(two).as_str()), (2, Action::Ring, ""));
}

#[test]
fn an_empty_file_is_good() {
    assert_eq!(problems("# nothing\n"), []);
}

#[test]
fn unknown_keys_are_named_with_the_nearest_known_one() {
    assert_problem("[setings]\n", 1, &["setings", "|settings"]);
    assert_problem("\n[settings]\nring-sise = 1\n", 3, &["ring-sise", "|ring-size"]);
    assert_problem("[profiles.a]\nring-sise = 1\n", 2, &["ring-sise", "'a'", "|ring-size"]);
    assert_problem("[[rules]]\naction = \"ring\"\nprogramm = \"x\"\n", 3, &["programm", "|program"]);
    assert_problem("[settings]\nzzzzzzzz = 1\n", 2, &["zzzzzzzz"]);
}

#[test]
fn settings_in_the_wrong_table_are_told_where_they_belong() {
    assert_problem("ring-size = 1\n", 1, &["under [settings]"]);
    assert_problem("[[rules]]\naction = \"ring\"\nring-size = \"64K\"\n", 3, &["under [settings]"]);
    assert_problem("[profiles.a]\nlog = \"info\"\n", 2, &["under [settings]"]);
    assert_problem("[rules]\naction = \"ring\"\n", 1, &["list", "|[[rules]]"]);
}

#[test]
fn wrong_types_are_told() {
    for (text, line) in [
        ("settings = 1\n", 1),
        ("[settings]\nupgrade = true\n", 2),
        ("[settings]\nupgrade = 5\n", 2),
        ("[settings]\nring-size = 1.5\n", 2),
        ("[settings]\nring-size = [1]\n", 2),
        ("[settings]\nallow-uid = [1, false]\n", 2),
        ("[settings]\nlog = 2020-01-01\n", 2),
        ("profiles = []\n", 1),
        ("[profiles]\na = 1\n", 2),
        ("[profiles.a]\nlike = 1\n", 2),
        ("rules = 1\n", 1),
        ("rules = [1]\n", 1),
        ("[[rules]]\naction = \"ring\"\nname = 1\n", 3),
        ("[[rules]]\naction = \"ring\"\nprogram = 1\n", 3),
        ("[[rules]]\naction = \"ring\"\nprogram = [\"x\", 1]\n", 3),
        ("[[rules]]\naction = \"ring\"\nuser = true\n", 3),
        ("[[rules]]\naction = \"ring\"\nlocal = 1\n", 3),
        ("[[rules]]\naction = \"ring\"\nremote-port = {}\n", 3),
    ] {
        assert_problem(text, line, &["wrong type", "expected", "found"]);
    }
    assert_problem("[[rules]]\naction = 1\n", 2, &["wrong type for 'action'"]);
}

#[test]
fn bad_values_are_told_with_what_was_meant() {
    for (setting, piece) in [
        ("ring-size = \"48K\"", "power of two"),
        ("ring-size = 0xfffffffffffffffff", "out of range"),
        ("ring-size = -65536", "size"),
        ("upgrade = \"eagre\"", "|eager"),
        ("profile = \"latncy\"", "|latency"),
        ("spin-budget = 5", "time"),
        ("spin-budget = \"1s\"", "time"),
        ("upgrade-calls = 0", "number"),
        ("connection-limit = \"nome\"", "number"),
        ("allow-uid = \"joe\"", "user ids"),
        ("stats = \"here\"", "absolute"),
    ] {
        assert_problem(&format!("[settings]\n{setting}\n"), 2, &[piece]);
    }
    for (key, piece) in [
        ("local = \"127.0.0.1/8\"", "|127.0.0.0/8"),
        ("local = \"localhost\"", "|127.0.0.0/8"),
        ("remote = \"1.2.3.4/40\"", "32 bits"),
        ("remote = \"example.org\"", "address"),
        ("remote = []", "empty"),
        ("remote-port = 0", "port"),
        ("remote-port = 65536", "port"),
        ("local-port = \"9-8\"", "lower"),
        ("program = \"a[\"", "']'"),
        ("program = \"bin/x\"", "path"),
        ("user = \"no such user\"", "no such user"),
        ("user = -1", "user"),
        ("protocol = \"tpc\"", "|tcp"),
        ("protocol = \"icmp\"", "expected tcp, udp"),
        ("name = \"a\\u001bb\"", "control"),
    ] {
        assert_problem(&format!("[[rules]]\naction = \"ring\"\n{key}\n"), 3, &[piece]);
    }
    assert_problem("[[rules]]\naction = \"kernal\"\n", 2, &["kernal", "|kernel"]);
    assert_problem("[profiles.a]\nlike = \"frugl\"\n", 2, &["|frugal"]);
    assert_problem("[profiles.a]\nlike = \"a\"\n", 2, &["latency, balanced, frugal"]);
}

#[test]
fn a_rule_needs_an_action() {
    assert_problem("\n[[rules]]\nprogram = \"x\"\n", 2, &["rule 1", "no action"]);
}

#[test]
fn profiles_may_be_chosen_and_built_in_ones_stay() {
    assert_eq!(problems("[settings]\nprofile = \"a\"\n[profiles.a]\n"), []);
    assert_problem("[settings]\nprofile = \"ab\"\n[profiles.abc]\n", 2, &["|abc"]);
    assert_problem("[profiles.latency]\nring-size = \"64K\"\n", 1, &["built in"]);
    assert_problem("[profiles.\"a b\"]\n", 1, &["a b"]);
}

#[test]
fn every_error_is_told_in_the_order_of_the_file() {
    let text =
        "[settings]\nlog = \"inof\"\nx = \nupgrade = 1\n[[rules]]\nlocal = \"x\"\n[[rules]]\naction = 1\n";
    let lines: Vec<u32> = problems(text).into_iter().map(|(line, _)| line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 6, 8]);
}

#[test]
fn syntax_errors_are_told_once_with_their_line() {
    assert_problem("[settings]\nprofile = latency\n", 2, &["quoted"]);
    assert_problem("[settings]\nlog = \"info\"\nlog = \"info\"\n", 3, &["duplicate"]);
}

#[test]
fn rules_behind_one_that_matches_everything_are_warned_about() {
    let text = "[[rules]]\naction = \"kernel\"\n[[rules]]\naction = \"ring\"\nprogram = \"x\"\n";
    let (file, found) = parse(Path::new("f"), text);
    assert_eq!(file.rules.len(), 2);
    let [p] = &found[..] else { panic!("{found:?}") };
    assert!(p.warning && p.line == 3 && p.message.contains("rule 2 is never asked"), "{p:?}");
}

#[test]
fn too_many_rules_are_an_error() {
    let text = "[[rules]]\naction = \"ring\"\nprogram = \"x\"\n".repeat(MOST_RULES + 5);
    assert_problem(&text, 3 * MOST_RULES as u32 + 1, &["more than 1000"]);
}

#[test]
fn what_was_checked_is_what_is_read() {
    use std::os::unix::fs::symlink;
    let top = std::env::temp_dir().join(format!("bypath-config-{}", std::process::id()));
    let _ = fs::remove_dir_all(&top);
    fs::create_dir_all(top.join("home/.config/bypath")).unwrap();
    let file = top.join("home/.config/bypath/config.toml");
    let said = |path: &Path| read_found(path).map_err(|e| e.to_string());
    fs::write(top.join("text"), "text").unwrap();
    symlink("../../../text", &file).unwrap();
    symlink(top.join("home"), top.join("link")).unwrap();
    assert_eq!(said(&file), Ok(b"text".to_vec()));
    assert_eq!(said(&top.join("link/.config/bypath/config.toml")), Ok(b"text".to_vec()));
    let led = Path::new("/proc/self/root").join(file.strip_prefix("/").unwrap());
    assert!(said(&led).unwrap_err().contains("link of /proc"));
    // Root's, with a text that anybody may have given it.
    fs::remove_file(&file).unwrap();
    symlink(format!("/proc/{}/cmdline", std::process::id()), &file).unwrap();
    assert!(said(&file).unwrap_err().contains("the kernel makes its text"));
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(said(&file).unwrap_err().contains("not a regular file"));
    fs::remove_dir_all(top).unwrap();
}
