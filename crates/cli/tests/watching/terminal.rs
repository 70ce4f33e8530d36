//! `bypath top` in a terminal of script(1), whose screen is put together from what it writes: keys, and what they change there.

use crate::common::{BYPATH, bypath};
use crate::lab::{LONG, Running, Talk, has, signal};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const LINES: usize = 30;
const COLUMNS: usize = 130;

/// A terminal with a program in it.
struct Terminal {
    program: Running,
    keys: ChildStdin,
    from: Receiver<Vec<u8>>,
    /// What has come, but for what is on the screen already.
    rest: Vec<u8>,
    at: (usize, usize),
    cells: Vec<Vec<char>>,
}

impl Terminal {
    fn start(arguments: &str) -> Terminal {
        let command = format!("stty rows {LINES} cols {COLUMNS}; exec {BYPATH} top {arguments}");
        let program = Command::new("script")
            .args(["-q", "-e", "-c", &command, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script starts");
        let mut program = Running(program);
        let keys = program.0.stdin.take().expect("a pipe");
        let mut screen = program.0.stdout.take().expect("a pipe");
        let (to, from) = channel();
        std::thread::spawn(move || {
            let mut room = [0; 4096];
            while let Ok(n) = screen.read(&mut room)
                && n > 0
                && to.send(room[..n].to_vec()).is_ok()
            {}
        });
        let cells = vec![vec![' '; COLUMNS]; LINES];
        Terminal { program, keys, from, rest: Vec::new(), at: (0, 0), cells }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("room");
    }

    /// Takes one character or sequence of `rest`; false: it is not all there.
    fn take(&mut self) -> bool {
        let rest = &self.rest;
        let Some(first) = rest.first() else { return false };
        let len = match first {
            0x1b => match rest.get(1) {
                Some(b'[') => match rest[2..].iter().position(|b| (0x40..0x7f).contains(b)) {
                    Some(end) => end + 3,
                    None => return false,
                },
                Some(b'(') => 3,
                Some(_) => 2,
                None => return false,
            },
            0xc0.. => first.leading_ones() as usize,
            _ => 1,
        };
        if rest.len() < len {
            return false;
        }
        let word: Vec<u8> = self.rest.drain(..len).collect();
        let (line, column) = self.at;
        match word[..] {
            [0x1b, b'[', .., b'H'] => {
                let text = String::from_utf8_lossy(&word[2..len - 1]).into_owned();
                let mut numbers = text.split(';').map(|n| n.parse().unwrap_or(1));
                self.at = (numbers.next().unwrap_or(1) - 1, numbers.next().unwrap_or(1) - 1);
            }
            [0x1b, b'[', .., b'J'] => self.cells = vec![vec![' '; COLUMNS]; LINES],
            [0x1b, b'[', .., b'K'] => self.cells[line.min(LINES - 1)][column.min(COLUMNS)..].fill(' '),
            [0x1b, ..] => {}
            [b'\r'] => self.at.1 = 0,
            [b'\n'] => self.at.0 += 1,
            _ => {
                let text = String::from_utf8_lossy(&word).into_owned();
                let place = self.cells.get_mut(line).and_then(|line| line.get_mut(column));
                if let (Some(place), Some(c)) = (place, text.chars().next()) {
                    *place = c;
                }
                self.at.1 += 1;
            }
        }
        true
    }

    /// Takes what comes, until that is so on the screen.
    #[track_caller]
    fn until(&mut self, what: &str, is_so: impl Fn(&Terminal) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            let more = self.from.recv_timeout(LONG);
            let more = more.unwrap_or_else(|_| panic!("never: {what}\n{}", self.text()));
            assert!(begun.elapsed() < LONG, "never: {what}\n{}", self.text());
            self.rest.extend(more);
            while self.take() {}
        }
    }

    /// Takes what has come.
    fn catch_up(&mut self) {
        while let Ok(more) = self.from.recv_timeout(Duration::from_millis(50)) {
            self.rest.extend(more);
        }
        while self.take() {}
    }

    fn lines(&self) -> Vec<String> {
        self.cells.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned()).collect()
    }

    fn text(&self) -> String {
        self.lines().join("\n")
    }

    fn says(&self, word: &str) -> bool {
        self.text().contains(word)
    }

    /// Numbers of the processes in the table, from above.
    fn processes(&self) -> Vec<u32> {
        let lines = self.lines();
        let table = lines.iter().skip(2).map_while(|line| line.split_whitespace().next()?.parse().ok());
        table.collect()
    }

