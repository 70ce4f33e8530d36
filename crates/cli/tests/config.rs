//! `bypath config` as a user meets it, and how `bypath run` finds and passes on what the file says.

mod common;

use common::{TempDir, bypath, run, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const GOOD: &str = r#"[settings]
profile = "web"
memory-limit = "1G"

[profiles.web]
like = "latency"
spin-budget = "200us"
ring-size = "64K"

[[rules]]
name = "shells"
program = ["sh", "*bash", "dash"]
remote-port = [5432, "9000-9999"]
action = "kernel"

[[rules]]
program = "nginx"
action = "kernel"

[[rules]]
program = "cat"
local = "::1"
protocol = "udp"
action = "ring"
"#;

/// A directory with a file in it.
fn with_file(text: &str) -> (TempDir, PathBuf) {
    let dir = TempDir::new();
    let path = dir.join("config.toml");
    fs::write(&path, text).expect("the file");
    (dir, path)
}

fn output(command: &mut Command) -> Output {
    command.output().expect("bypath starts")
}

fn config(args: &[&str], path: &Path) -> Command {
    let mut command = bypath(["config"]);
    command.args(args).env("BYPATH_CONFIG", path);
    command
}

/// The variables that a program under `command` sees, those of Bypath only.
fn variables(command: &mut Command) -> Vec<String> {
    let output = output(command.args(["--", "env"]));
    assert!(output.status.success(), "{}", stderr(&output));
    let mut found: Vec<String> =
        stdout(&output).lines().filter(|l| l.starts_with("BYPATH_")).map(str::to_owned).collect();
    found.retain(|l| !l.starts_with("BYPATH_LIBRARY="));
    found.sort();
    found
}

#[test]
fn check_finds_nothing_in_a_good_file() {
    let (_dir, path) = with_file(GOOD);
    for mut command in [config(&["check"], &path), bypath(["config", "check", path.to_str().expect("text")])]
    {
        let output = output(&mut command);
        assert!(output.status.success());
        assert_eq!(
            stdout(&output),
            format!("{}: no errors; 2 settings, 1 profile, 3 rules\n", path.display())
        );
    }
}

#[test]
fn check_tells_every_error_with_line_and_suggestion() {
    let text = "[settings]\nring-sise = \"64K\"\nprofile = 5\nlog = \"inof\"\n\n[[rules]]\nlocal = \"127.0.0.1/8\"\n";
    let (_dir, path) = with_file(text);
    let output = output(&mut config(&["check"], &path));
    assert_eq!(output.status.code(), Some(1));
    let told = stdout(&output).replace(&path.display().to_string(), "F");
    assert_eq!(
        told,
        "F:2:1: unknown setting 'ring-sise' (did you mean 'ring-size'?)\n\
         F:3:11: wrong type for 'profile': expected a string, found an integer\n\
         F:4:7: invalid value 'inof' for log: expected off, error, warn, info, debug (did you mean 'info'?)\n\
         F:6:1: rule 1 has no action: expected action = \"ring\", \"kernel\" or \"netstack\"\n\
         F:7:9: invalid value '127.0.0.1/8' for local: bits are set behind the prefix (did you mean '127.0.0.0/8'?)\n\
         F: 5 errors\n"
    );
}

#[test]
fn check_of_a_missing_file_fails_and_of_none_does_not() {
    let dir = TempDir::new();
    let missing = dir.join("missing.toml");
    let output_ = output(&mut bypath(["config".as_ref(), "check".as_ref(), missing.as_os_str()]));
    assert_eq!(output_.status.code(), Some(1));
    assert!(stderr(&output_).contains("missing.toml"), "{}", stderr(&output_));
    let output_ = output(&mut bypath(["config", "check"]));
    assert!(output_.status.success() && stdout(&output_).contains("switched off"), "{}", stdout(&output_));
}

#[test]
fn rules_that_do_not_fit_are_found() {
    let rule = format!("[[rules]]\naction = \"kernel\"\nprogram = \"{}\"\n", "x".repeat(200));
    let (_dir, path) = with_file(&rule.repeat(400));
    let checked = output(&mut config(&["check"], &path));
    assert_eq!(checked.status.code(), Some(1));
    assert!(stdout(&checked).contains("at most 65536 fit"), "{}", stdout(&checked));
    let started = output(run(["--config"]).arg(&path).args(["--", "true"]));
    assert_eq!(started.status.code(), Some(2), "{}", stderr(&started));
}

#[test]
fn warnings_are_no_errors() {
    let text = "[[rules]]\naction = \"kernel\"\n[[rules]]\naction = \"ring\"\n";
    let (_dir, path) = with_file(text);
    let output = output(&mut config(&["check"], &path));
    assert!(output.status.success());
    let told = stdout(&output);
    assert!(told.contains(":3:1: warning: rule 2 is never asked") && told.contains("no errors"), "{told}");
}

#[test]
fn show_tells_where_each_value_comes_from() {
    let (_dir, path) = with_file(GOOD);
    let mut command = config(&["show", "--effective", "--ring-size=32K"], &path);
    let output = output(command.env("BYPATH_LOG", "info"));
    assert!(output.status.success(), "{}", stderr(&output));
    let told = stdout(&output).replace(&path.display().to_string(), "F");
    for line in [
        "Configuration file: F",
        "upgrade           lazy      default",
        "profile           web       F:2",
        "spin-budget       200us     profile web (F:7), by F:2",
        "ring-size         32K       flag --ring-size",
        "memory-limit      1G        F:3",
        "allow-uid         -         default",
        "log               info      environment BYPATH_LOG",
        "   1    10  kernel  shells  program=sh,*bash,dash remote-port=5432,9000-9999",
        "   2    16  kernel  -       program=nginx",
    ] {
        assert!(told.lines().any(|l| l == line), "{line} is missing in\n{told}");
    }
    // Without --effective: only what somebody has set.
    let output = self::output(&mut config(&["show"], &path));
    assert!(!stdout(&output).contains("default") && stdout(&output).contains("memory-limit"));
}

#[test]
fn show_tells_what_becomes_of_the_rest_with_a_netstack() {
    let (_dir, path) = with_file("");
    let shown = |args: &[&str]| {
        let output = output(&mut config(&[&["show"], args].concat(), &path));
        assert!(output.status.success(), "{}", stderr(&output));
        common::stdout(&output)
    };
    let document: Value = serde_json::from_str(&shown(&["--json", "--netstack=lab"])).expect("JSON");
    assert_eq!(document["otherwise"], "netstack:lab");
    let text = shown(&["--netstack=lab", "--", "sh"]);
    assert!(text.contains("all connections: netstack:lab (no rule)"), "{text}");
}

#[test]
fn show_tells_which_rules_are_about_a_program() {
    let (_dir, path) = with_file(GOOD);
    let mut command = config(&["show", "--effective", "--json", "--", "sh", "-c", "exit"], &path);
    let output = output(&mut command);
    assert!(output.status.success(), "{}", stderr(&output));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let applies: Vec<_> =
        document["rules"].as_array().expect("rules").iter().map(|r| r["applies"].as_str()).collect();
    assert_eq!(applies, [Some("matching"), Some("other-program"), Some("other-program")]);
    assert_eq!(document["rules"][0]["remote_port"], serde_json::json!(["5432", "9000-9999"]));
    let protocols: Vec<_> = (0..3).map(|i| document["rules"][i]["protocol"].as_str()).collect();
    assert_eq!(protocols, [None, None, Some("udp")]);
    assert_eq!(document["otherwise"], "ring");
    let setting = |name: &str| {
        let all = document["settings"].as_array().expect("settings");
        all.iter().find(|s| s["name"] == name).expect("the setting").clone()
    };
    assert_eq!(setting("memory-limit")["from"], "file");
    assert_eq!(setting("memory-limit")["line"], 3);
    assert_eq!(
        (&setting("ring-size")["value"], &setting("ring-size")["profile"]),
        (&"64K".into(), &"web".into())
    );
    assert_eq!(setting("stats")["value"], Value::Null);

    let verdict = |program: &str| {
        let output = self::output(&mut config(&["show", "--", program], &path));
        stdout(&output).lines().last().expect("a line").to_owned()
    };
    assert!(
        verdict("sh").ends_with("remote-port=5432,9000-9999: kernel (rule 1); all others: ring (no rule).")
    );
    assert!(
        verdict("cat").ends_with("protocol=udp local=::1: ring (rule 3); all others: ring (no rule)."),
        "{}",
        verdict("cat")
    );
    assert!(verdict("env").ends_with("all connections: ring (no rule)."));
    let output = self::output(&mut config(&["show", "--", "no-such-program"], &path));
    assert_eq!(output.status.code(), Some(127));
}

#[test]
fn a_script_is_called_by_its_name_and_by_its_interpreter() {
    let dir = TempDir::new();
    let script = dir.join("my-tool");
    fs::write(&script, "#!/bin/sh\nexit\n").expect("the script");
    let mut chmod = Command::new("chmod");
    assert!(chmod.arg("755").arg(&script).status().expect("chmod").success());
    for pattern in ["my-tool", "**/my-t*", "sh", "*bash", "dash"] {
        let path = dir.join("config.toml");
        // What sh is differs from system to system.
        let shell = fs::canonicalize("/bin/sh").expect("a shell");
        let name = shell.file_name().expect("a name").to_str().expect("text");
        if !pattern.contains("my-") && pattern.trim_start_matches('*') != name {
            continue;
        }
        fs::write(&path, format!("[[rules]]\nprogram = \"{pattern}\"\naction = \"kernel\"\n"))
            .expect("the file");
        let output = output(config(&["show", "--"], &path).arg(&script));
        assert!(
            stdout(&output).ends_with("all connections: kernel (rule 1).\n"),
            "{pattern}: {}",
            stdout(&output)
        );
    }
}

#[test]
fn run_passes_settings_and_rules_on() {
    let (_dir, path) = with_file(GOOD);
    let seen = variables(run(["--ring-size=32K", "--config"]).arg(&path).env("BYPATH_LOG", "info"));
    let expected = format!(
        "BYPATH_RULES=1;file {};set profile=latency;set spin-budget=200us;set memory-limit=1G;\
         rule 1 kernel line=10 name=shells program=sh,*bash,dash remote-port=5432,9000-9999;\
         rule 2 kernel line=16 program=nginx;rule 3 ring line=20 protocol=udp program=cat local=::1",
        path.display()
    );
    let config = format!("BYPATH_CONFIG={}", path.display());
    assert_eq!(seen, [&config, "BYPATH_LOG=info", "BYPATH_RING_SIZE=32K", &expected]);
}

#[test]
fn a_run_inside_reads_the_file_again_and_none_forgets_the_rules() {
    let (_dir, path) = with_file(GOOD);
    let inside = |words: &[&str]| {
        let mut command = run(["--config"]);
        variables(command.arg(&path).args(["--", common::BYPATH, "run"]).args(words))
    };
    let again = inside(&[]);
    assert!(again.iter().any(|l| l.starts_with("BYPATH_RULES=1;file ")), "{again:?}");
    assert_eq!(inside(&["--config", "none"]), ["BYPATH_CONFIG=none"]);
    // A rule that was taken out is gone for programs started since.
    fs::write(&path, "[[rules]]\nprogram = \"x\"\naction = \"kernel\"\n").expect("the file");
    let changed = inside(&[]);
    assert!(changed.iter().any(|l| l.ends_with(";rule 1 kernel line=1 program=x")), "{changed:?}");
}

#[test]
fn files_are_found_where_they_belong() {
    let dir = TempDir::new();
    let own = dir.join("home/.config/bypath");
    let xdg = dir.join("xdg/bypath");
    for (place, limit) in [(&own, "11M"), (&xdg, "12M")] {
        fs::create_dir_all(place).expect("a directory");
        let text = format!("[settings]\nmemory-limit = \"{limit}\"\n");
        fs::write(place.join("config.toml"), text).expect("the file");
    }
    let shown = |xdg_set: bool, named: Option<&Path>| {
        let mut command = bypath(["config", "show"]);
        command.env("HOME", dir.join("home")).env_remove("XDG_CONFIG_HOME").env_remove("BYPATH_CONFIG");
        if xdg_set {
            command.env("XDG_CONFIG_HOME", dir.join("xdg"));
        }
        if let Some(path) = named {
            command.arg("--config").arg(path);
        }
        let output = output(&mut command);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    assert!(shown(false, None).contains("11M"));
    assert!(shown(true, None).contains("12M"));
    assert!(shown(true, Some(&own.join("config.toml"))).contains("11M"));
    assert!(!shown(true, Some(Path::new("none"))).contains("12M"));
}

#[test]
fn what_is_found_and_is_no_file_is_told_and_what_is_named_may_be_a_pipe() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let dir = TempDir::new();
    fs::create_dir(dir.join("bypath")).expect("a directory");
    let pipe = dir.join("bypath/config.toml");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
    for args in [&["run", "--", "true"][..], &["config", "show"], &["config", "check"]] {
        let output = output(bypath(args).env("XDG_CONFIG_HOME", dir.join("")).env_remove("BYPATH_CONFIG"));
        assert!(!output.status.success());
        assert!(stderr(&output).contains("config.toml: not a regular file"), "{}", stderr(&output));
    }
    let mut named =
        config(&["show"], &pipe).stdout(std::process::Stdio::piped()).spawn().expect("bypath starts");
    fs::write(&pipe, "[settings]\nmemory-limit = \"11M\"\n").expect("somebody who reads");
    let mut shown = String::new();
    named.stdout.take().expect("piped").read_to_string(&mut shown).expect("text");
    assert!(named.wait().expect("it ends").success());
    assert!(shown.contains("11M"), "{shown}");
}

#[test]
fn a_bad_file_stops_the_program_and_tells_all() {
    let (dir, path) = with_file("[settings]\nupgrade = \"eagre\"\nno-such = 1\n");
    let mark = dir.join("started");
    let output = output(run(["--config"]).arg(&path).args(["--", "touch"]).arg(&mark));
    assert_eq!(output.status.code(), Some(2));
    let told = stderr(&output);
    assert!(told.contains(":2:11:") && told.contains("'eager'") && told.contains(":3:1:"), "{told}");
    assert!(!mark.exists());
    for bad in ["/no/such/file", "", "/"] {
        let output = self::output(run(["--config", bad, "--", "touch"]).arg(&mark));
        assert_eq!(output.status.code(), Some(2), "{bad}: {}", stderr(&output));
        assert!(!mark.exists());
    }
}

#[test]
fn exported_variables_are_what_run_would_pass_on() {
    let (_dir, path) = with_file(&GOOD.replace("shells", "sh's; $(touch x)"));
    let exported = output(config(&["export", "--log=info"], &path).env("BYPATH_SPIN_BUDGET", "3us"));
    assert!(exported.status.success(), "{}", stderr(&exported));
    let mut sh = Command::new("env");
    sh.args(["-i", "PATH=/usr/bin:/bin", "sh", "-c"]).arg(stdout(&exported) + "env");
    let mut seen: Vec<String> =
        stdout(&output(&mut sh)).lines().filter(|l| l.starts_with("BYPATH_")).map(str::to_owned).collect();
    seen.sort();
    let mut run = run(["--log=info"]);
    let mut passed = variables(run.env("BYPATH_CONFIG", &path).env("BYPATH_SPIN_BUDGET", "3us"));
    passed.retain(|l| !l.starts_with("BYPATH_CONFIG="));
    assert_eq!(seen, passed);
    assert!(seen.iter().any(|l| l.contains("sh%27s%3b%20%24%28touch%20x%29")), "{seen:?}");
}

#[test]
fn export_removes_what_does_not_hold_any_more() {
    let mut command = bypath(["config", "export", "--profile=frugal"]);
    command.env("BYPATH_RULES", "1;rule 1 kernel").env("BYPATH_SPIN_BUDGET", "5us");
    assert_eq!(
        stdout(&output(&mut command)),
        "export BYPATH_PROFILE='frugal'\nunset BYPATH_SPIN_BUDGET\nunset BYPATH_RULES\n"
    );
}
