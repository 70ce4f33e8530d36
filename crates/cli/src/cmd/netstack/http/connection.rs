//! One caller: requests come, answers go, as fast as the stack takes and gives octets. Nothing here waits.

use super::conditions::Validators;
use super::files::{Folder, Found};
use super::request::{self, Request};
use super::{PIECE, Report, Status};
use bypath_stack::Stack;
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::error::{ReadError, WriteError};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

/// How long a request may take to come, and the next one after an answer.
const ASKING: u64 = 15_000_000_000;
/// How long an answer may take to get on by [`PROGRESS`].
const ANSWERING: u64 = 30_000_000_000;
/// Octets that have to be acknowledged in that time, or all.
const PROGRESS: u64 = 16 << 10;
/// How long the other side may take to finish after we have: what it has sent meanwhile must not reset what it has not read.
const LEAVING: u64 = 10_000_000_000;
/// Octets that are thrown away in that time.
const THROWN_AWAY: usize = 1 << 20;
/// Pieces that a connection sends or takes before others have their turn.
const TURNS: usize = 16;

/// What a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A request.
    Asking,
    /// Room for the answer.
    Answering,
    /// The other side's end.
    Leaving,
}

/// How it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When there is news of it.
    Wait,
    /// At once, when the others have had their turn.
    Again,
    /// It does not.
    Over,
}

/// A part of a file that is still to be sent.
struct Part {
    file: File,
    from: u64,
    left: u64,
}

/// What a connection has when it is its turn.
pub struct Turn<'a> {
    pub stack: &'a mut Stack,
    pub folder: &'a Folder,
    pub now: u64,
    /// There is room for callers who stay.
    pub keep: bool,
    /// For octets on their way.
    pub room: &'a mut [u8],
    pub report: &'a mut Report,
}

pub struct Connection {
    id: SocketId,
    /// It waits for a turn.
    pub queued: bool,
    phase: Phase,
    /// What has come of a request.
    asked: Vec<u8>,
    /// What is to be sent before the file: the head of the answer, and a text.
    text: Vec<u8>,
    /// How much of that was sent.
    sent: usize,
    part: Option<Part>,
    /// Another request may follow.
    keep: bool,
    thrown_away: usize,
    /// Until when (ns of the monotonic clock).
    deadline: u64,
    /// What was acknowledged when that was set.
    acknowledged: u64,
}

impl Connection {
    pub const fn new(id: SocketId, now: u64) -> Connection {
        Connection {
            id,
            queued: false,
            phase: Phase::Asking,
            asked: Vec::new(),
            text: Vec::new(),
            sent: 0,
            part: None,
            keep: true,
            thrown_away: 0,
            deadline: now + ASKING,
            acknowledged: 0,
        }
    }

    /// Goes on as far as it can.
    pub fn turn(&mut self, turn: &mut Turn<'_>) -> Next {
        for _ in 0..TURNS {
            let next = match self.phase {
                Phase::Asking => self.ask(turn),
                Phase::Answering => self.answer(turn),
                Phase::Leaving => self.leave(turn),
            };
            if next != Next::Again {
                return next;
            }
        }
        Next::Again
    }

    /// Whether it took too long. A slow reader gets on, if slowly.
    pub fn is_late(&mut self, stack: &mut Stack, now: u64) -> bool {
        if now < self.deadline {
            return false;
        }
        if self.phase == Phase::Answering {
            let acknowledged = self.acknowledged(stack);
            let gets_on = acknowledged >= self.acknowledged + PROGRESS;
            (self.acknowledged, self.deadline) = (acknowledged, now + ANSWERING);
            return !gets_on;
        }
        true
    }

    /// It has not been answered in full.
    pub fn is_owed(&self) -> bool {
        self.phase == Phase::Answering
    }

    fn acknowledged(&self, stack: &mut Stack) -> u64 {
        let statistics = stack.tcp(self.id).and_then(|mut tcp| tcp.statistics());
        statistics.map_or(0, |statistics| statistics.octets_acknowledged)
    }