    /// All of the line of a process.
    fn row(&self, pid: u32) -> Option<String> {
        let is_its = |line: &String| line.split_whitespace().next() == Some(&pid.to_string());
        self.lines().into_iter().skip(2).find(is_its)
    }
}

/// Processes that are shown to whoever asks once, with such a filter.
fn once(filter: &str) -> Vec<u32> {
    let mut command = bypath(["top", "--once", "--json", "-d", "0.2", "--sort", "pid", "--filter", filter]);
    let output = command.output().expect("bypath starts");
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    all.iter().map(|row| row["pid"].as_u64().expect("a number") as u32).collect()
}

#[test]
fn keys_sort_the_table_and_filter_it() {
    if !has("terminal::keys_sort_the_table_and_filter_it", &["python3", "script"]) {
        return;
    }
    let talk = Talk::new();
    let (server, caller) = (talk.server_pid(), talk.caller_pid());
    let both = format!("127.0.0.1:{}", talk.port);
    let mut screen = Terminal::start(&format!("-d 0.1 --sort drops --filter {both}"));
    screen.until("both are there", |screen| screen.processes().len() == 2 && screen.says("by drops"));
    screen.press("s");
    let mut sorted = [server, caller];
    sorted.sort_unstable();
    screen.until("by pid", |screen| screen.says("; by pid") && screen.processes() == sorted);
    screen.press("r");
    sorted.reverse();
    screen.until("turned round", |screen| screen.says("by pid, reversed") && screen.processes() == sorted);
    screen.press("r");
    sorted.reverse();
    screen.until("and again", |screen| !screen.says("reversed") && screen.processes() == sorted);
    screen.press("ss");
    screen.until("all orders, and the first anew", |screen| screen.says("; by rate"));

    // In place of the filter that it was started with: its letters are taken back one by one.
    let narrow = format!("{both} {server}");
    screen.press(&format!("/{}", "\x7f".repeat(both.len())));
    screen.until("no filter", |screen| screen.says("filter: _"));
    screen.press(&narrow);
    screen.until("it is there", |screen| screen.says(&format!("filter: {narrow}_")));
    screen.press("\r");
    let expected = once(&narrow);
    assert!(expected.contains(&server));
    screen.until("those that match", |screen| {
        screen.says(&format!("filter: {narrow}")) && !screen.says(&format!("filter: {narrow}_")) && {
            let mut shown = screen.processes();
            shown.sort_unstable();
            shown == expected
        }
    });
    screen.press("/ nothing-is-called-so\r");
    screen.until("none", |screen| screen.processes().is_empty() && screen.says("0 sockets"));
    screen.press("q");
    assert!(screen.program.0.wait().expect("a child").success());
}

#[test]
fn a_paused_screen_stays_as_it_is_and_a_resumed_one_goes_on() {
    if !has("terminal::a_paused_screen_stays_as_it_is_and_a_resumed_one_goes_on", &["python3", "script"]) {
        return;
    }
    let mut talk = Talk::new();
    let (server, caller) = (talk.server_pid(), talk.caller_pid());
    let both = format!("127.0.0.1:{}", talk.port);
    let mut screen = Terminal::start(&format!("-d 0.1 --sort pid --filter {both}"));
    // Behind the path.
    let silent =
        |screen: &Terminal| screen.row(caller).is_some_and(|row| row.split_whitespace().nth(5) == Some("0"));
    screen.until("both are there, and say nothing", |screen| screen.processes().len() == 2 && silent(screen));
    // It is looked at again and again while nothing keeps it from that.
    talk.begin("resp 300000");
    screen.until("the caller's rate", |screen| !silent(screen));
    talk.done();
    screen.until("none any more", silent);

    screen.press(" ");
    screen.until("it says so", |screen| screen.says("PAUSED"));
    screen.catch_up();
    let before = screen.text();
    talk.does("resp 1000");
    for pid in [server, caller] {
        signal(pid, Signal::KILL);
    }
    let begun = Instant::now();
    while !once(&both).is_empty() {
        assert!(begun.elapsed() < LONG, "both are dead");
    }
    // Several times its interval.
    for _ in 0..3 {
        assert!(once(&both).is_empty());
    }
    screen.catch_up();
    assert_eq!(screen.text(), before);
    screen.press("p");
    screen.until("they are gone", |screen| !screen.says("PAUSED") && screen.processes().is_empty());
    screen.press("q");
    assert!(screen.program.0.wait().expect("a child").success());
}
