//! The screen: what keys do, and how rows are drawn.

use super::model::{Row, Sort, matches};
use crate::connections;
use crate::output;
use bypath_shm::reason::Reason;
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Row as Cells, Table, TableState, Wrap};

/// Characters of a filter at most.
const LONGEST_FILTER: usize = 60;

/// Lines of the explanation below the table at most.
const LONGEST_DETAIL: usize = 4;
/// Columns of numbers and names need so much; in a narrower window the last ones are left out, and none is cut.
const NARROW: u16 = 80;

const HELP: &str = "\
q, Esc, Ctrl-C  leave
p, space        stop and go on looking
s               sort by the next: rate, bytes, wait, spin, drops, pid, path
r               the other way round
/               filter: words of pid, name, address, path or reason
Ctrl-U          in a filter: empty it
up, down        move; PgUp, PgDn, Home, End
?, h            this text

WAIT  how long a byte is in the ring until it is read: what waits there, by
      what is sent in that time
SPIN  what the process spends spinning for the other end, of one processor
T     behind a pid: the process is stopped
DROPS datagrams lost for want of room; streams lose nothing
The line below the table tells the whole of the selected socket.";

/// What the user has asked for, and what was seen last.
#[derive(Debug, Default)]
pub struct Screen {
    rows: Vec<Row>,
    /// By what it is sorted.
    pub sort: Sort,
    reverse: bool,
    filter: String,
    typing: bool,
    help: bool,
    /// Whether nothing new is looked at.
    pub paused: bool,
    at: TableState,
    problem: Option<String>,
}

impl Screen {
    /// One sorted and filtered from the start.
    pub fn new(sort: Sort, filter: String) -> Screen {
        Screen { sort, filter, ..Screen::default() }
    }

    /// Takes what was seen.
    pub fn show(&mut self, rows: Vec<Row>) {
        self.rows = rows;
        self.problem = None;
        self.sort.sort(&mut self.rows, self.reverse);
    }

    /// Says what went wrong instead.
    pub fn fail(&mut self, why: String) {
        self.problem = Some(why);
    }