    fn ask(&mut self, turn: &mut Turn<'_>) -> Next {
        // There may be another one behind the last.
        let answer = match request::parse(&self.asked) {
            Ok(None) => {
                let Some(mut tcp) = turn.stack.tcp(self.id) else { return Next::Over };
                let most = (request::LONGEST - self.asked.len()).min(turn.room.len());
                return match tcp.read(&mut turn.room[..most]) {
                    Ok(n @ 1..) => {
                        self.asked.extend_from_slice(&turn.room[..n]);
                        Next::Again
                    }
                    Err(ReadError::Empty) => Next::Wait,
                    Ok(0) | Err(_) => Next::Over,
                };
            }
            Ok(Some((request, len))) => {
                self.asked.drain(..len);
                self.keep = request.keep && turn.keep;
                Answer::to(&request, turn.folder)
            }
            Err(status) => {
                self.keep = false;
                Answer::of(status, false)
            }
        };
        turn.report.requests += 1;
        match answer.status.0 {
            200..400 => {}
            _ => turn.report.refused += 1,
        }
        self.text = answer.head(self.keep);
        self.sent = 0;
        self.text.extend_from_slice(&answer.text);
        self.part = answer.part;
        self.phase = Phase::Answering;
        self.deadline = turn.now + ANSWERING;
        self.acknowledged = self.acknowledged(turn.stack);
        Next::Again
    }

    fn answer(&mut self, turn: &mut Turn<'_>) -> Next {
        let Some(mut tcp) = turn.stack.tcp(self.id) else { return Next::Over };
        if self.sent < self.text.len() {
            return match tcp.write(&self.text[self.sent..]) {
                Ok(n) => {
                    self.sent += n;
                    Next::Again
                }
                Err(WriteError::Full) => Next::Wait,
                Err(_) => Next::Over,
            };
        }
        if let Some(part) = &mut self.part
            && part.left > 0
        {
            let most = usize::try_from(part.left).unwrap_or(usize::MAX).min(PIECE);
            // Straight to where it is sent from. What fills no segment waits for the next piece.
            let more = (most as u64) < part.left;
            let written = tcp.write_with(most, more, |room| part.file.read_at(room, part.from).unwrap_or(0));
            return match written {
                Ok(n @ 1..) => {
                    part.from += n as u64;
                    part.left -= n as u64;
                    turn.report.octets += n as u64;
                    Next::Again
                }
                // It has become shorter than was promised, or cannot be read: the end must not look like a good one.
                Ok(0) => {
                    tcp.abort();
                    Next::Over
                }
                Err(WriteError::Full) => Next::Wait,
                Err(_) => Next::Over,
            };
        }
        if self.part.take().is_some() {
            turn.report.files += 1;
        }
        self.text = Vec::new();
        if self.keep {
            (self.phase, self.deadline) = (Phase::Asking, turn.now + ASKING);
            return Next::Again;
        }
        if tcp.finish().is_err() {
            return Next::Over;
        }
        (self.phase, self.deadline) = (Phase::Leaving, turn.now + LEAVING);
        Next::Again
    }

    fn leave(&mut self, turn: &mut Turn<'_>) -> Next {
        let Some(mut tcp) = turn.stack.tcp(self.id) else { return Next::Over };
        match tcp.read(turn.room) {
            Ok(n @ 1..) if self.thrown_away < THROWN_AWAY => {
                self.thrown_away += n;
                Next::Again
            }
            Err(ReadError::Empty) => Next::Wait,
            _ => Next::Over,
        }
    }
}

/// What is answered.
struct Answer {
    status: Status,
    /// Fields of its own, each with its line's end.
    fields: String,
    /// Octets behind the head; `None`: there are none, and nothing is said of them.
    len: Option<u64>,
    text: Vec<u8>,
    part: Option<Part>,
}

impl Answer {
    /// A status with its name as content.
    fn of(status: Status, head: bool) -> Answer {
        let text = format!("{} {}\n", status.0, status.1).into_bytes();
        let mut fields = "Content-Type: text/plain; charset=utf-8\r\n".to_owned();
        if status == Status::METHOD {
            fields += "Allow: GET, HEAD\r\n";
        }
        Answer::with(status, fields, text, head)
    }

    fn with(status: Status, fields: String, text: Vec<u8>, head: bool) -> Answer {
        let len = Some(text.len() as u64);
        Answer { status, fields, len, text: if head { Vec::new() } else { text }, part: None }
    }

    /// What a condition has in place of content with these fields.
    fn instead(status: Status, fields: String, head: bool) -> Answer {
        match status {
            Status::UNCHANGED => Answer { status, fields, len: None, text: Vec::new(), part: None },
            status => Answer::of(status, head),
        }
    }

    fn to(request: &Request, folder: &Folder) -> Answer {
        let (file, all, modified, tag, kind) = match folder.find(&request.path) {
            Ok(Found::File { file, len, modified, tag, kind }) => (file, len, modified, tag, kind),
            Ok(Found::List(text)) => {
                if let Some(status) = request.conditions.refuse(&Validators::default()) {
                    return Answer::instead(status, String::new(), request.head);
                }
                let fields = "Content-Type: text/html; charset=utf-8\r\n".to_owned();
                return Answer::with(Status::OK, fields, text.into_bytes(), request.head);
            }
            Ok(Found::Elsewhere(path)) => {
                let mut answer = Answer::of(Status::ELSEWHERE, request.head);
                answer.fields += &format!("Location: {}\r\n", path.encoded());
                return answer;
            }
            Err(status) => return Answer::of(status, request.head),
        };
        let mut fields = format!("Content-Type: {kind}\r\nAccept-Ranges: bytes\r\n");
        // A file of the future, or from before there were dates, has none.
        let now = SystemTime::now();
        let modified = modified.filter(|at| dates().contains(at) && *at <= now);
        if let Some(modified) = modified {
            fields += &format!("Last-Modified: {}\r\n", httpdate::fmt_http_date(modified));
        }
        if let Some(tag) = &tag {
            fields += &format!("ETag: {tag}\r\n");
        }
        let own = Validators { tag, modified };
        if let Some(status) = request.conditions.refuse(&own) {
            return Answer::instead(status, fields, request.head);
        }
        let range = request.range.filter(|_| request.conditions.takes_range(&own, now));
        let (status, from, len) = match range.map(|range| range.of(all)) {
            None => (Status::OK, 0, all),
            Some(Some((from, len))) => {
                fields += &format!("Content-Range: bytes {from}-{}/{all}\r\n", from + len - 1);
                (Status::PART, from, len)
            }
            Some(None) => {
                let mut answer = Answer::of(Status::NO_SUCH_PART, request.head);
                answer.fields += &format!("Content-Range: bytes */{all}\r\n");
                return answer;
            }
        };
        let part = (!request.head).then_some(Part { file, from, left: len });
        Answer { status, fields, len: Some(len), text: Vec::new(), part }
    }

    fn head(&self, keep: bool) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status.0, self.status.1);
        let now = SystemTime::now();
        if dates().contains(&now) {
            head += &format!("Date: {}\r\n", httpdate::fmt_http_date(now));
        }
        head += "Server: bypath\r\n";
        if let Some(len) = self.len {
            head += &format!("Content-Length: {len}\r\n");
        }
        head += &self.fields;
        // Who speaks HTTP/1.0 has to be told both.
        head += if keep { "Connection: keep-alive\r\n\r\n" } else { "Connection: close\r\n\r\n" };
        head.into_bytes()
    }
}

/// Times that can be written as dates of four digits: from 1970 to 9999.
fn dates() -> std::ops::Range<SystemTime> {
    SystemTime::UNIX_EPOCH..SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_800)
}