    /// Takes a key; whether the user leaves.
    pub fn key(&mut self, key: KeyEvent) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return true,
                // As a shell's line does.
                KeyCode::Char('u') if self.typing => self.filter.clear(),
                _ => {}
            }
            return false;
        }
        if self.typing {
            match key.code {
                KeyCode::Enter => self.typing = false,
                KeyCode::Esc => (self.typing, self.filter) = (false, String::new()),
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Char(c) if self.filter.chars().count() < LONGEST_FILTER => self.filter.push(c),
                _ => {}
            }
            return false;
        }
        if self.help {
            self.help = false;
            return false;
        }
        let last = self.shown().count().saturating_sub(1);
        let at = self.at.selected().unwrap_or(0);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Up => self.at.select(Some(at.saturating_sub(1))),
            KeyCode::Down => self.at.select(Some((at + 1).min(last))),
            KeyCode::PageUp => self.at.select(Some(at.saturating_sub(20))),
            KeyCode::PageDown => self.at.select(Some((at + 20).min(last))),
            KeyCode::Home => self.at.select(Some(0)),
            KeyCode::End => self.at.select(Some(last)),
            _ => {}
        }
        self.sort.sort(&mut self.rows, self.reverse);
        false
    }

    fn shown(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| matches(row, &self.filter))
    }

    /// Draws everything.
    pub fn draw(&mut self, frame: &mut Frame) {
        let detail = self.detail();
        let (width, height) = (usize::from(frame.area().width.max(1)), frame.area().height);
        // As many lines as it takes, as far as there is room for them beside the table.
        let lines = detail.chars().count().div_ceil(width).clamp(1, LONGEST_DETAIL) as u16 + 1;
        let lines = if height >= 16 { lines.min(LONGEST_DETAIL as u16) } else { u16::from(height >= 8) };
        let place = Constraint::Length(lines);
        let [head, table, below, foot] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(1), place, Constraint::Length(1)])
                .areas(frame.area());
        let reversed = Style::new().add_modifier(Modifier::REVERSED);
        frame.render_widget(Line::from(self.head()), head);
        let wide = table.width >= 110;
        let rows: Vec<_> = self.shown().map(|row| cells(row, wide)).collect();
        let count = rows.len();
        let mut widths = vec![
            Constraint::Length(9),
            Constraint::Length(if wide { 15 } else { 9 }),
            Constraint::Length(if wide { 21 } else { 6 }),
            Constraint::Length(if wide { 21 } else { 6 }),
            Constraint::Length(if wide { 18 } else { 11 }),
            Constraint::Length(7),
            Constraint::Length(7),
            Constraint::Length(6),
            Constraint::Length(5),
            Constraint::Length(5),
        ];
        let mut names =
            vec!["PID", "COMMAND", "LOCAL", "REMOTE", "PATH", "TX/S", "RX/S", "WAIT", "SPIN", "DROPS"];
        if wide {
            widths.push(Constraint::Min(10));
            names.push("REASON");
        }
        if table.width < NARROW {
            // Each has a blank behind it.
            let mut left = table.width;
            let of = |width: &Constraint| if let Constraint::Length(n) = width { *n } else { 0 };
            let fits = |width: &Constraint| {
                let room = left >= of(width);
                left = left.saturating_sub(of(width) + 1);
                room
            };
            let count = widths.iter().map(fits).take_while(|fits| *fits).count().max(1);
            widths.truncate(count);
            names.truncate(count);
        }
        if self.at.selected().is_some_and(|at| at >= count) {
            self.at.select(count.checked_sub(1));
        }
        let widget =
            Table::new(rows, widths).header(Cells::new(names).style(reversed)).row_highlight_style(reversed);
        frame.render_stateful_widget(widget, table, &mut self.at);
        frame.render_widget(Paragraph::new(detail).wrap(Wrap { trim: true }), below);
        frame.render_widget(Line::from(self.foot()), foot);
        if self.help {
            let area = frame.area();
            let height = (HELP.lines().count() as u16 + 2).min(area.height);
            let width = 78.min(area.width);
            let place = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
            frame.render_widget(Clear, place);
            frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title("Help")), place);
        }
    }

    fn head(&self) -> String {
        let (mut tx, mut on_rings, mut count) = (0u64, 0, 0);
        for row in self.shown() {
            tx = tx.saturating_add(row.tx_rate);
            on_rings += usize::from(row.path.contains("ring"));
            count += 1;
        }
        let paused = if self.paused { "  PAUSED" } else { "" };
        let order = if self.reverse { ", reversed" } else { "" };
        format!(
            "bypath top: {count} sockets, {on_rings} on rings, {}/s sent; by {}{order}{paused}",
            output::bytes(tx),
            self.sort.name()
        )
    }

    /// All of the selected row that has no room in the table.
    fn detail(&self) -> String {
        let Some(row) = self.shown().nth(self.at.selected().unwrap_or(0)) else { return String::new() };
        let address = |a: &Option<String>| a.clone().unwrap_or_else(|| "-".to_owned());
        // Of two reasons that which is none of a ring is worth the place.
        let code = row.reason.split('/').find(|code| *code != Reason::Ring.code()).unwrap_or(&row.reason);
        let service = row.service.as_deref();
        let known = Reason::ALL.iter().find(|r| r.code() == code);
        let text = known.map_or("", |r| connections::reason_text(service, *r));
        let path = service.map_or(String::new(), |name| format!("  {} {name}", row.path));
        format!(
            "{} {} {} > {}{path}  {}: {text}",
            row.protocol,
            output::printable(&row.command),
            address(&row.local),
            address(&row.remote),
            row.reason
        )
    }

    fn foot(&self) -> String {
        if let Some(problem) = &self.problem {
            return problem.clone();
        }
        if self.typing {
            return format!("filter: {}_", self.filter);
        }
        if self.rows.is_empty() {
            return "no connections of programs under Bypath (start them with: bypath run -- PROGRAM)"
                .to_owned();
        }
        let filter =
            if self.filter.is_empty() { String::new() } else { format!("  filter: {}", self.filter) };
        format!("q leave  p pause  s sort  r reverse  / filter  ? help{filter}")
    }
}

fn cells(row: &Row, wide: bool) -> Cells<'static> {
    let address = |a: &Option<String>| match a {
        None => "-".to_owned(),
        Some(a) if wide => a.clone(),
        Some(a) => a.rfind(':').map_or(a.clone(), |colon| a[colon..].to_owned()),
    };
    let mut cells = vec![
        format!("{}{}", row.pid, if row.stopped { " T" } else { "" }),
        output::printable(&row.command),
        address(&row.local),
        address(&row.remote),
        if wide { row.path.clone() } else { row.path.split(':').next().unwrap_or_default().to_owned() },
        output::bytes(row.tx_rate),
        output::bytes(row.rx_rate),
        row.wait_ns.map_or("-".to_owned(), time),
        row.spin_percent.map_or("-".to_owned(), |p| format!("{p:.0}%")),
        count(row.drops),
    ];
    if wide {
        cells.push(row.reason.clone());
    }
    Cells::new(cells)
}

/// A number for people, of at most five characters.
fn count(n: u64) -> String {
    match n {
        0..100_000 => n.to_string(),
        100_000..10_000_000 => format!("{}k", n / 1000),
        _ => format!("{}M", (n / 1_000_000).min(9999)),
    }
}

/// A time for people, of at most six characters.
pub fn time(ns: u64) -> String {
    match ns {
        0..1000 => format!("{ns}ns"),
        1000..1_000_000 => format!("{}us", ns / 1000),
        1_000_000..1_000_000_000 => format!("{}ms", ns / 1_000_000),
        _ => format!("{}s", (ns / 1_000_000_000).min(99_999)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::row;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(screen: &mut Screen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect::<Vec<_>>().join("\n")
    }

    fn screen() -> Screen {
        let mut screen = Screen::default();
        screen.show(vec![row(11, "redis-server", 5000, "ring"), row(12, "nginx", 2_000_000, "kernel/ring")]);
        screen
    }

    fn press(screen: &mut Screen, keys: &str) -> bool {
        keys.chars().any(|c| {
            let code = match c {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                '\x08' => KeyCode::Backspace,
                c => KeyCode::Char(c),
            };
            screen.key(KeyEvent::new(code, KeyModifiers::NONE))
        })
    }

    #[test]
    fn eighty_columns_hold_every_column_of_numbers() {
        let text = drawn(&mut screen(), 80, 24);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("bypath top: 2 sockets, 2 on rings, 1.9M/s sent; by rate"), "{text}");
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            ["PID", "COMMAND", "LOCAL", "REMOTE", "PATH", "TX/S", "RX/S", "WAIT", "SPIN", "DROPS"]
        );
        let nginx: Vec<_> = lines[2].split_whitespace().collect();
        assert_eq!(nginx, ["12", "nginx", ":6379", ":40012", "kernel/ring", "1.9M", "0", "-", "-", "0"]);
        // The longest of everything finds room.
        let mut full = row(4_194_304, "a-name-of-15-ch", 1_073_000_000, "kernel/ring");
        (full.stopped, full.wait_ns, full.spin_percent) = (true, Some(u64::MAX), Some(800.0));
        (full.rx_rate, full.drops) = (full.tx_rate, u64::MAX);
        (full.local, full.remote) = (Some("127.0.0.1:65535".to_owned()), Some("127.0.0.1:65535".to_owned()));
        full.reason = "peer-plain/ring".to_owned();
        let mut longest = Screen::default();
        longest.show(vec![full]);
        let text = drawn(&mut longest, 80, 24);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[2],
            "4194304 T a-name-of :65535 :65535 kernel/ring 1023.3M 1023.3M 99999s 800%  9999M"
        );
        // And the reason, with what it means.
        let whole = lines[20..23].join(" ");
        assert!(
            whole.starts_with("tcp a-name-of-15-ch 127.0.0.1:65535 > 127.0.0.1:65535")
                && whole.contains(&format!("peer-plain/ring: {}", Reason::PeerPlain.text())),
            "{text}"
        );
        // Where there is no room for all columns none is cut.
        for width in 1..80 {
            let text = drawn(&mut longest, width, 24);
            let (names, row) = (text.lines().nth(1).unwrap_or(""), text.lines().nth(2).unwrap_or(""));
            assert!(width < 9 || row.starts_with("4194304 T"), "{width}: {text}");
            assert!(width < 30 || !names.contains("DROPS") && names.contains("LOCAL"), "{width}: {text}");
            assert_eq!(width >= 45, row.contains("kernel/ring"), "{width}: {text}");
        }
        let text = drawn(&mut screen(), 80, 24);
        assert!(text.ends_with("? help"), "{text}");
        let wide = drawn(&mut screen(), 140, 24);
        assert!(wide.contains("REASON") && wide.contains("127.0.0.1:40012"), "{wide}");
    }

    #[test]
    fn keys_sort_filter_pause_help_and_leave() {
        let mut s = screen();
        assert!(!press(&mut s, "sssss"));
        assert_eq!(s.sort, Sort::Pid);
        assert!(drawn(&mut s, 80, 24).lines().nth(2).unwrap().starts_with("11"));
        assert!(!press(&mut s, "r"));
        assert!(drawn(&mut s, 80, 24).lines().nth(2).unwrap().starts_with("12"));
        assert!(!press(&mut s, "/redisq"));
        assert!(drawn(&mut s, 80, 24).ends_with("filter: redisq_"));
        assert!(!press(&mut s, "\x08\n"));
        let text = drawn(&mut s, 80, 24);
        assert!(
            text.contains("redis-server") && !text.contains("nginx") && text.contains("1 sockets"),
            "{text}"
        );
        assert!(!press(&mut s, "/\x1bp") && s.paused);
        assert!(drawn(&mut s, 80, 24).contains("PAUSED"));
        assert!(!press(&mut s, "?"));
        let text = drawn(&mut s, 80, 24);
        assert!(text.contains("Help") && text.contains("streams lose nothing"), "{text}");
        for line in HELP.lines() {
            assert!(text.contains(line), "{line} is cut: {text}");
        }
        // Any key closes it.
        assert!(!press(&mut s, "q") && press(&mut s, "q"));
        let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
        assert!(!press(&mut s, "/nginx") && !s.key(control('x')));
        assert!(drawn(&mut s, 80, 24).ends_with("filter: nginx_"));
        assert!(!s.key(control('u')));
        assert!(drawn(&mut s, 80, 24).ends_with("filter: _"));
        assert!(s.key(control('c')));
    }

    #[test]
    fn the_smallest_terminal_and_names_that_would_steer_it_do_no_harm() {
        let mut s = screen();
        s.show(vec![row(1, "a\x1b[2Jb", 1, "ring")]);
        for (width, height) in [(1, 1), (3, 2), (20, 3), (80, 1)] {
            drawn(&mut s, width, height);
            press(&mut s, "?");
            drawn(&mut s, width, height);
            press(&mut s, "x");
        }
        assert!(drawn(&mut s, 80, 5).contains("a?[2Jb"));
        s.show(vec![]);
        assert!(drawn(&mut s, 80, 5).contains("no connections"));
    }

    #[test]
    fn times_are_short() {
        assert_eq!(
            [5, 1500, 2_000_000, 3_000_000_000, u64::MAX].map(time),
            ["5ns", "1us", "2ms", "3s", "99999s"]
        );
    }
}
